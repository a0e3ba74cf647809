// Turns the key of a bucket back into the attributes of a client, for the form of the Client view.

import { catalog } from "./catalog.js";

const GROUPS = { header: "headers", cookie: "cookies", query: "query", claim: "claims" };

// What the form shall show: values by part ("ip", "header:X-Api-Key"), and notes.
export const wanted = { values: null, notes: [] };

// Values in keys are percent-encoded: "a%7Cb" is "a|b".
function decode(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text; // it was cut off
	}
}

export function lookUp(policy, client) {
	const by = catalog.byName.get(policy)?.by ?? [];
	const parts = by.length === 1 ? [client] : client.split("|");
	const values = {};
	const notes = [];
	if (parts.length !== by.length) {
		notes.push(`The attributes in key ${client} of policy ${policy} are unknown. Enter them.`);
	}
	const usable = parts.length === by.length ? by : [];
	usable.forEach((name, i) => {
		// A value that could be of several attributes begins with the name of one: "ip:192.0.2.7".
		const choices = [...name.split(" or "), "ip"];
		const named = choices.find((choice) => parts[i].startsWith(`${choice}:`));
		// A request without the attribute is listed by its address.
		const isAddress = /^(\d+\.){3}\d+$|^[\da-f:]*:[\da-f:]*(\/\d+)?$/i.test(parts[i]);
		const part = named ?? (isAddress ? "ip" : choices[0]);
		const value = decode(named ? parts[i].slice(part.length + 1) : parts[i]);
		if (/^#[\da-f]{4,}…?$/i.test(value))
			notes.push(`${part} is stored as a digest (${value}). Enter the value itself to look it up.`);
		else values[part] = part === "ip" ? value.replace(/\/\d+$/, "") : value;
	});
	Object.assign(wanted, { values, notes });
}

// The body of POST /client: {"header:X-Plan": "gold", "ip": "…"} becomes {"headers": {…}, "ip": "…"}.
export function attributesOf(values) {
	const attributes = {};
	for (const [part, value] of Object.entries(values).filter(([, text]) => text)) {
		const [kind, ...name] = part.split(":");
		const group = GROUPS[kind] ?? "other";
		if (name.length === 0) attributes[part] = value;
		else attributes[group] = { ...attributes[group], [name.join(":")]: value };
	}
	return attributes;
}
