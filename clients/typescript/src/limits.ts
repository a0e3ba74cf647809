/**
 * The limits that a response names: `RateLimit: "login";r=0;t=6` and `RateLimit-Policy: "login";q=10;w=60`.
 *
 * Both are lists of structured fields (RFC 9651). One malformed item makes the whole header malformed, as the RFC
 * demands: half of a header could name the wrong limit. `RateLimit` has an older form, which names no limit: the
 * dictionary `limit=10, remaining=0, reset=6`.
 */
import type { HeaderReader } from "./headers.js";

/** Where a limit stands: `r` requests remain, more after `t` seconds. The name is quoted; a dictionary has none. */
export type ServiceLimit = [name: string | undefined, remaining: number, afterSeconds: number | undefined];

type Pairs = Record<string, string>;

/** An item of a list (`"name";key=value`), or without a name, all of a dictionary (`key=value`). */
type Member = [name: string | undefined, parameters: Pairs];

const string = /"(?:[ !#-[\]-~]|\\["\\])*"/.source;
const number = /-?(?:\d{1,12}\.\d{1,3}|\d{1,15})/.source;
const other = /:[A-Za-z0-9+/=]*:|\?[01]|[A-Za-z*][\w!#$%&'*+.^`|~:/-]*/.source;
const pair = `([a-z*][a-z0-9_.*-]*)(?:=(${number}|${string}|${other}))?`;
const member = new RegExp(` *(?:(${string})|(${pair}))((?:; *${pair})*)[ \\t]*(?:,[ \\t]*(?!$)|$)`, "y");
const parameter = new RegExp(pair, "g");

/** The limits of `RateLimit`; none if it is absent or malformed. */
export function parseServiceLimits(headers: HeaderReader): ServiceLimit[] {
  const limits = parseMembers(headers, "ratelimit").map(([name, { r, a, t, w, remaining, reset }]): ServiceLimit => {
    return [name, count(name ? (r ?? a) : remaining)!, count(name ? (t ?? w) : reset)];
  });
  return limits.every(([, remaining, afterSeconds = 0]) => remaining + afterSeconds >= 0) ? limits : [];
}

/** The name of the limit that a response is closest to: the smallest `r`, then the largest `t`, then the first. */
export function tightestLimit(headers: HeaderReader): string | undefined {
  const limits = parseServiceLimits(headers).sort(([, r, t = 0], [, otherR, otherT = 0]) => r - otherR || otherT - t);
  return limits[0]?.[0];
}

/** The quota and the window in seconds of the limit with this name in `RateLimit-Policy`; not above 0 if there are none. */
export function parseLimitPolicy(headers: HeaderReader, name: string): [quota: number, seconds: number] {
  const found = parseMembers(headers, "ratelimit-policy").find(([other]) => other === name);
  const { q, w, qu = '"requests"' } = found?.[1] ?? {};
  return [qu === '"requests"' ? count(q)! : 0, count(w)!];
}

/** The members of a list or dictionary; none if one of them is malformed. */
function parseMembers(headers: HeaderReader, header: string): Member[] {
  const line = headers.get(header) ?? "";
  if (line.length > 8_192) return [];
  const isList = /^ *"/.test(line);
  const dictionary: Pairs = {};
  const found: Member[] = [];
  member.lastIndex = 0;
  while (member.lastIndex < line.length) {
    const [, name, entry, , , rest] = member.exec(line) ?? [];
    const pairs = isList ? name && rest : entry;
    if (pairs === undefined) return [];
    const parameters: Pairs = isList ? {} : dictionary;
    pairs.replace(parameter, (_, key, given = "?1") => (parameters[key] = given));
    found.push([name, parameters]);
  }
  return found;
}

/** A count; NaN if the value is something else, undefined if it is absent. */
function count(given: string | undefined): number | undefined {
  return given === undefined ? given : Number(/^\d+$/.test(given) ? given : NaN);
}
