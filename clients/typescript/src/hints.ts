/**
 * The server's wait: how long a response asks us to stay away.
 *
 * Four headers can say it. The first that is readable counts, even if its wait is over: a server that says "now" in
 * `Retry-After` must not be overruled by a counter that resets in an hour.
 */
import { agreed, joined, lines, type ResponseHeaders, trimmed } from "./headers.js";
import { isWeekday, parseHttpDate } from "./http-date.js";
import { parseServiceLimits } from "./limits.js";

export type HintCause = "retry-after" | "ratelimit" | "ratelimit-reset" | "x-ratelimit-reset";

export interface ServerWait {
  readonly cause: HintCause;
  readonly waitMs: number;
}

type Reader = (headers: ResponseHeaders, wallMs: number) => number | undefined;

const readers: [HintCause, Reader][] = [
  ["retry-after", retryAfter],
  ["ratelimit", rateLimit],
  ["ratelimit-reset", (headers) => readReset(headers, "")],
  ["x-ratelimit-reset", xRateLimitReset],
];
const limiterHeaders = [
  "retry-after",
  "ratelimit",
  "ratelimit-policy",
  "ratelimit-remaining",
  "ratelimit-reset",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
];

/** Bounds every wait before arithmetic and timers see it: 10^12 ms are 31 years. */
const waitMaxMs = 1e12;

/** The wait of the first readable header; 0 if it is over. */
export function serverWait(headers: ResponseHeaders, wallMs: number): ServerWait | undefined {
  for (const [cause, read] of readers) {
    const waitMs = read(headers, wallMs);
    if (waitMs !== undefined) return { cause, waitMs: Math.min(Math.max(waitMs, 0), waitMaxMs) };
  }
  return undefined;
}

/** True if a rate limiter made this response: it has at least one of the headers that limiters send. */
export function isFromLimiter(headers: ResponseHeaders): boolean {
  return limiterHeaders.some((name) => lines(headers, name).length > 0);
}

function retryAfter(headers: ResponseHeaders, wallMs: number): number | undefined {
  const parts = joined(headers, "retry-after", 1_024)?.split(",") ?? [];
  let longest: number | undefined;
  for (let i = 0; i < parts.length; i++) {
    let element = trimmed(parts[i]!);
    // The comma after a weekday belongs to its date.
    if (isWeekday(element) && i + 1 < parts.length) element = trimmed(`${element},${parts[++i]}`);
    const date = parseHttpDate(element);
    const wait = parseSeconds(element) ?? (date === undefined ? undefined : date - referenceTime(headers, wallMs));
    if (wait !== undefined) longest = Math.max(longest ?? wait, wait);
  }
  return longest;
}

function rateLimit(headers: ResponseHeaders): number | undefined {
  const usedUp = parseServiceLimits(headers).filter((limit) => limit.remaining === 0);
  const waits = usedUp.flatMap((limit) => limit.afterSeconds ?? []);
  return waits.length > 0 ? Math.max(...waits) * 1_000 : undefined;
}

/** `RateLimit-Reset` in ms, unless `RateLimit-Remaining` says that something is left; or both with a prefix. */
function readReset(headers: ResponseHeaders, prefix: string): number | undefined {
  const remaining = agreed(headers, `${prefix}ratelimit-remaining`) ?? "0";
  return /^0+$/.test(remaining) ? parseSeconds(agreed(headers, `${prefix}ratelimit-reset`) ?? "") : undefined;
}

function xRateLimitReset(headers: ResponseHeaders, wallMs: number): number | undefined {
  const ms = readReset(headers, "x-");
  if (ms === undefined || ms < 1e12) return ms; // seconds from now
  const unixMs = ms < 1e15 ? ms : Math.ceil(ms / 1_000); // Unix time, in seconds or in milliseconds
  return unixMs - referenceTime(headers, wallMs);
}

/** Reads `120`, `007` or `1.5` as milliseconds, rounded up: waiting this long is always enough. */
function parseSeconds(text: string): number | undefined {
  // 1.1 * 1000 is 1100.0000000000002, so the thousandths are cut out of the text.
  const [, whole, thousandths = "", rest = ""] = /^(\d+)(?:\.(\d{1,3})(\d*))?$/.exec(text) ?? [];
  if (!whole) return undefined;
  // Beyond 9 * 10^12 a product with 1,000 is not exact any more, and longer than every wait that counts.
  return Math.min(Number(whole), 9e12) * 1_000 + Number(thousandths.padEnd(3, "0")) + Number(/[1-9]/.test(rest));
}

/** The time that dates of this response are compared with: its own clock if that is known, else ours. */
function referenceTime(headers: ResponseHeaders, wallMs: number): number {
  const dates = lines(headers, "date");
  const fresh = dates.length === 1 && lines(headers, "age").length === 0; // with `Age`, a cache kept the response
  return (fresh ? parseHttpDate(trimmed(dates[0]!)) : undefined) ?? wallMs;
}
