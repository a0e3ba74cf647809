import type { Target } from "./target.js";

/** The deadline passed before the request could be sent (again). No response is left to return. */
export class DeadlineError extends Error {
  override readonly name = "DeadlineError";
  /** Sends before the deadline; 0 if the request was never sent. */
  declare readonly attempts: number;
  /** When the limit opens, as far as is known; the time of the error if it is open. */
  declare readonly retryAt: Date;

  constructor({ origin, shape }: Target, attempts: number, retryAt: Date) {
    super(`deadline passed before the send (${shape} at ${origin}); try again at ${retryAt.toISOString()}`);
    this.attempts = attempts;
    this.retryAt = retryAt;
  }
}
