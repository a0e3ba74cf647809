// Holds the policies in force, and reads them again after a reload and when another policy decides.

import { attempt, getJson } from "./api.js";
import { redraw } from "./dom.js";
import { live } from "./live.js";

export const catalog = { policies: [], notes: [], byName: new Map(), version: 0, problem: null };

let loadedFor = "";
let triedAt = Number.NEGATIVE_INFINITY;

export async function refreshCatalog() {
	const wanted = `${live.streams} ${live.status?.generation} ${live.policies.size}`;
	if (live.state !== "live" || wanted === loadedFor || performance.now() - triedAt < 2_000) return;
	triedAt = performance.now();
	const { value, problem } = await attempt(getJson("/api/v1/admin/policies"));
	catalog.problem = problem;
	if (value) {
		const { policies = [], notes = [] } = value;
		const byName = new Map(policies.map((policy) => [policy.policy, policy]));
		Object.assign(catalog, { policies, notes, byName, version: catalog.version + 1 });
		loadedFor = wanted;
	}
	redraw();
}
