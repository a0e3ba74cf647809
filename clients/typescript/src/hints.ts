/**
 * The server's wait: how long a response asks us to stay away.
 *
 * Four headers can say it. The first that is readable counts, even if its wait is over: a server that says "now" in
 * `Retry-After` must not be overruled by a counter that resets in an hour.
 */
import { type HeaderReader, trimmed } from "./headers.js";
import { parseHttpDate, weekday } from "./http-date.js";
import { parseServiceLimits } from "./limits.js";

export type HintCause = "retry-after" | "ratelimit" | "ratelimit-reset" | "x-ratelimit-reset";

export type ServerWait = readonly [waitMs: number, cause: HintCause];

/** Reads the wait in ms from the header with this name. If that is not readable, gives NaN or -Infinity. */
type Reader = (headers: HeaderReader, wallMs: number, name: string) => number;

const readers: [HintCause, Reader][] = [
  ["retry-after", readRetryAfter],
  ["ratelimit", readRateLimit],
  ["ratelimit-reset", readReset],
  ["x-ratelimit-reset", readReset],
];
const limiterHeaders = [
  ...readers.map(([name]) => name),
  "ratelimit-policy",
  "ratelimit-remaining",
  "x-ratelimit-remaining",
];

/** An element of `Retry-After`. The comma after a weekday belongs to its date. */
const element = new RegExp(`[ \\t]*(?:${weekday})?[^,]*`, "g");

/** The wait of the first readable header; 0 if it is over, none if no header is readable. At most 10^12 ms, 31 years, reach arithmetic and timers. */
export function serverWait(headers: HeaderReader, wallMs: number): ServerWait | [] {
  for (const [cause, read] of readers) {
    const waitMs = read(headers, wallMs, cause);
    if (waitMs > -Infinity) return [Math.min(Math.max(waitMs, 0), 1e12), cause];
  }
  return [];
}

/** True if a rate limiter made this response: it has at least one of the headers that limiters send. */
export function isFromLimiter(headers: HeaderReader): boolean {
  return limiterHeaders.some((name) => headers.get(name) !== null);
}

function readRetryAfter(headers: HeaderReader, wallMs: number, name: string): number {
  const text = headers.get(name) ?? "";
  if (text.length > 1_024) return NaN;
  const now = referenceTime(headers, wallMs);
  const waits = text.match(element)!.flatMap((part) => {
    const value = trimmed(part);
    return [parseSeconds(value), parseHttpDate(value) - now];
  });
  return Math.max(...waits.filter((wait) => wait > -Infinity));
}

function readRateLimit(headers: HeaderReader): number {
  const waits = parseServiceLimits(headers).map(([, remaining, afterSeconds = -Infinity]) => {
    return remaining ? -Infinity : afterSeconds;
  });
  return Math.max(...waits) * 1_000;
}

/** `RateLimit-Reset`, unless `RateLimit-Remaining` says that something is left; or both with `X-`. */
function readReset(headers: HeaderReader, wallMs: number, name: string): number {
  const remaining = agreedValue(headers, name.replace("reset", "remaining")) ?? "0";
  if (!/^0+$/.test(remaining)) return NaN;
  const ms = parseSeconds(agreedValue(headers, name) ?? "");
  if (name === "ratelimit-reset" || ms < 1e12) return ms; // seconds from now
  const unixMs = ms < 1e15 ? ms : Math.ceil(ms / 1_000); // Unix time, in seconds or in milliseconds
  return unixMs - referenceTime(headers, wallMs);
}

/** The value that all elements of a header agree on; "" if they differ, undefined if there are none. */
function agreedValue(headers: HeaderReader, name: string): string | undefined {
  const [value, ...others] = new Set(headers.get(name)?.split(",").map(trimmed));
  return others.length ? "" : value;
}

/** Reads `120`, `007` or `1.5` as milliseconds, rounded up: waiting this long is always enough. */
function parseSeconds(text: string): number {
  // 1.1 * 1000 is 1100.0000000000002, so the point is moved in the text.
  const [, whole, thousandths = "", rest = ""] = /^(\d+)(?:\.(\d{1,3})(\d*))?$/.exec(text) ?? [];
  return Number(whole + thousandths.padEnd(3, "0")) + Number(/[1-9]/.test(rest));
}

/** The time that dates of this response are compared with: its own clock if that is known, else ours. */
function referenceTime(headers: HeaderReader, wallMs: number): number {
  const date = parseHttpDate(trimmed(headers.get("date") ?? ""));
  const isFresh = headers.get("age") === null; // with `Age`, a cache kept the response
  return isFresh && date >= 0 ? date : wallMs;
}
