/** For tests: a clock that stands still until a test moves it. Nothing global is patched. */
import type { Clock } from "./clock.js";

interface Timer {
  readonly at: number;
  readonly wake: () => void;
}

export class FakeClock implements Clock {
  /** The longest timer that was ever asked for. */
  longestTimerMs = 0;
  #now = 0;
  #wall: number;
  readonly #timers = new Set<Timer>();

  constructor(wallMs = Date.UTC(2026, 10, 15, 12)) {
    this.#wall = wallMs;
  }

  now(): number {
    return this.#now;
  }

  wall(): number {
    return this.#wall;
  }

  startTimer(ms: number, wake: () => void): () => void {
    this.longestTimerMs = Math.max(this.longestTimerMs, ms);
    const timer = { at: this.#now + ms, wake };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Timers that have not fired. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves the time by `ms`. Fires the timers that become due, in order, and lets promises settle after each. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settlePromises();
    for (let timer = this.#due(end); timer; timer = this.#due(end)) {
      this.#move(timer.at - this.#now);
      await this.#fire(timer);
    }
    this.#move(end - this.#now);
  }

  /** Moves the time by `ms` at once, as when a computer sleeps: timers in between fire late, at the end. */
  async skip(ms: number): Promise<void> {
    this.#move(ms);
    await settlePromises();
    for (let timer = this.#due(this.#now); timer; timer = this.#due(this.#now)) await this.#fire(timer);
  }

  /** Sets the wall clock forward, or back, without time passing. */
  jumpWall(ms: number): void {
    this.#wall += ms;
  }

  #due(end: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at <= end && (!first || timer.at < first.at)) first = timer;
    }
    return first;
  }

  #move(ms: number): void {
    if (ms <= 0) return;
    this.#now += ms;
    this.#wall += ms;
  }

  async #fire(timer: Timer): Promise<void> {
    this.#timers.delete(timer);
    timer.wake();
    await settlePromises();
  }
}

/** Lets promises settle that need no I/O. A call takes about ten steps from a timer to its next send. */
async function settlePromises(): Promise<void> {
  for (let step = 0; step < 100; step++) await undefined;
}
