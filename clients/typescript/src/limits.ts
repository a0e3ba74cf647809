/**
 * The limits that a response names: `RateLimit: "login";r=0;t=6` and `RateLimit-Policy: "login";q=10;w=60`.
 *
 * Both are lists of structured fields (RFC 9651). One malformed item makes the whole header malformed, as the RFC
 * demands: half of a header could name the wrong limit. `RateLimit` has an older form, which names no limit: the
 * dictionary `limit=10, remaining=0, reset=6`.
 */
import type { HeaderReader } from "./headers.js";

/** Where a limit stands: `r` requests remain, more after `t` seconds. The name is quoted, or "" if there is none. */
export interface ServiceLimit {
  readonly name: string;
  readonly remaining: number;
  readonly afterSeconds: number | undefined;
}

/** An item of a list (`"name";key=value`), or with "" as its name, all of a dictionary (`key=value`). */
interface Member {
  readonly name: string;
  readonly parameters: Record<string, string>;
}

const string = /"(?:[ !#-[\]-~]|\\["\\])*"/.source;
const number = /-?(?:\d{1,12}\.\d{1,3}|\d{1,15})/.source;
const other = /:[A-Za-z0-9+/=]*:|\?[01]|[A-Za-z*][\w!#$%&'*+.^`|~:/-]*/.source;
const pair = `([a-z*][a-z0-9_.*-]*)(?:=(${number}|${string}|${other}))?`;
const member = new RegExp(` *(?:(${string})|(${pair}))((?:; *${pair})*)[ \\t]*(?:,[ \\t]*(?!$)|$)`, "y");
const parameter = new RegExp(pair, "g");

/** The limits of `RateLimit`; none if it is absent or malformed. */
export function parseServiceLimits(headers: HeaderReader): ServiceLimit[] {
  const limits = parseMembers(headers, "ratelimit").map(({ name, parameters }) => {
    const { r, a, t, w, remaining, reset } = parameters;
    return {
      name,
      remaining: count(name ? (r ?? a) : remaining)!,
      afterSeconds: count(name ? (t ?? w) : reset),
    };
  });
  return limits.every(({ remaining, afterSeconds = 0 }) => remaining >= 0 && afterSeconds >= 0) ? limits : [];
}

/** The limit that a response is closest to: the smallest `r`, then the largest `t`, then the first. */
export function tightestLimit(headers: HeaderReader): ServiceLimit | undefined {
  return parseServiceLimits(headers).sort(
    (one, other) => one.remaining - other.remaining || (other.afterSeconds ?? 0) - (one.afterSeconds ?? 0),
  )[0];
}

/** The quota and the window in seconds of the limit with this name in `RateLimit-Policy`; not above 0 if there are none. */
export function parseLimitPolicy(headers: HeaderReader, name: string): [quota: number, seconds: number] {
  const found = parseMembers(headers, "ratelimit-policy").find((member) => member.name === name);
  const { q, w, qu = '"requests"' } = found?.parameters ?? {};
  return [qu === '"requests"' ? count(q)! : 0, count(w)!];
}

/** The members of a list or dictionary; none if one of them is malformed. */
function parseMembers(headers: HeaderReader, header: string): Member[] {
  const text = headers.get(header) ?? "";
  const line = text.length > 8_192 ? "" : text;
  const isList = /^ *"/.test(line);
  const dictionary: Member["parameters"] = {};
  const found: Member[] = [];
  member.lastIndex = 0;
  while (member.lastIndex < line.length) {
    const [, name, entry, , , rest] = member.exec(line) ?? [];
    const pairs = isList ? name && rest : entry;
    if (pairs === undefined) return [];
    const parameters: Member["parameters"] = isList ? {} : dictionary;
    pairs.replace(parameter, (_, key, given = "?1") => (parameters[key] = given));
    found.push({ name: name ?? "", parameters });
  }
  return found;
}

/** A count; NaN if the value is something else, undefined if it is absent. */
function count(given: string | undefined): number | undefined {
  return given === undefined ? given : Number(/^\d+$/.test(given) ? given : NaN);
}
