// Draws the DOM from plain descriptions, in place: an element that stays keeps its focus, selection and scroll
// position. Every text goes through visible(), and nothing is ever parsed as HTML.

import { visible } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const TEXT = "#text";
const drawn = new WeakMap();

// Describes an element: "td.number" is a tag with a class, then properties (optional) and children.
export function h(tagAndClasses, ...rest) {
	const [tag, ...classes] = tagAndClasses.split(".");
	const isProps = rest[0]?.constructor === Object && !rest[0].tag;
	const props = isProps ? rest.shift() : {};
	if (classes.length > 0) props.class = `${classes.join(" ")} ${props.class || ""}`.trim();
	return { tag, props, children: flat(rest) };
}

function flat(children) {
	const shown = children.flat(9).filter((child) => child || child === 0);
	return shown.map((child) => (child.tag ? child : { tag: TEXT, text: String(child), props: {} }));
}

// Makes the children of an element look as described. The same description, drawn again, costs nothing.
export function draw(parent, ...children) {
	const after = flat(children);
	update(parent, drawn.get(parent) ?? [], after);
	drawn.set(parent, after);
}

// Descriptions by a name among their siblings: by key, otherwise by their place among those with the same tag.
function named(nodes) {
	const byName = new Map();
	const counts = new Map();
	for (const node of nodes) {
		const name = `${node.tag}\n${node.props.key ?? ""}`;
		const count = counts.get(name) ?? 0;
		counts.set(name, count + 1);
		byName.set(`${name}\n${count}`, node);
	}
	return byName;
}

function update(parent, before, after) {
	const old = named(before);
	const next = named(after);
	for (const [name, node] of old) if (!next.has(name)) node.element.remove();
	let place = parent.firstChild;
	for (const [name, node] of next) {
		const previous = old.get(name);
		if (previous !== node) change(previous, node, parent);
		if (node.element === place) place = place.nextSibling;
		else parent.insertBefore(node.element, place);
	}
}

function change(previous, node, parent) {
	if (node.tag === TEXT) {
		node.element = previous?.element ?? document.createTextNode("");
		if (node.text !== previous?.text) node.element.data = visible(node.text, parent.localName === "pre");
		return;
	}
	const isSvg = node.tag === "svg" || parent.namespaceURI === SVG;
	node.element =
		previous?.element ?? (isSvg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag));
	update(node.element, previous?.children ?? [], node.children);
	const before = previous?.props ?? {};
	for (const name in before) if (!(name in node.props)) setProp(node.element, name, null);
	for (const name in node.props) {
		if (before[name] !== node.props[name]) setProp(node.element, name, node.props[name]);
	}
	if (!previous) node.props.ref?.(node.element);
}

function setProp(element, name, value) {
	if (name === "key" || name === "ref") return;
	if (name.startsWith("on")) element[name] = value && ((event) => redraw(value(event)));
	else if (name === "value" && element.value === String(value)) return;
	else if (name === "value") element.value = value;
	else if (value === null || value === undefined || value === false) element.removeAttribute(name);
	else element.setAttribute(name, value === true ? "" : visible(String(value)));
}

export const page = { paint: () => {} };
let isQueued = false;

// Draws what is visible in the next frame, also after every handler. A hidden tab has no frames, so it draws nothing.
export function redraw() {
	if (isQueued) return;
	isQueued = true;
	requestAnimationFrame(() => {
		isQueued = false;
		page.paint();
	});
}

export function announce(text) {
	document.getElementById("announce").textContent = visible(text);
}
