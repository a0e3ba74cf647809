/**
 * The retry budget: how many retries an origin may still cost.
 *
 * It starts full at 50 retries. A response that needs no retry earns a tenth of one, so in a long outage retries add
 * at most 10 % to the load. It is counted in thousandths, so nothing is ever rounded. Retries after a 429 are free:
 * the server asked for them.
 */
import { completeOptions } from "./options.js";
import { remember } from "./remember.js";

export interface BudgetOptions {
  /** The most retries that can be saved up. Default 50. */
  readonly retriesMax?: number;
  /** How many retries a response that needs none earns. Default 0.1. */
  readonly perSuccess?: number;
}

/** One level for each origin. Share a budget between wrappers that call the same servers. */
export class Budget {
  readonly #full: number;
  readonly #earned: number;
  readonly #levels = new Map<string, number>();

  constructor(options?: BudgetOptions) {
    const { retriesMax, perSuccess } = completeOptions({ retriesMax: 50, perSuccess: 0.1 }, options);
    this.#full = Math.floor(retriesMax * 1_000);
    this.#earned = Math.floor(perSuccess * 1_000);
  }

  /** What is left, in thousandths of a retry. */
  level(key: string): number {
    return this.#levels.get(key) ?? this.#full;
  }

  /** Takes `cost` thousandths if they are there. A full budget is not stored. */
  take(key: string, cost: number): boolean {
    const level = this.level(key);
    const left = Math.min(level - cost, this.#full);
    if (left >= 0 && left !== level) remember(this.#levels, key, left, (old) => this.#full - old);
    return left >= 0;
  }

  /** Adds what a response that needs no retry earns. */
  earn(key: string): void {
    this.take(key, -this.#earned);
  }
}
