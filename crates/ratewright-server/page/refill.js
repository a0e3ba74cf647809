// Draws how a bucket fills up again, from now to the time at which it is full.

import { h } from "./dom.js";
import { duration, num, when } from "./text.js";

const WIDTH = 260;
const END = 226;
const FLOOR = 56;

export function refillDrawing({ refill, limit, remaining }, nowMs) {
	const { shape, units = 1, windowMs = 0, fullAfterMs = 0, firstAfterMs = 0 } = refill;
	const isFull = fullAfterMs <= 0 || remaining >= limit;
	const x = (ms) => Math.round(1 + (ms / fullAfterMs) * (END - 1));
	const y = (left) => Math.round(FLOOR - (Math.min(limit, Math.max(0, left)) / Math.max(1, limit)) * 48);
	let path = `M1 ${y(isFull ? limit : remaining)}`;
	if (!isFull && shape === "steps" && windowMs > 0) {
		for (let i = Math.min(200, Math.ceil(fullAfterMs / windowMs) - 1); i >= 0; i--) {
			path += `H${x(fullAfterMs - i * windowMs)}V${y(Math.max(remaining, limit - i * units))}`;
		}
	} else if (!isFull)
		path +=
			shape === "at_once"
				? `H${END}V${y(limit)}`
				: `${shape === "by_age" ? `H${x(firstAfterMs)}` : ""}L${END} ${y(limit)}`;
	path += `H${WIDTH}`;
	const window = duration(windowMs / 1000);
	const words = {
		steps: `Refills by ${num(units)} every ${window}`,
		at_once: "The bucket refills all at once",
		by_age: `Each unit returns ${window} after it was spent; full at the latest then`,
	};
	const fullAt = isFull ? "full now" : `full at ${when(nowMs + fullAfterMs, nowMs)}`;
	const how = isFull ? "The bucket is full" : (words[shape] ?? "The bucket refills evenly");
	const summary = `${how}; ${fullAt}. Now ${num(remaining)} of ${num(limit)}.`;
	return h(
		"figure",
		h(
			"svg.refill",
			{ class: shape, role: "img", "aria-label": summary, viewBox: `0 0 ${WIDTH} 76` },
			h("path.allowed", { d: `${path}V${FLOOR}H1Z` }),
			h("path.edge", { d: path }),
			h("line.axis", { x1: 0, x2: WIDTH, y1: FLOOR, y2: FLOOR }),
			h("circle", { cx: 4, cy: y(remaining), r: 3.5 }),
			!isFull && h("line.cursor", { x1: END, x2: END, y1: 8, y2: FLOOR }),
			h("text", { x: 0, y: 71 }, `now ${when(nowMs, nowMs)}`),
			h("text", { x: WIDTH, y: 71, "text-anchor": "end" }, fullAt),
		),
		h("figcaption.hint", `${how}.`),
	);
}
