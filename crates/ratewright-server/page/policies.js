// The view "Policies": what each policy means, how it did in the last 15 minutes, and whom it denied.

import { attempt, getJson } from "./api.js";
import { catalog } from "./catalog.js";
import { sparkline } from "./chart.js";
import { h, redraw } from "./dom.js";
import { live, policyTotals, serverNow } from "./live.js";
import {
	badge,
	button,
	card,
	clientLink,
	countOf,
	field,
	heading,
	list,
	long,
	note,
	problemBox,
	table,
	unseen,
} from "./parts.js";
import { duration, num, percent, until, when } from "./text.js";

const form = { find: "", shown: 100 };
const open = new Map(); // name → the answer about its denials
const rows = new Map(); // name → { stamp, node }

async function readDetails(name) {
	const query = `policy=${encodeURIComponent(name)}&n=20`;
	const calls = [getJson(`/api/v1/admin/top?${query}`), getJson(`/api/v1/admin/denials?${query}`)];
	const answer = await attempt(Promise.all(calls));
	if (open.has(name)) open.set(name, answer);
	redraw();
}

const poll = () => Promise.all([...open.keys()].map(readDetails));

function toggle(name) {
	if (open.delete(name)) return;
	open.set(name, {});
	readDetails(name);
}

function render() {
	const { policies, notes, problem, version } = catalog;
	const part = form.find.trim().toLowerCase();
	const found = policies.filter(({ policy, meaning }) => `${policy} ${meaning}`.toLowerCase().includes(part));
	const more = () => Object.assign(form, { shown: form.shown + 200 });
	return [
		heading("Policies", "In the last 15 minutes", field("Find", form, "find", { type: "search" })),
		problemBox("The policies could not be read.", problem),
		found.length === 0 &&
			version > 0 &&
			note(part ? "No policy contains this text." : "No policy is in force. Every request is allowed."),
		h("ul.policies", found.slice(0, form.shown).map(row)),
		found.length > form.shown && button(`Show more of ${num(found.length)} policies`, more),
		notes.length > 0 && card("Notes", list(notes)),
	];
}

// The description of a policy; the same object as before if nothing changed.
function row(policy) {
	const name = policy.policy;
	const entry = live.policies.get(name);
	const isOpen = open.has(name);
	const version = Math.floor(entry?.version / (form.shown > 100 ? 5 : 1));
	const stamp = `${catalog.version} ${isOpen} ${version} ${entry && Math.floor(live.at / 10_000)}`;
	if (isOpen || rows.get(name)?.stamp !== stamp) rows.set(name, { stamp, node: describe(policy, entry, isOpen) });
	return rows.get(name).node;
}

function describe({ policy, group, mode, meaning, overrides = [], limits = [] }, entry, isOpen) {
	const totals = policyTotals(policy);
	const { requests, near, denied, shadow } = totals;
	return h(
		"li.card.policy",
		{ key: policy },
		h(
			"div.policy-head",
			h(
				"div",
				h("h2", long(policy), " ", badge(mode), group && h("span.muted", " group ", group)),
				h("p.data", meaning),
				overrides.map((text) => h("p.data.muted", text)),
				limits.map((limit) => [h("span.rate", limit), " "]),
			),
			h(
				"dl.figures",
				figure("Requests", num(requests)),
				figure("Near the limit", percent(near, requests)),
				mode === "shadow" ? figure("Would be denied", num(shadow), "shadow") : figure("Denied", num(denied), "denied"),
			),
			sparkline(entry?.steps, live.at, totals),
			button(["Denied clients", unseen(` of policy ${policy}`), isOpen ? " ▴" : " ▾"], () => toggle(policy), {
				"aria-expanded": String(isOpen),
			}),
		),
		isOpen && h("div.two", details(policy)),
	);
}

const figure = (label, value, kind = "") =>
	h("div", h("dt", label), h("dd", { class: value !== "0" && `${kind}-text` }, value));

function details(policy) {
	const { value, problem } = open.get(policy);
	if (!value) return problem ? problemBox("The denials could not be read.", problem) : note("Loading the denials.");
	const [{ top = [], windowSeconds }, { denials = [] }] = value;
	if (top.length + denials.length === 0) return note("This policy denied no client recently.");
	const now = serverNow();
	const denialRow = ({ correlationId, atUnixMs, client, method = "", path = "", retryAfterSeconds, mode }) => [
		correlationId,
		when(atUnixMs, now),
		clientLink(policy, client),
		`${method} ${path}`,
		mode === "shadow" ? "not denied (shadow mode)" : until(atUnixMs, retryAfterSeconds, now),
	];
	return [
		table(
			`Most denied clients, last ${duration(windowSeconds)}`,
			["Client", "#Denied"],
			top.map((entry) => [entry.client, clientLink(policy, entry.client), countOf(entry)]),
		),
		table("Last denials", ["Time", "Client", "Request", "Allowed again"], denials.map(denialRow)),
	];
}

export const policies = { id: "policies", title: "Policies", render, poll, pollMs: 3_000 };
