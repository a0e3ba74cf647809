// Turns values into text: numbers, times, and hostile strings with their invisible characters made visible.

const format = (options) => new Intl.NumberFormat("en-GB", options).format;
const whole = format({ maximumFractionDigits: 0 });
const fine = format({ maximumSignificantDigits: 2 });
const percents = format({ style: "percent", maximumSignificantDigits: 2 });

const time = (options) => new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options }).format;
const hourMinute = time({ hour: "2-digit", minute: "2-digit" });
const hourMinuteSecond = time({ timeStyle: "medium" });
const day = time({ day: "numeric", month: "short" });

// Control, bidirectional, zero-width and separator characters, lone surrogates, and marks piled on marks.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{DI}\u2800]|(?! )\p{Zs}|(?<=\p{M}{3})\p{M}/gu;

// The text with such characters written as \u{202e}; lines and tabs stay if asked for.
export const visible = (text, keepLines = false) =>
	text.replace(INVISIBLE, (c) =>
		keepLines && (c === "\n" || c === "\t") ? c : `\\u{${c.codePointAt(0).toString(16)}}`,
	);

const isNumber = (n) => typeof n === "number" && Number.isFinite(n);

// A number with as many digits as help: 0.31, 4.2, 1,204.
export function num(n) {
	if (!isNumber(n)) return "unknown";
	return Math.abs(n) >= 10 || Number.isInteger(n) ? whole(n) : fine(n);
}

export const percent = (part, all) => (all > 0 ? percents(part / all) : "0%");
export const plural = (n, one, many = `${one}s`) => `${num(n)} ${n === 1 ? one : many}`;
export const bytes = (n) => (n < 1 << 20 ? `${num(n / 1024)} KiB` : `${num(n / (1 << 20))} MiB`);

// Seconds in the two largest units: "2 min 5 s".
export function duration(seconds) {
	const s = Math.max(0, Math.round(seconds || 0));
	const units = { d: s / 86400, h: (s / 3600) % 24, min: (s / 60) % 60, s: s % 60 };
	const parts = Object.entries(units).map(([unit, n]) => `${Math.floor(n)} ${unit}`);
	const first = parts.findIndex((part) => part[0] !== "0");
	return (
		parts
			.slice(first, first + 2)
			.filter((part) => part[0] !== "0")
			.join(" ") || "0 s"
	);
}

export function when(ms, now = Date.now()) {
	if (!isNumber(ms)) return "unknown";
	const isToday = new Date(ms).toDateString() === new Date(now).toDateString();
	return isToday ? hourMinuteSecond(ms) : `${day(ms)}, ${hourMinute(ms)}`;
}

// The end of a wait: "14:03:24 (in 8 s)"; a wait without seconds never ends.
export function until(fromMs, seconds, now) {
	if (!isNumber(seconds)) return "never";
	const end = fromMs + seconds * 1000;
	return `${when(end, now)} (${end > now ? `in ${duration(Math.max(1, (end - now) / 1000))}` : "passed"})`;
}

export function axisTime(ms, stepMs) {
	if (stepMs < 60_000) return hourMinuteSecond(ms);
	return stepMs < 86_400_000 ? hourMinute(ms) : day(ms);
}
