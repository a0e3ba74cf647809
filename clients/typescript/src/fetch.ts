/** `withRetry`: wraps `fetch`. */
import { Budget } from "./budget.js";
import { call, type Settings, type Summary } from "./call.js";
import { type Clock, systemClock } from "./clock.js";
import type { RetryEvent } from "./events.js";
import { Gate } from "./gate.js";
import { completeOptions } from "./options.js";
import type { FetchInput, RetryInit } from "./outgoing.js";
import { defaultPolicy, type Policy } from "./policy.js";
import type { Target } from "./target.js";

export interface RetryOptions extends Partial<Policy> {
  /** Paces calls after a throttle. Share one between wrappers that call the same servers. `false`: no pacing. */
  readonly gate?: Gate | false | undefined;
  /** Bounds how much load retries add. `false`: no bound. */
  readonly budget?: Budget | false | undefined;
  /** Separates callers that have quotas of their own at the same origin, such as tenants. Default: none. */
  readonly partition?: string | ((target: Target) => string) | undefined;
  /** Reports what calls do. An exception in it is ignored. */
  readonly on?: ((event: RetryEvent) => void) | undefined;
  /** Sends `Ratewright-Attempt: n` with retries. Default: on Node only, elsewhere it would cause CORS preflights. */
  readonly attemptHeader?: boolean | undefined;
  /** The time; tests give a `FakeClock`. */
  readonly clock?: Clock | undefined;
  /** Random numbers in [0, 1). Default: `Math.random`. */
  readonly random?: (() => number) | undefined;
}

/** Has the signature of `fetch`. */
export interface RetryFetch {
  (input: FetchInput, init?: RetryInit | null): Promise<Response>;
  /** How the call went that returned this response, or rejected with this error. */
  summary(result: unknown): Summary | undefined;
}

type Fetch = Settings["fetch"];

/**
 * Wraps `fetch` so that it retries as the server asks.
 *
 * Without a function it uses `globalThis.fetch`, looked up at each call.
 */
export function withRetry(options?: RetryOptions): RetryFetch;
export function withRetry(fetch: Fetch | undefined, options?: RetryOptions): RetryFetch;
export function withRetry(first?: Fetch | RetryOptions, second?: RetryOptions): RetryFetch {
  const { process, document } = globalThis as unknown as Record<string, { versions?: { node?: string } }>;
  const isFetch = typeof first === "function";
  const summaries = new WeakMap<object, Summary>();
  const defaults: Settings = {
    ...defaultPolicy,
    fetch: isFetch ? first : (input, init) => globalThis.fetch(input, init),
    gate: new Gate(),
    budget: new Budget(),
    partition: "",
    attemptHeader: !!process?.versions?.node && !document, // Node, and not a simulated page
    clock: systemClock,
    random: Math.random,
    summaries,
  };
  const settings = completeOptions(defaults, isFetch ? second : (first ?? second));
  return Object.assign((input: FetchInput, init?: RetryInit | null) => call(settings, input, init), {
    summary: (result: unknown) => summaries.get(result as object),
  });
}
