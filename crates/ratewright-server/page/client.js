// The view "Client": every bucket of one client, how full it is, when it is full again, and a way to reset it.

import { attempt, postJson, send } from "./api.js";
import { catalog } from "./catalog.js";
import { announce, h, redraw } from "./dom.js";
import { serverNow } from "./live.js";
import { attributesOf, wanted } from "./lookup.js";
import { badge, button, card, field, heading, list, long, note, problemBox, unseen } from "./parts.js";
import { refillDrawing } from "./refill.js";
import { num, until, when } from "./text.js";

const AD_HOC = "token_bucket,leaky_bucket,sliding_window,sliding_window_counter,fixed_window".split(",");

let values = {};
let notes = [];
let asked = null; // the attributes that the answer belongs to
let answer = null;
let answeredAt = 0;
let problem = null;
let confirming = null; // the policy whose reset waits for confirmation
let resetResult = {};

const NAMES = { ip: "Address", key: "Ad hoc key" };
const partName = (part) => NAMES[part] ?? part[0].toUpperCase() + part.slice(1).replace(":", " ");

// What some policy counts by, the ad hoc key last.
function formParts() {
	const needed = (answer?.policies ?? []).map(({ needs = [] }) => needs);
	const parts = [catalog.policies.map(({ by = [] }) => by), needed, Object.keys(values)].flat(2);
	const all = new Set(["ip", "user", ...parts.flatMap((part) => part.split(" or "))]);
	all.delete("key");
	return [...all].slice(0, 50).concat("key");
}

function ask() {
	const { key, ...attributes } = attributesOf(values);
	asked = key || Object.keys(attributes).length > 0 ? { attributes, key } : null;
	answer = null;
	problem = null;
	confirming = null;
	resetResult = {};
}

async function poll() {
	const mine = asked;
	if (!mine) return;
	const found = await attempt(postJson("/api/v1/admin/client", mine));
	if (mine !== asked) return;
	problem = found.problem;
	if (found.value) {
		if (!answer) announce("The buckets are below the form.");
		answer = found.value;
		answeredAt = serverNow();
	}
	redraw();
}

function submit(event) {
	event.preventDefault();
	notes = [];
	ask();
	poll();
}

// Takes over a client that was chosen in another view.
function enter() {
	if (!wanted.values) return;
	({ values, notes } = wanted);
	wanted.values = null;
	ask();
}

async function reset({ policy, key }) {
	confirming = null;
	// Ad hoc keys belong to algorithms; a shared bucket has no key.
	const form = AD_HOC.includes(policy) ? { algorithm: policy.toUpperCase() } : { policy };
	if (key) form.key = key;
	const body = new URLSearchParams(form);
	const { problem: isBad } = await attempt(send("/api/v1/admin/reset", { method: "POST", body }));
	const text = isBad ? `Not reset: ${isBad.message}` : `The bucket was reset at ${when(serverNow())}.`;
	resetResult = { policy, text, isBad };
	announce(text);
	poll();
}

function render() {
	const found = answer?.policies ?? [];
	const missing = found.filter(({ needs, limits }) => needs?.length && !limits?.length);
	return [
		heading("Client", "All buckets of one client"),
		form(),
		notes.map((text) => h("p.message", text)),
		problemBox("The buckets could not be read.", problem),
		!asked && note("Enter an address, a user or a key, or choose a client in another view."),
		h("ul.policies", found.filter((policy) => !missing.includes(policy)).map(policyCard)),
		missing.length > 0 && card("Policies that need more attributes", list(missing.map(needsText))),
	];
}

const needsText = ({ policy, needs }) => [long(policy), ` needs: ${needs.map(partName).join(", ")}`];

function form() {
	return h(
		"form.card",
		{ onsubmit: submit },
		h(
			"div.fields",
			formParts().map((part) => field(partName(part), values, part)),
		),
		h("button.primary", "Show the buckets"),
	);
}

function policyCard(entry) {
	const { policy, mode, key, limits = [], inFlightLimits = [] } = entry;
	const isReset = resetResult.policy === policy;
	return h(
		"li.card",
		{ key: policy },
		h("div.card-head", h("h2", long(policy), " ", badge(mode)), limits.length > 0 && resetter(entry)),
		note(key === "" ? "One bucket for all clients" : ["Key ", h("code", key)]),
		entry.note && h("p.message", entry.note),
		isReset && h("p.message", { class: resetResult.isBad && "bad" }, resetResult.text),
		limits.map(bucket),
		inFlightLimits.map(({ max, inFlight }) => h("div.bucket", level(inFlight, max, "requests in flight"))),
	);
}

function resetter(entry) {
	const isAsking = confirming === entry.policy;
	const toggle = () => {
		confirming = isAsking ? null : entry.policy;
	};
	const question = `Yes, reset ${entry.key === "" ? "the bucket that all clients share" : "this client's bucket"}`;
	return [
		button(isAsking ? "Cancel" : ["Reset bucket", unseen(` of ${entry.policy}`)], toggle),
		isAsking && button(question, () => reset(entry), { class: "danger" }),
	];
}

const level = (value, limit, what, ...more) =>
	h(
		"div",
		h("p", h("strong", num(value)), ` of ${num(limit)} ${what}`),
		h("div.bar", h("svg", { width: `${(100 * value) / (limit || 1)}%`, "aria-hidden": "true" })),
		more,
	);

function bucket(entry) {
	const { quota, override, outcome, limit, remaining, retryAfterSeconds, mode, refill } = entry;
	const names = [quota, override && `override ${override}`].filter(Boolean).join(", ");
	const isDenied = outcome === "denied" || outcome === "never";
	const time = isDenied ? until(answeredAt, retryAfterSeconds, serverNow()) : "now";
	const next = `${isDenied ? "✕" : "✓"} Next request allowed: ${time}`;
	const shadow = mode === "shadow" && isDenied && note("Shadow mode: the request would be allowed now.");
	return h(
		"div.bucket",
		level(
			remaining,
			limit,
			`left${names && ` (${names})`}`,
			h("p", { class: isDenied && "denied-text" }, next),
			shadow,
		),
		refill && refillDrawing(entry, answeredAt),
	);
}

export const client = { id: "client", title: "Client", render, enter, poll, pollMs: 2_000 };
