/**
 * `fetch` that retries as the server asks.
 *
 * Read `fetch.ts` (the options), `call.ts` (one call), `decide.ts` (the decision), then `gate.ts` and `lane.ts` (pacing).
 */
export type { Body, BodyFactory } from "./body.js";
export { Budget, type BudgetOptions } from "./budget.js";
export type { Summary } from "./call.js";
export type { Clock } from "./clock.js";
export { DeadlineError } from "./deadline-error.js";
export {
  type BodyKind,
  type Cause,
  type Decision,
  decide,
  type Facts,
  type Failure,
  type Repeat,
  type RequestFacts,
  type RetryDecision,
  type ReturnDecision,
  type Why,
} from "./decide.js";
export type { FailedEvent, QueuedEvent, RetryEvent, ReturnedEvent, SendingEvent, WaitingEvent } from "./events.js";
export { type RetryFetch, type RetryOptions, withRetry } from "./fetch.js";
export { Gate } from "./gate.js";
export type { HeaderList, ResponseHeaders } from "./headers.js";
export { type Entry, Lane, type Throttle } from "./lane.js";
export type { FetchInput, RetryInit } from "./outgoing.js";
export { type Backoff, defaultPolicy, type Policy } from "./policy.js";
export type { Target } from "./target.js";
