// Draws counts [allowed, denied, shadow] over time as SVG, denied below the line: one large chart to read with the
// pointer and the keyboard, and a small one for lists.

import { h, redraw } from "./dom.js";
import { axisTime, num, when } from "./text.js";

const LEFT = 44;
const TOP = 8;
const FLOOR = 216;
const TIME_STEPS = [5, 10, 30, 60, 120, 180, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800];

// What a chart remembers between two drawings: its width and the column that is read.
export function chartState() {
	const state = { width: 900, cursor: null };
	const observer = new ResizeObserver(([entry]) => {
		state.width = Math.max(200, Math.round(entry.contentRect.width));
		redraw();
	});
	state.watch = (element) => observer.observe(element);
	return state;
}

const round = (n) => Math.round(n * 10) / 10;
const above = ([allowed, , shadow]) => allowed + shadow;

function areas(bins, x, y) {
	const outline = (upper, lower) => {
		const there = bins.map((bin, i) => `V${y(upper(bin))}H${x(i + 1)}`);
		const back = bins.map((bin, i) => `V${y(lower(bin))}H${x(i)}`);
		return `M${x(0)} ${y(0)}${there.join("")}${back.reverse().join("")}Z`;
	};
	const zero = () => 0;
	const allowed = (bin) => bin[0];
	const shadow = outline(above, allowed);
	const denied = outline(zero, (bin) => -bin[1]);
	const path = (kind, d) => h("path", { class: kind, d });
	return [
		path("allowed", outline(allowed, zero)),
		[path("shadow", shadow), path("dots", shadow)],
		[path("denied", denied), path("hatch", denied)],
	];
}

// Rounds up to 1, 2, 5, 10, 20, 50 and so on.
function niceStep(rough) {
	const power = 10 ** Math.max(0, Math.floor(Math.log10(rough)));
	return power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
}

const line = (kind, x1, y1, x2, y2) => h(`line.${kind}`, { x1, y1, x2, y2 });
const label = (x, y, anchor, text) => h("text", { x, y, "text-anchor": anchor }, text);

// bins: counts in columns of stepMs, the first at fromMs. title: what is counted, "Requests per second".
export function chart(state, { bins, fromMs, stepMs, title, caption }) {
	const { width, watch } = state;
	const count = bins.length;
	const most = [0, 1, 2].map((i) => Math.max(...bins.map((bin) => bin[i])));
	const top = Math.max(1, ...bins.map(above));
	const step = niceStep((top + most[1]) / 5);
	const high = Math.ceil(top / step) * step;
	const low = most[1] && Math.max(most[1] * 1.1, high * 0.05);
	const x = (i) => round(LEFT + (i * (width - LEFT)) / count);
	const y = (value) => round(TOP + ((high - value) / (high + low)) * (FLOOR - TOP));
	const isRead = state.cursor !== null && state.cursor < count;
	const at = isRead ? state.cursor : count - 1;
	const atTime = when(fromMs + at * stepMs);
	const words = ([allowed, denied, shadow]) => `${num(allowed)} allowed, ${num(denied)} denied, ${num(shadow)} shadow`;
	const summary = `${title} from ${when(fromMs)} to ${when(fromMs + count * stepMs)}. Highest: ${words(most)}`;

	const marks = [];
	for (let v = -Math.floor(low / step) * step; v <= high; v += step) {
		const text = label(LEFT - 8, y(v) + 4, "end", num(Math.abs(v)));
		marks.push(line(v ? "grid" : "axis", LEFT, y(v), width, y(v)), text);
	}
	const seconds = (count * stepMs) / 1000;
	const timeStep = 1000 * (TIME_STEPS.find((s) => (seconds / s) * 76 <= width - LEFT) ?? 2_592_000);
	const zone = new Date(fromMs).getTimezoneOffset() * 60_000;
	for (let t = Math.ceil((fromMs - zone) / timeStep) * timeStep + zone; ; t += timeStep) {
		const tx = x((t - fromMs) / stepMs);
		if (tx > width - 22) break;
		const text = label(tx, 235, "middle", axisTime(t, timeStep));
		if (tx > LEFT + 16) marks.push(line("axis", tx, FLOOR, tx, FLOOR + 4), text);
	}
	const cursorX = x(at + 0.5);

	const read = (column) => {
		state.cursor = column >= 0 && column < count ? column : null;
	};
	const point = ({ currentTarget, clientX }) => {
		const left = currentTarget.getBoundingClientRect().left + LEFT;
		read(Math.floor(((clientX - left) / (width - LEFT)) * count));
	};
	const leave = () => read(-1);
	const slide = ({ target }) => read(Number(target.value));
	return h(
		"div.chart",
		h(
			"div.legend",
			["Allowed", "Denied", "Shadow"].map((name, i) => legend(name, bins[at][i])),
			h("p.muted", isRead ? `${title}, at ${atTime}` : caption),
		),
		h(
			"div.plot",
			{ ref: watch, onpointermove: point, onpointerleave: leave },
			h(
				"svg",
				{ role: "img", "aria-label": summary, width, height: 240 },
				areas(bins, x, y),
				marks,
				isRead && line("cursor", cursorX, TOP, cursorX, FLOOR),
			),
			h("input", {
				type: "range",
				"aria-label": "Time in the chart",
				"aria-valuetext": `${atTime}: ${words(bins[at])}`,
				min: 0,
				max: count - 1,
				value: at,
				onfocus: slide,
				oninput: slide,
				onblur: leave,
			}),
		),
	);
}

const legend = (name, value) =>
	h("div", h("span.swatch", { class: name.toLowerCase() }), h("span.muted", name), h("div.big", num(value)));

// 15 minutes of one policy, in steps of 10 seconds.
export function sparkline(steps, nowMs, totals) {
	const first = Math.floor(nowMs / 10_000) * 10 - 890;
	const bins = Array.from({ length: 90 }, (_, i) => steps?.get(first + i * 10) ?? [0, 0, 0]);
	const high = Math.max(1, ...bins.map(above));
	const low = Math.max(...bins.map(([, d]) => d));
	const y = (value) => round(1 + ((high - value) / (high + low)) * 34);
	const { allowed, denied, shadow } = totals;
	const summary = `${num(allowed)} allowed, ${num(denied)} denied, ${num(shadow)} would be denied (shadow mode)`;
	return h(
		"svg.spark",
		{ role: "img", "aria-label": summary, viewBox: "0 0 180 36" },
		areas(bins, (i) => i * 2, y),
		line("axis", 0, y(0), 180, y(0)),
	);
}
