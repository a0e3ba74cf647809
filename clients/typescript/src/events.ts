/** Events: what a call does, for logs and metrics. */
import type { Cause, Why } from "./decide.js";

interface CallEvent {
  readonly method: string;
  readonly url: string;
  /** Sends so far. */
  readonly attempts: number;
}

/** The gate holds a request back, because its limit is closed or others wait for it. */
export interface QueuedEvent extends CallEvent {
  readonly type: "queued";
  /** Calls that wait in the same lane, this one included. */
  readonly waiting: number;
}

/** A request is sent. `attempts` counts it. */
export interface SendingEvent extends CallEvent {
  readonly type: "sending";
}

/** An attempt failed, and another will follow. */
export interface WaitingEvent extends CallEvent {
  readonly type: "waiting";
  readonly cause: Cause;
  readonly waitMs: number;
  /** The response's status; absent if there was no response. */
  readonly status?: number | undefined;
}

/** The call ended with a response. */
export interface ReturnedEvent extends CallEvent {
  readonly type: "returned";
  readonly why: Why;
  readonly status: number;
  readonly retryAt?: Date | undefined;
}

/** The call ended with an error. */
export interface FailedEvent extends CallEvent {
  readonly type: "failed";
  readonly error: unknown;
  /** Why the failure was not retried; absent if the call was aborted or its arguments are invalid. */
  readonly why?: Why | undefined;
}

export type RetryEvent = QueuedEvent | SendingEvent | WaitingEvent | ReturnedEvent | FailedEvent;
