/**
 * The queue of one lane: calls wait here in the order in which they came. One timer serves them all, so a thousand
 * waiting calls are not a thousand timers that fire together.
 */
import { abortReason, type Cancel, type Clock, onAbort, wakeAt } from "./clock.js";
import { Lane } from "./lane.js";

/** What a queue has to know of a call. */
export interface Entrant {
  readonly clock: Clock;
  /** No send starts later than this. */
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
}

interface Waiter extends Entrant {
  go(): void;
  expire(): void;
}

export class LaneQueue {
  readonly lane = new Lane();
  /** Retries that wait for their own time, and come here next. */
  asleep = 0;
  /** The last `RateLimit-Policy` that the lane has learned from. */
  policyText: string | null = null;

  readonly #waiters = new Set<Waiter>();
  #cancelTimer: Cancel | undefined;

  get waiting(): number {
    return this.#waiters.size;
  }

  /**
   * Enters the lane: undefined if the call may be sent now, else a promise for that time. It rejects at once if the
   * signal aborts, and resolves to false if the deadline came first.
   */
  enter(call: Entrant): Promise<boolean> | undefined {
    if (this.waiting === 0 && this.lane.enter(call.clock.now()) === "go") return undefined;
    if (this.lane.opensAt() > call.deadline) {
      this.lane.inFlight += 1; // The server's answer tells more than we could.
      return undefined;
    }
    return new Promise((resolve, reject) => {
      if (call.signal?.aborted) return reject(abortReason(call.signal));
      const leave = () => {
        this.#waiters.delete(waiter);
        ignoreAbort();
        cancelDeadline();
        if (this.waiting === 0) this.#stopTimer();
      };
      const waiter: Waiter = {
        ...call,
        go: () => {
          leave();
          resolve(true);
        },
        expire: () => {
          leave();
          resolve(false);
        },
      };
      const ignoreAbort = onAbort(call.signal, () => {
        leave();
        reject(abortReason(call.signal!));
      });
      const cancelDeadline = wakeAt(call.clock, call.deadline, waiter.expire);
      this.#waiters.add(waiter);
      if (this.waiting === 1) this.release();
    });
  }

  /** A send ended without a response, or was cancelled. */
  failed(): void {
    this.lane.failed();
    this.release();
  }

  /** Lets go as many calls as the lane allows now, and sets the timer for the next. */
  release(): void {
    this.#stopTimer();
    for (const waiter of this.#waiters) {
      const now = waiter.clock.now();
      if (now > waiter.deadline) {
        waiter.expire(); // A late timer: a tab in the background, a computer that slept.
        continue;
      }
      const entry = this.lane.enter(now, this.waiting > 1);
      if (entry === "go") {
        waiter.go();
        continue;
      }
      if (entry !== "full") this.#cancelTimer = wakeAt(waiter.clock, entry.until, () => this.release());
      return;
    }
  }

  #stopTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }
}
