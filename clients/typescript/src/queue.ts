/**
 * The queue of one lane: calls wait here in the order in which they came. One timer serves them all, so a thousand
 * waiting calls are not a thousand timers that fire together.
 */
import { type Patience, wait, wakeAt } from "./clock.js";
import { Lane } from "./lane.js";

export class LaneQueue extends Lane {
  /** Retries that wait for their own time, and come here next. */
  asleep = 0;
  /** True if a server has named the lane's limit. */
  isNamed = false;

  /** The calls that wait, each with the function that lets it go. */
  readonly #waiting = new Map<Patience, (isTurn: true) => void>();
  #cancelTimer: (() => void) | undefined;

  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Joins the queue: undefined if the call may be sent now, "closed" if it is sent although the lane is closed, else a
   * promise for its turn, which gives true; or undefined, if the deadline came first.
   */
  join(call: Patience): Promise<true | undefined> | "closed" | undefined {
    if (!this.waiting && this.enter(call.clock.now()) === "go") return undefined;
    if (this.opensAt() > call.deadline) {
      this.inFlight += 1; // The server's response says more than a local error would.
      return "closed";
    }
    const leave = () => {
      this.#waiting.delete(call);
      if (!this.waiting) this.#cancelTimer?.();
    };
    return wait(call, leave, (go) => {
      this.#waiting.set(call, go);
      if (this.waiting === 1) this.release();
    });
  }

  /** A send ended without a response, or was cancelled. */
  override failed(): void {
    super.failed();
    this.release();
  }

  /** Lets go as many calls as the lane allows now, and sets the timer for the next. */
  release(): void {
    this.#cancelTimer?.();
    for (const [{ clock, deadline }, go] of this.#waiting) {
      const now = clock.now();
      if (now > deadline) continue; // A late timer; the call's own one will end it.
      const entry = this.enter(now, this.waiting > 1);
      if (entry !== "go") {
        if (entry !== "full") this.#cancelTimer = wakeAt(clock, entry.until, () => this.release());
        return;
      }
      go(true);
    }
  }
}
