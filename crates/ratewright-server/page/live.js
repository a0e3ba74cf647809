// Reads the live stream, reconnects when it is lost, and holds what it brought: 15 minutes of counts and a ring of
// recent decisions.

import { send } from "./api.js";
import { announce, redraw } from "./dom.js";

export const RING_SIZE = 20_000;

export const live = {
	state: "connecting", // connecting, live, lost
	at: 0,
	status: null,
	oneIn: 1,
	dropped: 0,
	seconds: new Map(), // unix second → [allowed, denied, shadow]
	policies: new Map(), // name → { version, steps: Map of unix second → [allowed, denied, shadow, near] }
	ring: [], // { id, oneIn, decision }; the oldest is at ringStart
	ringStart: 0,
	streams: 0,
	restartedAt: 0,
};

let controller = null;
let timer = 0;
let wait = 1_000;
let nextId = 1;
let receivedAt = 0;
let newestDecisionAt = 0;

// The time of the server in milliseconds, which need not be the time of this computer.
export const serverNow = () => (live.at ? live.at + performance.now() - receivedAt : Date.now());

export function connect() {
	disconnect();
	const mine = new AbortController();
	controller = mine;
	watch(mine);
	read(mine).then(
		() => lose(mine, "Ratewright closed the stream"),
		(error) => lose(mine, error.errors ? error.message : "The stream was cut off"),
	);
}

export function disconnect() {
	clearTimeout(timer);
	const old = controller;
	controller = null;
	old?.abort();
}

export function retryNow() {
	if (live.state === "lost" && !controller) connect();
}

function watch(mine) {
	clearTimeout(timer);
	timer = setTimeout(lose, 5_000, mine, "No data for 5 seconds");
}

function lose(mine, problem) {
	if (mine !== controller) return;
	disconnect();
	if (live.state !== "lost") announce("Connection lost. The data on this page is no longer updated.");
	Object.assign(live, { state: "lost", problem, retryAt: performance.now() + wait });
	timer = setTimeout(connect, wait);
	wait = Math.min(10_000, wait * 2);
	redraw();
}

async function read(mine) {
	const response = await send("/api/v1/admin/live", { signal: mine.signal });
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	let isFirst = true;
	while (true) {
		const { value, done } = await reader.read();
		if (done || mine !== controller) return;
		watch(mine);
		const lines = (rest + value).split("\n");
		rest = lines.pop();
		for (const line of lines.filter(Boolean)) {
			take(JSON.parse(line), isFirst);
			isFirst = false;
		}
	}
}

function take({ at, status, oneIn = 1, dropped = 0, seconds, policies = {}, decisions = [] }, isFirst) {
	receivedAt = performance.now();
	if (status.uptimeSeconds < live.status?.uptimeSeconds) live.restartedAt = at - status.uptimeSeconds * 1000;
	Object.assign(live, { at, status, oneIn, dropped });
	keep(live.seconds, seconds);
	for (const [name, steps] of Object.entries(policies)) {
		const entry = live.policies.get(name) ?? { version: 0, steps: new Map() };
		entry.version += 1;
		keep(entry.steps, steps);
		live.policies.set(name, entry);
	}
	for (const decision of decisions) {
		if (isFirst && decision.at <= newestDecisionAt) continue;
		const isFull = live.ring.length === RING_SIZE;
		live.ring[isFull ? live.ringStart : live.ring.length] = { id: nextId++, oneIn, decision };
		if (isFull) live.ringStart = (live.ringStart + 1) % RING_SIZE;
	}
	newestDecisionAt = Math.max(newestDecisionAt, decisions.at(-1)?.at ?? 0);
	if (isFirst) {
		if (live.state === "lost") announce("Connection restored.");
		live.state = "live";
		live.streams += 1;
		wait = 1_000;
	}
	redraw();
}

function keep(map, rows = []) {
	for (const [second, ...counts] of rows) map.set(second, counts);
	for (const second of map.keys()) if (second < live.at / 1000 - 960) map.delete(second);
}

// The newest decisions with a verdict (or all), newest first.
export function latest(count, verdict) {
	const found = [];
	for (let i = 1; i <= live.ring.length && found.length < count; i++) {
		const entry = live.ring.at(live.ringStart - i);
		if (verdict === "all" || entry.decision.verdict === verdict) found.push(entry);
	}
	return found;
}

export function policyTotals(name) {
	const sums = [0, 0, 0, 0];
	for (const [second, counts] of live.policies.get(name)?.steps ?? []) {
		if (second >= live.at / 1000 - 900) for (let i = 0; i < 4; i++) sums[i] += counts[i] ?? 0;
	}
	const [allowed, denied, shadow, near] = sums;
	return { allowed, denied, shadow, near, requests: allowed + denied + shadow };
}

document.addEventListener("visibilitychange", () => document.hidden || retryNow());
addEventListener("online", retryNow);
