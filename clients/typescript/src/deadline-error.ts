/** The deadline passed before the call could be sent (again). No response is left to return. */
export class DeadlineError extends Error {
  override readonly name = "DeadlineError";
  /** Sends before the deadline; 0 if the request was never sent. */
  readonly attempts: number;
  /** When the limit opens, as far as is known. */
  readonly retryAt: Date | undefined;

  constructor(call: { method: string; url: string; attempts: number }, deadlineMs: number, retryAt: Date | undefined) {
    const target = `${call.method} ${call.url.replace(/[?#].*/s, "")}`;
    const when = retryAt ? `; try again at ${retryAt.toISOString()}` : "";
    super(`request not sent: rate limit still closed at the deadline of ${deadlineMs}ms (${target}, attempts ${call.attempts})${when}`);
    this.attempts = call.attempts;
    this.retryAt = retryAt;
  }
}
