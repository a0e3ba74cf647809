// Draws the result of a replay: what was not replayed first, then what changes, for whom, and when.

import { chart, chartState } from "./chart.js";
import { h } from "./dom.js";
import { badge, card, list, note, table, tile } from "./parts.js";
import { duration, num, percent, plural, when } from "./text.js";

const plot = chartState();
const time = (text) => when(Date.parse(text));

export function report({ report: found = {}, warnings = [] }, replayed) {
	const { period, against, policies = [], timeline } = found;
	return h(
		"section.report",
		{ "aria-label": "Result of the replay" },
		h("h2.summary", "Result"),
		note(`Replayed: ${replayed}${period ? `, from ${time(period.from)} to ${time(period.to)}` : ""}`),
		cautions(found, warnings),
		h("dl.tiles", tiles(found)),
		timeline?.allowed?.length > 0 && card("Over time, with your policies", timelineChart(timeline)),
		policies.length > 0 && card("By policy", policyTable(policies)),
		card("Most denied clients", clientTable(policies)),
		against &&
			h("div.two.even", changed("denied", against.most_newly_denied), changed("allowed", against.most_newly_allowed)),
	);
}

// Everything that limits what the numbers below mean.
function cautions(found, warnings) {
	const { lines, unreadable, out_of_order, unreadable_lines = [], notes = [], policies = [] } = found;
	const texts = [...warnings, ...notes];
	if (unreadable > 0) texts.push(`${plural(unreadable, "line")} of ${num(lines)} could not be read.`);
	if (out_of_order > 0) texts.push(`${plural(out_of_order, "line")} too far out of order, skipped.`);
	for (const policy of policies) {
		if (policy.is_simulated === false) texts.push(`Policy ${policy.policy} was not replayed.`);
		for (const text of policy.notes ?? []) texts.push(`Policy ${policy.policy}: ${text}`);
	}
	for (const { log, line, reason, text } of unreadable_lines) texts.push(`${log}:${line}: ${reason}: ${text}`);
	return texts.length > 0 && h("div.message.warn", h("strong", "Read this first"), list([...new Set(texts)]));
}

function tiles({ requests, clients, denied, against }) {
	const of = (count = 0) => `from ${plural(count, "client")}`;
	return [
		tile("Requests", num(requests), of(clients)),
		tile("Denied by your policies", num(denied), percent(denied, requests)),
		against && [
			tile("Denied by policies in force", num(against.denied), percent(against.denied, requests)),
			tile("Newly denied", num(against.newly_denied), of(against.clients_newly_denied)),
			tile("Newly allowed", num(against.newly_allowed), of(against.clients_newly_allowed)),
		],
	];
}

function timelineChart({ from, interval_seconds = 1, allowed, denied = [] }) {
	const perColumn = Math.ceil((allowed.length * 4) / plot.width);
	const bins = [];
	allowed.forEach((count, i) => {
		const column = Math.floor(i / perColumn);
		bins[column] ??= [0, 0, 0];
		bins[column][0] += count;
		bins[column][1] += denied[i] ?? 0;
	});
	const seconds = interval_seconds * perColumn;
	const title = `Requests per ${duration(seconds)}`;
	return chart(plot, {
		bins,
		fromMs: Date.parse(from) || 0,
		stepMs: seconds * 1000,
		title,
		caption: `${title}, last column`,
	});
}

function policyTable(policies) {
	const heads = ["Policy", "Mode", "Limit", "#Requests", "#Denied", "#Near misses", "#Clients denied", "First denial"];
	const row = (p) => {
		const counts = [
			p.requests,
			p.denied,
			p.near_misses,
			p.clients_denied,
			p.first_denial ? time(p.first_denial.at) : "none",
		];
		return [p.policy, p.policy, badge(p.mode), p.limit, ...(p.is_simulated === false ? ["not replayed"] : counts)];
	};
	return table("What each of your policies does", heads, policies.map(row));
}

function clientTable(policies) {
	const rows = policies.flatMap(({ policy, mode, most_denied: clients = [] }) =>
		(mode === "enforce" ? clients : []).map((c) => [
			`${policy} ${c.client}`,
			c.client,
			policy,
			c.requests,
			c.denied,
			time(c.first_denied_at),
		]),
	);
	rows.sort((a, b) => b[4] - a[4]);
	const heads = ["Client", "Policy", "#Requests", "#Denied", "First at"];
	return rows.length > 0 ? table("Denied by your policies", heads, rows.slice(0, 20)) : note("None.");
}

function changed(verb, clients = []) {
	const row = ({ client, requests, changed, first_at }) => [client, client, requests, changed, time(first_at)];
	const heads = ["Client", "#Requests", `#Newly ${verb}`, "First at"];
	return card(
		`Most newly ${verb} clients`,
		clients.length > 0 ? table(`Requests newly ${verb}`, heads, clients.map(row)) : note("None."),
	);
}
