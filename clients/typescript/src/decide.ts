/**
 * The decision: what to do after an attempt. A pure function that reads no clock, waits for nothing and sends nothing.
 *
 * `clients/vectors/README.md` defines it, and the JSON files beside that page are its tests. The Rust client passes
 * the same files.
 *
 * # Laws
 * - A retry is never earlier than the server's wait, and never later than the deadline.
 * - A wait is never shortened to make it fit: the response is returned instead.
 * - A request that may have been processed is repeated only if that is safe.
 */
import { type HeaderReader, headerReader, type ResponseHeaders } from "./headers.js";
import { type HintCause, isFromLimiter, serverWait } from "./hints.js";
import type { Policy } from "./policy.js";

/** Whether a request may be repeated: `safe` may be processed twice, `unprocessed` only if it was not processed. */
export type Repeat = "auto" | "safe" | "unprocessed" | "never";

/** What is known of a request's body. A `stream` can be read once; a `factory` makes a new one each time. */
export type BodyKind = "none" | "factory" | "stream" | { readonly bytes: number };

/** Why no response came: `not-sent` if the request certainly did not reach the server. */
export type Failure = "not-sent" | "unknown";

/** Why a call ended. `done` means that the response calls for no retry. */
export type Why = "done" | "never" | "attempts" | "unsafe" | "body" | "server-wait" | "deadline" | "budget";

/** What a retry waits for. */
export type Cause = HintCause | "throttled" | "server-error" | "connection";

export interface RequestFacts {
  readonly method: string;
  readonly idempotencyKey?: boolean;
  readonly body?: BodyKind;
  readonly repeat?: Repeat | undefined;
}

export interface Facts {
  readonly request: RequestFacts;
  /** Sends so far, and what the origin's retry budget holds in thousandths of a retry. */
  readonly state: { readonly attempts: number; readonly budget: number };
  readonly seen:
    | { readonly status: number; readonly headers: ResponseHeaders; readonly redirected?: boolean }
    | { readonly failure: Failure };
  /** Monotonic time since the call began, and Unix time. */
  readonly now: { readonly elapsedMs: number; readonly wallMs: number };
}

/** The outcome of an attempt: the same facts as a call has them, with headers that can be read by name. */
export interface Outcome {
  readonly attempts: number;
  readonly budget: number;
  readonly response?: { readonly status: number; readonly headers: HeaderReader };
  readonly redirected?: boolean;
  readonly failure?: Failure;
  readonly elapsedMs: number;
  readonly wallMs: number;
}

export interface RetryDecision {
  readonly action: "retry";
  /** Milliseconds after the call began. */
  readonly atMs: number;
  readonly cause: Cause;
  /** What the retry takes from the budget, in thousandths of a retry. */
  readonly cost: number;
  /** The wait that the server asked for; 0 if there was no usable one. */
  readonly serverWaitMs: number;
}

export interface ReturnDecision {
  readonly action: "return";
  readonly why: Why;
  /** When the server is ready again, if it gave a usable wait. */
  readonly retryAtWallMs?: number | undefined;
  readonly serverWaitMs: number;
}

export type Decision = RetryDecision | ReturnDecision;

const idempotent = /^(GET|HEAD|OPTIONS|TRACE|PUT|DELETE|QUERY)$/i;
const retryable = /^(408|429|5..)$/;

/** Decides what to do after an attempt. `random` is in [0, 1). */
export function decide(policy: Policy, { request, state, seen, now }: Facts, random: number): Decision {
  const response = "status" in seen && { status: seen.status, headers: headerReader(seen.headers) };
  return decideAttempt(policy, request, { ...state, ...now, ...seen, ...(response && { response }) }, random);
}

/** As `decide`. It is apart from it so that a page does not load what only lists of header lines need. */
export function decideAttempt(
  policy: Policy,
  { method, idempotencyKey, body, repeat = "auto" }: RequestFacts,
  { attempts, budget, response, redirected, failure, elapsedMs, wallMs }: Outcome,
  random: number,
): Decision {
  const status = response?.status;
  const isDone = response && !retryable.test(String(status));
  const [serverWaitMs = 0, hintCause] = response && !isDone ? serverWait(response.headers, wallMs) : [];
  const retryAtWallMs = serverWaitMs ? wallMs + serverWaitMs : undefined;
  const giveUp = (why: Why): ReturnDecision => ({ action: "return", why, serverWaitMs, retryAtWallMs });
  if (isDone) return giveUp("done");

  const isLimited = status === 429 && policy.trust429 && !redirected && isFromLimiter(response!.headers);
  const isUnprocessed = failure === "not-sent" || isLimited;
  const isRepeatable = repeat === "safe" || (repeat === "auto" && (idempotent.test(method) || idempotencyKey));
  if (repeat === "never") return giveUp("never");
  if (attempts >= policy.attempts) return giveUp("attempts");
  if (!isUnprocessed && !isRepeatable) return giveUp("unsafe");
  if (typeof body === "object" ? body.bytes > policy.replayMax : body === "stream") return giveUp("body");
  if (serverWaitMs > policy.serverWaitMaxMs) return giveUp("server-wait");

  // The time of the retry.
  let cause: Cause = response ? "server-error" : "connection";
  let backoff = policy.failureBackoff;
  if (serverWaitMs) {
    cause = hintCause!;
    backoff = policy.spread;
  } else if (status === 429 || status === 503) {
    cause = "throttled";
    backoff = policy.throttleBackoff;
  }
  const ceiling = Math.min(backoff.maxMs, backoff.firstMs * 2 ** (attempts - 1));
  const low = cause === "throttled" ? Math.ceil(ceiling / 10) : 0; // From 0, some would return at once.
  const atMs = elapsedMs + serverWaitMs + low + Math.floor(random * (ceiling - low));
  if (atMs > policy.deadlineMs) return giveUp("deadline");
  const cost = status === 429 ? 0 : 1_000;
  if (budget < cost) return giveUp("budget");
  return { action: "retry", atMs, cause, cost, serverWaitMs };
}
