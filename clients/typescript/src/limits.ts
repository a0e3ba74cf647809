/**
 * The limits that a response names: `RateLimit: "login";r=0;t=6` and `RateLimit-Policy: "login";q=10;w=60`.
 *
 * Both are lists of structured fields (RFC 9651). One malformed item makes the whole header malformed, as the RFC
 * demands: half of a header could name the wrong limit.
 */
import { joined, type ResponseHeaders } from "./headers.js";

/** Where a limit stands: `r` requests remain, more after `t` seconds. */
export interface ServiceLimit {
  readonly name: string;
  readonly remaining: number;
  readonly afterSeconds: number | undefined;
}

/** What a limit allows: `q` requests in a window of `w` seconds. */
export interface LimitPolicy {
  readonly quota: number;
  readonly windowSeconds: number;
}

type Parameters = Record<string, string>;

const bytesMax = 8_192;

const string = String.raw`"(?:[ !#-\[\]-~]|\\["\\])*"`;
const key = String.raw`[a-z*][a-z0-9_.*-]*`;
const token = String.raw`[A-Za-z*][!#$%&'*+.^_${"`"}|~0-9A-Za-z:/-]*`;
const value = String.raw`(?:-?\d{1,12}\.\d{1,3}|-?\d{1,15}|${string}|:[A-Za-z0-9+/=]*:|\?[01]|${token})`;
const parameters = String.raw`((?:; *${key}(?:=${value})?)*)`;
const end = String.raw`[ \t]*(?:,[ \t]*(?!$)|$)`;

const listItem = new RegExp(`(${string})${parameters}${end}`, "y");
const dictionaryEntry = new RegExp(`(${key}(?:=${value})?)${parameters}${end}`, "y");
const parameter = new RegExp(`; *(${key})(?:=(${value}))?`, "g");

/** The limits of `RateLimit`, or undefined if it is absent or malformed. */
export function parseServiceLimits(headers: ResponseHeaders): ServiceLimit[] | undefined {
  const limits: ServiceLimit[] = [];
  for (const [name, own] of members(listItem, joined(headers, "ratelimit", bytesMax))) {
    const remaining = count(own.r ?? own.a);
    const afterSeconds = count(own.t ?? own.w);
    if (remaining === undefined || remaining < 0 || afterSeconds! < 0) return undefined;
    limits.push({ name, remaining, afterSeconds });
  }
  return limits.length > 0 ? limits : undefined;
}

/** The older form of `RateLimit`: `limit=10, remaining=0, reset=5`, as a limit without a name. */
export function parseLimitDictionary(headers: ResponseHeaders): ServiceLimit | undefined {
  const found: Parameters = {};
  for (const [entry] of members(dictionaryEntry, joined(headers, "ratelimit", bytesMax))) {
    const [name, ...rest] = entry.split("=");
    found[name!] = rest.join("=");
  }
  const remaining = count(found.remaining);
  const afterSeconds = count(found.reset);
  return remaining! >= 0 && afterSeconds! >= 0 ? { name: "", remaining: remaining!, afterSeconds } : undefined;
}

/** The limit that a response is closest to: the smallest `r`, then the largest `t`, then the first. */
export function tightestLimit(limits: ServiceLimit[]): ServiceLimit {
  return limits.reduce((best, limit) => {
    const tighter = best.remaining - limit.remaining || (limit.afterSeconds ?? 0) - (best.afterSeconds ?? 0);
    return tighter > 0 ? limit : best;
  });
}

/** The policy with this name in `RateLimit-Policy`, if it counts requests. */
export function parseLimitPolicy(text: string, name: string): LimitPolicy | undefined {
  let policy: LimitPolicy | undefined;
  for (const [other, own] of members(listItem, text.length <= bytesMax ? text : undefined)) {
    const quota = count(own.q);
    const windowSeconds = count(own.w);
    const countsRequests = own.qu === undefined || own.qu === '"requests"';
    if (other === name && countsRequests && quota! > 0 && windowSeconds! > 0) {
      policy ??= { quota: quota!, windowSeconds: windowSeconds! };
    }
  }
  return policy;
}

/** The members of a list or dictionary; none if one of them is malformed. */
function members(pattern: RegExp, header: string | undefined): [name: string, parameters: Parameters][] {
  const text = (header ?? "").replace(/^ +| +$/g, "");
  const found: [string, Parameters][] = [];
  pattern.lastIndex = 0;
  while (pattern.lastIndex < text.length) {
    const match = pattern.exec(text);
    if (!match) return [];
    const own: Parameters = Object.create(null);
    for (const [, name, given] of match[2]!.matchAll(parameter)) own[name!] = given ?? "?1";
    found.push([match[1]!, own]);
  }
  return found;
}

/** A count; -1 if the value is none, undefined if it is absent. */
function count(given: string | undefined): number | undefined {
  if (given === undefined) return undefined;
  return /^\d+$/.test(given) ? Number(given) : -1;
}
