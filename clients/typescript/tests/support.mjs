// What the tests share: a scripted fetch, and a call that runs on a FakeClock.
import { withRetry } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";

export const url = "https://api.example/items";

/** A response made of a status and headers. */
export function answer(status = 200, headers = {}, body = "") {
  return new Response(status === 204 ? null : body, { status, headers });
}

/**
 * A fetch that gives the scripted answers in order, the last one for ever. An answer is a Response, an Error, or a
 * function of (input, init, clock) that returns one. Notes when each send started.
 */
export function scripted(clock, ...script) {
  const sends = [];
  const fetch = async (input, init) => {
    sends.push({ at: clock.now(), input, init });
    let next = script[Math.min(sends.length, script.length) - 1];
    if (typeof next === "function") next = await next(input, init, clock);
    if (next instanceof Error) throw next;
    return sends.length >= script.length ? next.clone() : next;
  };
  return Object.assign(fetch, { sends });
}

/** Runs one call to its end, moving the clock. Returns what happened. */
export async function run(script, { input = url, init, options = {}, advanceMs = 120_000 } = {}) {
  const clock = options.clock ?? new FakeClock();
  const fetch = scripted(clock, ...[script].flat());
  const events = [];
  const api = withRetry(fetch, { clock, random: () => 0.5, on: (event) => events.push(event), ...options });
  const outcome = watch(api(input, init), clock);
  await clock.advance(advanceMs);
  return {
    clock,
    api,
    events,
    sends: fetch.sends,
    times: fetch.sends.map((send) => send.at),
    outcome,
    ...outcome,
    summary: api.summary(outcome.response ?? outcome.error),
    waits: events.filter((event) => event.type === "waiting"),
  };
}

/** Notes how a promise settles, and when. */
export function watch(promise, clock) {
  const outcome = { settled: false };
  promise.then(
    (response) => Object.assign(outcome, { settled: true, response, endedAt: clock.now() }),
    (error) => Object.assign(outcome, { settled: true, error, endedAt: clock.now() }),
  );
  return outcome;
}

/** A network error as Node's fetch reports it. */
export function networkError(code, extra = {}) {
  return new TypeError("fetch failed", { cause: Object.assign(new Error(code), { code, ...extra }) });
}

/** Numbers in [0, 1) that are the same in every run (mulberry32). */
export function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
