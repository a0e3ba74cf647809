// Small pieces that several views share: badges, tables, tiles, messages, forms, links to a client.

import { h } from "./dom.js";
import { lookUp } from "./lookup.js";
import { num } from "./text.js";

const BADGES = {
	allowed: "✓ Allowed",
	would_pass: "✓ Allowed",
	denied: "✕ Denied",
	never: "✕ Denied",
	shadow: "◐ Shadow",
	enforce: "■ Enforced",
	off: "○ Off",
};

export const badge = (kind) => h("span.badge", { class: kind }, BADGES[kind] ?? kind ?? "unknown");

export const heading = (title, about, more) => h("div.view-head", h("h1", { tabindex: -1 }, title), note(about), more);
export const card = (title, ...more) => h("section.card", { key: title }, h("h2", title), more);
export const note = (text) => h("p.muted", text);
const item = (text) => h("li.data", text);
export const list = (texts) => h("ul", texts.map(item));
export const button = (name, onclick, props) => h("button", { type: "button", onclick, ...props }, name);
export const unseen = (text) => h("span.unseen", text);

// Text that may be long: it is cut after two lines.
export const long = (text = "") => h("span.data", text.length > 60 && { class: "clamp", title: text }, text);

// A table that scrolls if it must. A head with "#" is for numbers. Rows are [key, head, ...cells].
export function table(caption, heads, rows) {
	const numeric = heads.map((name) => name[0] === "#" && "number");
	const fill = (value) => (typeof value === "number" ? num(value) : typeof value === "string" ? long(value) : value);
	const columns = heads.map((name, i) => h("th", { scope: "col", class: numeric[i] }, name.replace("#", "")));
	const row = ([key, head, ...cells]) =>
		h(
			"tr",
			{ key },
			h("th", { scope: "row" }, fill(head)),
			cells.map((value, i) => h("td", { class: numeric[i + 1] }, fill(value))),
		);
	return h(
		"div.scroll",
		{ role: "region", "aria-label": caption, tabindex: 0 },
		h("table", h("caption", caption), h("thead", h("tr", columns)), h("tbody", rows.map(row))),
	);
}

export const tile = (label, value, more, kind) =>
	h("div.tile", { class: kind, key: label }, h("dt", label), h("dd", h("div.value", value), more));

export const problemBox = (title, problem) =>
	problem &&
	h(
		"div.message.bad",
		h("strong", title),
		` ${problem.message}`,
		problem.errors?.length > 0 && h("pre", problem.errors.join("\n")),
	);

// The client of a bucket, as a link that fills the form of the Client view.
export const clientLink = (policy, client) =>
	client ? h("a", { href: "#client", onclick: () => lookUp(policy, client) }, long(client)) : "all clients";

export const countOf = ({ atLeast, atMost = atLeast }) =>
	atMost === atLeast ? num(atLeast) : `${num(atLeast)} to ${num(atMost)}`;

// A labelled input for values[name]; a select if it has options.
export function field(label, values, name, { tag = "input", options, hint, ...props } = {}) {
	const oninput = ({ target }) => {
		values[name] = target.value;
	};
	const basic = {
		autocomplete: "off",
		autocapitalize: "off",
		spellcheck: "false",
		value: values[name] ?? "",
	};
	const children = options?.map((option) => h("option", option));
	const input = h(options ? "select" : tag, { ...basic, oninput, ...props }, children);
	return h("label.field", { key: name }, label, input, hint && h("span.hint", hint));
}
