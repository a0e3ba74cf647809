/** `withRetry`: wraps `fetch`. */
import { Budget } from "./budget.js";
import { call, type Settings, type Summary } from "./call.js";
import { type Clock, systemClock } from "./clock.js";
import type { RetryEvent } from "./events.js";
import { Gate } from "./gate.js";
import type { FetchInput, RetryInit } from "./outgoing.js";
import { completePolicy, type Policy } from "./policy.js";
import type { Target } from "./target.js";

export interface RetryOptions extends Partial<Policy> {
  /** Paces calls after a throttle. Share one between wrappers that call the same servers. `false`: no pacing. */
  readonly gate?: Gate | false;
  /** Bounds how much load retries add. `false`: no bound. */
  readonly budget?: Budget | false;
  /** Separates callers that have quotas of their own at the same origin, such as tenants. Default: none. */
  readonly partition?: string | ((target: Target) => string);
  /** Reports what calls do. An exception in it is ignored. */
  readonly on?: (event: RetryEvent) => void;
  /** Sends `Ratewright-Attempt: n` with retries. Default: on Node only, elsewhere it would cause CORS preflights. */
  readonly attemptHeader?: boolean;
  /** The time; tests give a `FakeClock`. */
  readonly clock?: Clock;
  /** Random numbers in [0, 1). Default: `Math.random`. */
  readonly random?: () => number;
}

/** Has the signature of `fetch`. */
export interface RetryFetch {
  (input: FetchInput, init?: RetryInit): Promise<Response>;
  /** How the call went that returned this response, or rejected with this error. */
  summary(result: object): Summary | undefined;
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
  const given = typeof first === "function" ? first : undefined;
  const settings = settingsOf(given, (given ? second : (first ?? second)) as RetryOptions | undefined);
  const api = (input: FetchInput, init?: RetryInit) => call(settings, input, init);
  return Object.assign(api, { summary: (result: object) => settings.summaries.get(result) });
}

function settingsOf(fetch: Fetch | undefined, options: RetryOptions = {}): Settings {
  const { gate, budget, partition = "" } = options;
  return {
    fetch: fetch ?? ((input, init) => globalThis.fetch(input, init)),
    policy: completePolicy(options),
    gate: gate === false ? undefined : (gate ?? new Gate()),
    budget: budget === false ? undefined : (budget ?? new Budget()),
    partition: typeof partition === "string" ? () => partition : partition,
    clock: options.clock ?? systemClock(),
    random: options.random ?? Math.random,
    attemptHeader: options.attemptHeader ?? isNode(),
    on: options.on,
    summaries: new WeakMap(),
  };
}

function isNode(): boolean {
  const { process, window, document } = globalThis as unknown as Record<string, { versions?: { node?: string } }>;
  return Boolean(process?.versions?.node) && !window && !document;
}
