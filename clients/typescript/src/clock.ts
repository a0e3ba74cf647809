/**
 * Clocks and waits.
 *
 * Three things go wrong with plain timers: `setTimeout(2**31)` fires at once, a tab in the background wakes late, and
 * React Native on Android warns above a minute. So a wait is cut into slices of at most 30 s, and each wake reads the
 * clock again. Waits use monotonic time; the wall clock is only compared with dates that servers send.
 */

export interface Clock {
  /** Monotonic time in milliseconds, from any start. */
  now(): number;
  /** Unix time in milliseconds. */
  wall(): number;
  /** Calls `wake` once after about `ms` milliseconds, at most 30,000. Returns a function that cancels it. */
  startTimer(ms: number, wake: () => void): () => void;
}

/** How long a call may wait, and who can end it. */
export interface Patience {
  readonly clock: Clock;
  readonly deadline: number;
  readonly signal: AbortSignal | null | undefined;
}

const sliceMaxMs = 30_000;

let latest = 0;

/** The platform's clock. Without `performance`, `Date.now()` is kept from going back. */
export const systemClock: Clock = {
  now: () => (latest = Math.max(latest, (globalThis.performance ?? Date).now())),
  wall: () => Date.now(),
  startTimer: (ms, wake) => {
    const timer = setTimeout(wake, ms);
    return () => clearTimeout(timer);
  },
};

/** Calls `wake` once `clock.now()` has reached `time`: never earlier, later if the platform is late. */
export function wakeAt(clock: Clock, time: number, wake: () => void): () => void {
  let cancel: () => void;
  const startSlice = () => {
    const left = Math.max(0, Math.ceil(time - clock.now()));
    cancel = clock.startTimer(Math.min(left, sliceMaxMs), () => (clock.now() < time ? startSlice() : wake()));
  };
  startSlice();
  return () => cancel();
}

/**
 * Waits until the deadline, and resolves to false; or until `wake` is called, and resolves to true. Rejects at once,
 * with the signal's reason, if the signal aborts. `cleanUp` is called in each case.
 */
export function wait(
  { clock, deadline, signal }: Patience,
  begin?: (wake: () => void) => void,
  cleanUp?: () => unknown,
): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const end = (isWoken: boolean) => {
      cancel();
      signal?.removeEventListener("abort", abort);
      cleanUp?.();
      resolve(isWoken);
    };
    const abort = () => {
      reject(abortReason(signal!));
      end(false);
    };
    const cancel = wakeAt(clock, deadline, () => end(false));
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    else begin?.(() => end(true));
  });
}

/** The reason of an aborted signal. Older React Native has none. */
export function abortReason(signal: AbortSignal): unknown {
  return signal.reason ?? Object.assign(new Error("request aborted"), { name: "AbortError" });
}
