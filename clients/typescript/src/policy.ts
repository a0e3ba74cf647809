/** Policy: how often and how long a call may be retried. `clients/vectors/README.md` defines what each value does. */

/** A ceiling that starts at `firstMs` and doubles with each attempt, up to `maxMs`. */
export interface Backoff {
  readonly firstMs: number;
  readonly maxMs: number;
}

export interface Policy {
  /** The most sends for a call, the first included. */
  readonly attempts: number;
  /** No send starts later than this after the call began. */
  readonly deadlineMs: number;
  /** The longest wait that is accepted from a server. A longer one ends the call at once; it is never shortened. */
  readonly serverWaitMaxMs: number;
  /** The backoff after 408, 5xx and connection failures. */
  readonly failureBackoff: Backoff;
  /** The backoff after 429 and 503 without a usable wait. */
  readonly throttleBackoff: Backoff;
  /** What is added to a server's wait, so that clients denied together do not return together. */
  readonly spread: Backoff;
  /** The longest body, in bytes, that is kept to be sent again. */
  readonly replayMax: number;
  /** Treat a rate limiter's 429 as proof that the request was not processed. */
  readonly trust429: boolean;
}

export const defaultPolicy: Policy = {
  attempts: 4,
  deadlineMs: 30_000,
  serverWaitMaxMs: 60_000,
  failureBackoff: { firstMs: 100, maxMs: 5_000 },
  throttleBackoff: { firstMs: 1_000, maxMs: 10_000 },
  spread: { firstMs: 1_000, maxMs: 5_000 },
  replayMax: 65_536,
  trust429: true,
};
