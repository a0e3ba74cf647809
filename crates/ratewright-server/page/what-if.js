// The view "What if?": edits policies and replays recent decisions or a log against them.

import { attempt, getJson } from "./api.js";
import { announce, h, redraw } from "./dom.js";
import { live, RING_SIZE } from "./live.js";
import { button, card, field, heading, note, problemBox } from "./parts.js";
import { report } from "./report.js";
import { bytes, duration, num, plural, when } from "./text.js";

const MAX_BYTES = 32 << 20;
const FORMATS = "automatic,combined,common,ratewright,envoy,envoy-json,traefik,caddy,alb,json,csv".split(",");

const SKIP = "skip policies that need them";

const form = { text: "", format: "automatic", fields: "", absent: SKIP };
let inForce = {}; // the policies in force: { value, problem, generation }
let isRunning = false;
let problem = null;
let result = null;
let replayed = "";
let lastFile = null;

async function poll() {
	const { generation } = live.status;
	if (inForce.value && generation === inForce.generation) return;
	const isUnchanged = form.text === (inForce.value?.text ?? "");
	inForce = { ...(await attempt(getJson("/api/v1/admin/policy-file"))), generation };
	if (isUnchanged) copy();
}

function copy() {
	form.text = inForce.value?.text ?? "";
}

async function simulate(log, query, what) {
	const policies = new Blob([form.text]);
	const size = policies.size + log.size;
	const path = `/api/v1/admin/simulate?${new URLSearchParams({ policyBytes: policies.size, ...query })}`;
	isRunning = true;
	const found =
		size > MAX_BYTES
			? {
					problem: new Error(`${bytes(size)} is too large for this page. Use the command "ratewright simulate".`),
				}
			: await attempt(getJson(path, { method: "POST", body: new Blob([policies, log]) }));
	isRunning = false;
	problem = found.problem;
	result = null;
	if (found.value) [result, replayed] = [found.value, what];
	announce(problem?.message ?? "The replay is done. The result is below the editor.");
	redraw();
	setTimeout(() => document.querySelector(problem ? ".message.bad" : ".report")?.scrollIntoView(), 50);
}

function replayDecisions() {
	const { ring, ringStart } = live;
	const entries = [...ring.slice(ringStart), ...ring.slice(0, ringStart)];
	const lines = entries.map(({ decision }) => `${JSON.stringify(decision)}\n`);
	simulate(new Blob(lines), { from: "decisions" }, plural(lines.length, "recent decision"));
}

function replayFile(file) {
	if (!file || isRunning) return;
	lastFile = file;
	const { format, fields } = form;
	const query = { from: "log", name: file.name };
	if (form.absent !== SKIP) query.assumeAbsent = true;
	if (format !== "automatic") query.format = format;
	if (fields) query.fields = fields;
	simulate(file, query, file.name);
}

function goTo(line, column) {
	const before = form.text.split("\n", line - 1).map((text) => `${text}\n`);
	const at = before.join("").length + column - 1;
	const editor = document.querySelector(".editor textarea");
	editor.focus();
	editor.setSelectionRange(at, at);
	editor.scrollTop = (line - 5) * 20;
}

function errorLine(text) {
	const [, line, column = 1] = /:(\d+):(\d+)/.exec(text) ?? /line (\d+)(?:,? column (\d+))?/.exec(text) ?? [];
	return h("li", line ? button(text, () => goTo(Number(line), Number(column)), { class: "link" }) : text);
}

function render() {
	return [
		heading("What if?", "Edit policies and replay requests through them. The limiter is not affected."),
		h("div.two.even", editorCard(), inForceCard()),
		problem?.errors?.length
			? h("div.message.bad", h("strong", problem.message), h("ul", problem.errors.map(errorLine)))
			: problemBox("The replay failed.", problem),
		h("div.two.even", recentCard(), logCard()),
		isRunning && h("p.message", "The replay is running."),
		result && report(result, replayed),
	];
}

function editorCard() {
	const numbers = form.text.split("\n").map((_, i) => i + 1);
	const onscroll = ({ target }) => {
		target.closest(".editor").firstChild.scrollTop = target.scrollTop;
	};
	return h(
		"section.card",
		h("div.card-head", h("h2", "Your policies"), inForce.value?.text && button("Load policies in force", copy)),
		h(
			"div.editor",
			h("pre", { "aria-hidden": "true" }, numbers.join("\n")),
			field("Policies to try", form, "text", { tag: "textarea", class: "mono", wrap: "off", onscroll }),
		),
	);
}

function inForceCard() {
	const { text, reason } = inForce.value ?? {};
	return h(
		"section.card",
		h("div.card-head", h("h2", "Policies in force")),
		problemBox("The policies in force could not be read.", inForce.problem),
		text ? h("pre.in-force", { tabindex: 0, role: "region", "aria-label": "Policies in force" }, text) : note(reason),
	);
}

function recentCard() {
	const { ring, ringStart } = live;
	const [first, last] = [ring[ringStart], ring.at(ringStart - 1)].map((entry) => entry?.decision.at * 1000);
	const oneIn = ring.reduce((most, entry) => Math.max(most, entry.oneIn), 1);
	const share = `from ${oneIn > 1 ? `1 in ${num(oneIn)}` : "all"} client addresses`;
	const held = `This page holds ${plural(ring.length, "decision")} (at most ${num(RING_SIZE)})`;
	const span = `from ${when(first)} to ${when(last)} (${duration((last - first) / 1000)}), ${share}`;
	return card(
		"Recent decisions",
		h("p", ring.length > 0 ? `${held} ${span}.` : "No decisions since this page was opened."),
		live.dropped > 0 && note(`${num(live.dropped)} more were not recorded: too many per second, or too long.`),
		button("Replay recent decisions", replayDecisions, {
			class: "primary",
			disabled: isRunning || !ring.length,
		}),
	);
}

function logCard() {
	const over = (isOver) => (event) => event.currentTarget.classList.toggle("over", isOver);
	const drop = (event) => {
		over(false)(event);
		replayFile(event.dataTransfer.files[0]);
	};
	const onchange = (event) => {
		replayFile(event.target.files[0]);
		event.target.value = "";
	};
	return h(
		"section.card",
		{ ondragover: over(true), ondragleave: over(false), ondrop: drop },
		h("h2", "Access log"),
		h(
			"div.fields",
			field("Format", form, "format", { options: FORMATS }),
			field("Attributes not in the log", form, "absent", { options: [SKIP, "no request has them"] }),
			field("Fields (json, csv)", form, "fields", { placeholder: "time=ts,ip=client,path=uri" }),
			h("label.field", "File, or drop one here", h("input", { type: "file", disabled: isRunning, onchange })),
		),
		lastFile && button(`Replay ${lastFile.name} again`, () => replayFile(lastFile)),
		h("p.hint", `Plain, gzip or zstd, at most ${bytes(MAX_BYTES)}. The replay starts at once.`),
	);
}

export const whatIf = { id: "what-if", title: "What if?", render, poll, pollMs: 2_000 };
