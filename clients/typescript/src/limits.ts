/**
 * The limits that a response names: `RateLimit: "login";r=0;t=6` and `RateLimit-Policy: "login";q=10;w=60`.
 *
 * Both are lists of structured fields (RFC 9651). One malformed item makes the whole header malformed, as the RFC
 * demands: half of a header could name the wrong limit. `RateLimit` has an older form, which names no limit: the
 * dictionary `limit=10, remaining=0, reset=6`.
 */
import { joined, type ResponseHeaders } from "./headers.js";

/** Where a limit stands: `r` requests remain, more after `t` seconds. The name is quoted, or "" if there is none. */
export interface ServiceLimit {
  readonly name: string;
  readonly remaining: number;
  readonly afterSeconds: number | undefined;
}

/** A member of a list (`"name";key=value`) or of a dictionary (`name=value`), as it was written. */
interface Member {
  readonly text: string;
  readonly parameters: Record<string, string>;
}

const string = /"(?:[ !#-[\]-~]|\\["\\])*"/.source;
const key = /[a-z*][a-z0-9_.*-]*/.source;
const number = /-?\d{1,12}\.\d{1,3}|-?\d{1,15}/.source;
const other = /:[A-Za-z0-9+/=]*:|\?[01]|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*/.source;
const value = `(?:${number}|${string}|${other})`;
const pair = `(${key})(?:=(${value}))?`;
const member = new RegExp(`(${string}|${pair})((?:; *${pair})*)[ \\t]*(?:,[ \\t]*(?!$)|$)`, "y");
const parameter = new RegExp(pair, "g");

/** The limits of `RateLimit`; none if it is absent or malformed. */
export function parseServiceLimits(headers: ResponseHeaders): ServiceLimit[] {
  const members = parseMembers(joined(headers, "ratelimit", 8_192));
  const isList = members.every(({ text }) => text.startsWith('"'));
  const items = isList ? members : parseDictionary(members);
  const limits = items.map(({ text, parameters: { r, a, t, w } }) => ({
    name: isList ? text : "",
    remaining: count(r ?? a) ?? -1,
    afterSeconds: count(t ?? w),
  }));
  return limits.some((limit) => limit.remaining < 0 || limit.afterSeconds! < 0) ? [] : limits;
}

/** The limit that a response is closest to: the smallest `r`, then the largest `t`, then the first. */
export function tightestLimit(limits: ServiceLimit[]): ServiceLimit | undefined {
  let best = limits[0];
  for (const limit of limits) {
    const tighter = best!.remaining - limit.remaining || (limit.afterSeconds ?? 0) - (best!.afterSeconds ?? 0);
    if (tighter > 0) best = limit;
  }
  return best;
}

/** The quota and the window in seconds of the limit with this name in `RateLimit-Policy`, if it counts requests. */
export function parseLimitPolicy(headers: ResponseHeaders, name: string): [quota: number, seconds: number] | undefined {
  const found = parseMembers(joined(headers, "ratelimit-policy", 8_192)).find(({ text }) => text === name);
  const { q, w, qu = '"requests"' } = found?.parameters ?? {};
  const quota = count(q)!;
  const seconds = count(w)!;
  return quota > 0 && seconds > 0 && qu === '"requests"' ? [quota, seconds] : undefined;
}

/** The older dictionary, as one item of the newer list. */
function parseDictionary(members: Member[]): Member[] {
  const entries = new Map(members.map(({ text }) => text.split("=", 2) as [string, string]));
  const parameters = { r: entries.get("remaining") ?? "", t: entries.get("reset") ?? "" };
  return [{ text: "", parameters }];
}

/** The members of a list or dictionary; none if one of them is malformed. */
function parseMembers(header = ""): Member[] {
  const line = header.replace(/^ +| +$/g, "");
  const found: Member[] = [];
  member.lastIndex = 0;
  while (member.lastIndex < line.length) {
    const [, text, , , rest] = member.exec(line) ?? [];
    if (text === undefined) return [];
    const parameters: Member["parameters"] = {};
    rest!.replace(parameter, (_, name, given = "?1") => (parameters[name] = given));
    found.push({ text, parameters });
  }
  return found;
}

/** A count; -1 if the value is something else, undefined if it is absent. */
function count(given: string | undefined): number | undefined {
  if (given === undefined) return undefined;
  return /^\d+$/.test(given) ? Number(given) : -1;
}
