// The view "Why?": asks what the limiter would do with one request, and shows the reasons.

import { attempt, postJson } from "./api.js";
import { headersOf, parseCurl } from "./curl.js";
import { announce, h, redraw } from "./dom.js";
import { badge, card, field, heading, long, note, problemBox, table } from "./parts.js";
import { duration } from "./text.js";

const request = { method: "GET", path: "/", cost: "1", headers: "", curl: "" };
let notes = [];
let answer = {};

async function ask() {
	const { headers, cost, curl, ...rest } = request;
	const attributes = Object.fromEntries(Object.entries(rest).filter(([, value]) => value));
	attributes.headers = headersOf(headers);
	answer = await attempt(postJson("/api/v1/explain", { attributes, cost: Number(cost) || 1 }));
	announce(answer.problem?.message ?? String(answer.value.summary));
	redraw();
}

function submit(event) {
	event.preventDefault();
	notes = [];
	ask();
}

function readCommand(event) {
	event.preventDefault();
	try {
		const { notes: found, ...rest } = parseCurl(request.curl);
		Object.assign(request, rest);
		const { ip, user } = request;
		notes = [...found, (ip || user) && `From the form: ${ip} ${user}`].filter(Boolean);
		ask();
	} catch (error) {
		notes = [error.message];
		announce(error.message);
	}
}

function render() {
	return [
		heading("Why?", "How Ratewright would decide a request, and why. Nothing is spent."),
		h("div.two.even", requestForm(), commandForm()),
		problemBox("The request could not be explained.", answer.problem),
		answer.value && !request.ip && h("p.message.warn", "Without a client address, policies by address do not apply."),
		answer.value && result(answer.value),
	];
}

const FIELDS = {
	method: "Method",
	path: "Path with query",
	host: "Host",
	ip: "Client address",
	user: "User",
	cost: "Cost",
};

const requestForm = () =>
	h(
		"form.card",
		{ onsubmit: submit },
		h("h2", "Describe a request"),
		h(
			"div.fields",
			Object.entries(FIELDS).map(([name, label]) => field(label, request, name)),
		),
		field("Headers", request, "headers", {
			tag: "textarea",
			rows: 3,
			hint: "One per line, like X-Api-Key: k1",
		}),
		h("button.primary", "Explain"),
	);

const commandForm = () =>
	h(
		"form.card",
		{ onsubmit: readCommand },
		h("h2", "Or paste a curl command"),
		field("Command", request, "curl", {
			tag: "textarea",
			rows: 8,
			class: "mono",
			hint: "The command is not run.",
		}),
		notes.map((text) => h("p.message", text)),
		h("button", "Read and explain"),
	);

function result({ allowed, summary, status, route, basis, policies = [], attributes = [], headers = {} }) {
	const facts = [`Status ${status}`, route && `route ${route}`, basis && `basis ${basis}`].filter(Boolean);
	const shadow = policies.filter(({ mode, limits }) => limits?.some(({ remaining }) => isEmpty(mode, remaining)));
	const inOrder = [...policies].sort((a, b) => Number(b.applies) - Number(a.applies));
	const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\n`);
	const row = ({ name, values = [], from }) => [name, name, values.join(", ") || "none", from];
	return [
		h(
			"section.card.answer",
			{ class: allowed ? "good" : "bad", "aria-label": "Decision" },
			badge(allowed ? "allowed" : "denied"),
			h("p.summary", summary),
			shadow.length > 0 && h("p.data", `If enforced, it would be denied by ${shadow.map((p) => p.policy).join(", ")}.`),
			note(facts.join(", ")),
		),
		card("Policies", h("ul.reasons", inOrder.map(reason))),
		h(
			"div.two.even",
			card("Attributes", table("Sources", ["Attribute", "Value", "Source"], attributes.map(row))),
			card("Response headers", h("pre", lines)),
		),
	];
}

// A look at a shadow bucket never denies.
const isEmpty = (mode, remaining) => mode === "shadow" && remaining === 0;

function reason({ policy, applies, why, mode, key, limits = [] }) {
	const again = (seconds) => (seconds ? `in ${duration(seconds)}` : seconds === 0 ? "now" : "never");
	const row = ({ outcome, remaining, limit, retryAfterSeconds, resetAfterSeconds }, i) => [
		i,
		badge(isEmpty(mode, remaining) ? "shadow" : outcome),
		remaining,
		limit,
		isEmpty(mode, remaining) ? "would be denied" : again(retryAfterSeconds),
		`in ${duration(resetAfterSeconds)}`,
	];
	const applied = h("span.badge", applies ? "● Applies" : "○ Does not apply");
	const caption = key ? `Buckets for ${key}` : "Buckets for all clients";
	return h(
		"li",
		{ key: policy, class: !applies && "muted" },
		h("h3", long(policy), " ", applied, " ", mode !== "enforce" && badge(mode)),
		h("p.data", why),
		limits.length > 0 && table(caption, ["Outcome", "#Left", "#Limit", "Allowed again", "Full again"], limits.map(row)),
	);
}

export const why = { id: "why", title: "Why?", render };
