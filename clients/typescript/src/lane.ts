/**
 * A lane: the pace at which calls meet one limit. It is a state machine driven by explicit times; it has no timer and
 * no queue.
 *
 *     free ──throttled──► closed until open_at ──► paced: one send each 1000/rate ms, 10 in flight at first
 *      ▲                        ▲                    │  │
 *      │                        └────throttled───────┘  │
 *      └── nobody waits, 10 s or a window after open_at ┘
 *
 * The pace starts at 70 % of what was just accepted and doubles each second until the limit is met. From then on it
 * moves around the limit: up by 5 % a second, down by 30 % at a throttle.
 *
 * # Laws
 * - Responses to requests that were sent before the last throttle do not slow the lane down again.
 * - After a pause, however long, at most 20 ms worth of sends are made up for.
 *
 * `clients/vectors/README.md` defines it, `gate.json` tests it.
 */

/** What `enter` says: go now, wait until a time, or wait until a send ends. */
export type Entry = "go" | "full" | { readonly until: number };

export interface Throttle {
  /** When the throttled request was sent. */
  readonly sentAt: number;
  /** The server's usable wait, or 0. */
  readonly hint: number;
  /** The time of this call's retry, or `now + hint` if it has none. */
  readonly retryAt: number;
}

export class Lane {
  pacing = false;
  inFlight = 0;
  /** Sends a second, while pacing. */
  rate = 1;
  /** When the first send is allowed; 0 unless pacing. */
  openAt = 0;

  #inFlightMax = 10;
  #ceiling = Infinity;
  #quiet = 10_000;
  /** What the pace grows by; 0 until the pace has met the limit, as long as it doubles. */
  #step = 0;
  #nextAt = 0;
  #grownAt = 0;
  #epochAt = 0;
  #slot = 0;
  #accepted = 0;
  #acceptedBefore = 0;

  /**
   * Learns the limit's policy: `quota` requests in `windowSeconds`. Servers round the window up to whole seconds, so
   * the real rate can be anything below quota / (window - 1), which is no bound if the window is 1. A policy of nothing is ignored.
   */
  learn(quota: number, windowSeconds: number): void {
    if (!(quota > 0 && windowSeconds >= 1)) return;
    this.#ceiling = quota / (windowSeconds - 1);
    this.#quiet = Math.max(10_000, 1_000 * windowSeconds);
  }

  /** Asks for a send. `othersWait`: other calls wait in this lane, so its pace must not end now. */
  enter(now: number, othersWait = false): Entry {
    if (now - this.openAt >= this.#quiet) {
      this.#step = 0; // The limit may have grown.
      if (this.inFlight === 0 && !othersWait) {
        this.pacing = false;
        this.openAt = this.#nextAt = 0;
      }
    }
    if (this.pacing) {
      if (now > this.#grownAt) {
        this.rate = this.#grown(Math.min(now - this.#grownAt, 1_000) / 1_000);
        this.#grownAt = now;
      }
      const until = this.opensAt();
      if (now < until) return { until };
      if (this.inFlight >= this.#inFlightMax) return "full";
      this.#nextAt = Math.max(this.#nextAt, now - 20) + 1_000 / this.rate;
    }
    this.inFlight += 1;
    return "go";
  }

  /** When the next send is allowed, as far as is known now. */
  opensAt(): number {
    return Math.max(this.openAt, this.#nextAt);
  }

  /** A response other than a throttle came. */
  accepted(now: number): void {
    this.inFlight -= 1;
    this.#inFlightMax += 1;
    this.#turn(now);
    this.#accepted += 1;
  }

  /** No response came, or the call was cancelled. */
  failed(): void {
    this.inFlight -= 1;
  }

  /** A 429 came, or a 503 with a usable wait. */
  throttled(now: number, { sentAt, hint, retryAt }: Throttle): void {
    this.inFlight -= 1;
    this.openAt = Math.max(this.openAt, now + hint);
    if (this.pacing && sentAt < this.#epochAt) return;
    this.#turn(now);
    this.#step = this.pacing ? this.rate : 0;
    const rate = this.#step || Math.max(this.#accepted, this.#acceptedBefore);
    this.rate = Math.min(Math.max(0.7 * rate, 1), this.#ceiling);
    this.openAt = this.#nextAt = this.#grownAt = Math.max(this.openAt, retryAt);
    this.#inFlightMax = 10;
    this.#epochAt = now;
    this.pacing = true;
  }

  /** The most sends that are possible from the lane's opening to `end`: an upper bound, at the pace of the end; none if 0 or less. */
  capacityUntil(end: number): number {
    if (!this.pacing) return Infinity;
    const seconds = (end - this.opensAt()) / 1_000;
    return 1 + Math.floor(seconds * this.#grown(seconds));
  }

  /** The pace after some seconds without a throttle. */
  #grown(seconds: number): number {
    const grown = this.#step ? this.rate + 0.05 * this.#step * seconds : this.rate * 2 ** seconds;
    return Math.min(grown, this.#ceiling);
  }

  /** Turns the counters of accepted responses to the second of `now`. */
  #turn(now: number): void {
    const passed = Math.floor(now / 1_000) - this.#slot;
    if (!passed) return;
    this.#acceptedBefore = passed === 1 ? this.#accepted : 0;
    this.#slot += passed;
    this.#accepted = 0;
  }
}
