// The view "Now": the live chart, the state of this instance, the most denied clients and the latest decisions.

import { attempt, getJson } from "./api.js";
import { chart, chartState } from "./chart.js";
import { h } from "./dom.js";
import { latest, live } from "./live.js";
import {
	badge,
	button,
	card,
	clientLink,
	countOf,
	field,
	heading,
	long,
	note,
	problemBox,
	table,
	tile,
} from "./parts.js";
import { bytes, duration, num, when } from "./text.js";

const plot = chartState();
const form = { show: "all" };
let paused = null; // the decisions on screen while the list stands still
let top = {};

async function poll() {
	top = await attempt(getJson("/api/v1/admin/top?n=10"));
}

function render() {
	const { status, at, seconds } = live;
	return [
		heading("Now", "The last 15 minutes"),
		live.restartedAt > 0 &&
			h("p.message", `Ratewright restarted at ${when(live.restartedAt)}. Counts in its memory were lost.`),
		at > 0 && seconds.size === 0 && firstRequest(),
		h("section.card", { "aria-label": "Requests per second" }, trafficChart()),
		status ? h("dl.tiles", tiles(status)) : note("Waiting for data."),
		status?.upstreams?.length > 0 && upstreams(status.upstreams),
		h("div.two", mostDenied(), decisions()),
	];
}

const firstRequest = () =>
	card(
		"No request in the last 15 minutes",
		h("p", "Send one to listen.api; it appears within a second:"),
		h("pre.message.command", `curl http://${globalThis.location.hostname}:8080/api/v1/rate-limit/check`),
	);

// Requests per second, in columns. The newest one covers at least one second.
function trafficChart() {
	const now = (live.at || Date.now()) / 1000;
	const step = plot.width > 900 ? 3 : 10;
	const length = 900 / step;
	const first = (Math.floor(now / step) - length + 1) * step;
	const bins = Array.from({ length }, (_, i) => {
		const begin = first + i * step;
		const elapsed = Math.min(step, now - begin);
		const sums = [0, 0, 0];
		const add = (second, weight) => {
			for (const kind of [0, 1, 2]) sums[kind] += (live.seconds.get(second)?.[kind] ?? 0) * weight;
		};
		for (let second = begin; second < begin + step; second++) add(second, 1);
		if (elapsed < 1) add(begin - 1, 1 - elapsed);
		return sums.map((sum) => sum / Math.max(1, elapsed));
	});
	const title = "Requests per second";
	const caption = `${title}, ${live.state === "lost" ? `last known at ${when(live.at)}` : "now"}`;
	return chart(plot, { bins, fromMs: first * 1000, stepMs: step * 1000, title, caption });
}

function tiles({ version, uptimeSeconds, isReady, notReadyReason, store = {}, reload = {} }) {
	const { keys, keysMax, bytes: size = 0, evictions = 0, instances } = store;
	const { loadedAt, succeeded = 0, failed = 0, lastError } = reload;
	const loaded = `Policies in force: read at ${when(loadedAt)}. `;
	const reloads = [loaded, `Reloads: ${num(succeeded)} succeeded, ${num(failed)} failed.`];
	return [
		storeTile(store),
		isReady === false ? tile("Readiness", "Not ready", notReadyReason, "bad") : tile("Readiness", "Ready"),
		lastError
			? tile("Last reload", "Failed", [h("pre", lastError), reloads], "bad")
			: tile("Policies loaded", when(loadedAt), reloads[1]),
		tile("Buckets in memory", num(keys), `At most ${num(keysMax)}. ${bytes(size)}, ${num(evictions)} evicted.`),
		tile("Instances seen", instances ? num(instances) : "Unknown", instances && "They share this Redis."),
		tile("Version", version, `Up for ${duration(uptimeSeconds)}`),
	];
}

export const isStoreLost = (store) => store?.mode === "local";

function storeTile(store) {
	const { mode, sinceSeconds = 0, location = "", latencyMs } = store;
	const since = `since ${when(live.at - sinceSeconds * 1000)} (${duration(sinceSeconds)})`;
	const alone = `This instance decides alone, ${since}. `;
	if (isStoreLost(store)) {
		const more = [alone, "With on_failure: local, clients may exceed their limits. Check ", h("code", location)];
		return tile("Store", "⚠ Redis is unreachable", more, "alarm");
	}
	if (mode === "memory")
		return tile("Store", "Memory", `No Redis is configured. ${alone}A restart forgets all counts.`);
	const speed = typeof latencyMs === "number" ? `${num(latencyMs)} ms per call` : "no calls in the last 10 s";
	return tile("Store", mode === "shared" ? "Shared" : mode, [h("code", location), `, ${since}, ${speed}`]);
}

function upstreams(all) {
	const row = ({ address, route, isHealthy, ejections }) => [
		`${route} ${address}`,
		address,
		route,
		isHealthy ? h("span.badge.allowed", "✓ Healthy") : h("span.badge.denied", "✕ Ejected"),
		ejections,
	];
	const heads = ["Upstream", "Route", "Health", "#Ejections"];
	return card("Upstreams", table("Upstream health", heads, all.map(row)));
}

function mostDenied() {
	const { windowSeconds = 300, top: clients = [] } = top.value ?? {};
	const caption = `Denied requests in the last ${duration(windowSeconds)}`;
	const row = (entry) => [
		`${entry.policy} ${entry.client}`,
		clientLink(entry.policy, entry.client),
		[long(entry.policy), " ", entry.mode === "shadow" && badge("shadow")],
		countOf(entry),
	];
	return card(
		"Most denied clients",
		problemBox("The list could not be read.", top.problem),
		clients.length > 0 && table(caption, ["Client", "Policy", "#Denied"], clients.map(row)),
		top.value && clients.length === 0 && note(`${caption}: none.`),
	);
}

function decisions() {
	const entries = paused ?? latest(15, form.show);
	const pause = () => {
		paused = paused ? null : entries;
	};
	const share = live.oneIn > 1 ? `from 1 in ${num(live.oneIn)} client addresses` : "at most 100 per second";
	const rows = entries.map(decisionRow);
	return h(
		"section.card",
		h(
			"div.card-head",
			h("h2", "Latest decisions"),
			!paused && field("Show", form, "show", { options: ["all", "denied", "shadow"] }),
			button(paused ? "Resume" : "Pause", pause),
		),
		rows.length > 0 ? table(`Newest first, ${share}`, ["Time", "Verdict", "Request"], rows) : note("None yet."),
	);
}

function decisionRow({ id, decision }) {
	const { at, verdict, method = "", host = "", path = "", ip, user, key, policy } = decision;
	const who = [ip, user && `user ${user}`, key && `key ${key}`, policy && `policy ${policy}`].filter(Boolean);
	const parts = who.map((text, i) => [i > 0 && " · ", long(text)]);
	return [id, when(at * 1000), badge(verdict), [long(`${method} ${host}${path}`), h("div.muted", parts)]];
}

export const now = { id: "now", title: "Now", render, poll, pollMs: 3_000 };
