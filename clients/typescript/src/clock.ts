/**
 * Clocks and timers.
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

export type Cancel = () => void;

const sliceMaxMs = 30_000;

/** The platform's clock. Without `performance`, `Date.now()` is kept from going back. */
export function systemClock(): Clock {
  let latest = 0;
  return {
    now: () => {
      if (typeof performance === "object") return performance.now();
      latest = Math.max(latest, Date.now());
      return latest;
    },
    wall: () => Date.now(),
    startTimer: (ms, wake) => {
      const timer = setTimeout(wake, ms);
      return () => clearTimeout(timer);
    },
  };
}

/** Calls `wake` once `clock.now()` has reached `time`: never earlier, later if the platform is late. */
export function wakeAt(clock: Clock, time: number, wake: () => void): Cancel {
  const left = time - clock.now();
  let cancel: Cancel;
  const check = () => {
    const rest = time - clock.now();
    if (rest > 0) cancel = clock.startTimer(Math.min(Math.ceil(rest), sliceMaxMs), check);
    else wake();
  };
  cancel = clock.startTimer(Math.min(Math.max(Math.ceil(left), 0), sliceMaxMs), check);
  return () => cancel();
}

/** Calls `stop` when the signal aborts. Returns a function that stops listening. */
export function onAbort(signal: AbortSignal | undefined, stop: () => void): Cancel {
  if (!signal) return () => {};
  signal.addEventListener("abort", stop);
  return () => signal.removeEventListener("abort", stop);
}

/** The reason of an aborted signal. Older React Native has none. */
export function abortReason(signal: AbortSignal): unknown {
  return signal.reason ?? Object.assign(new Error("request aborted"), { name: "AbortError" });
}

/** Waits until `time`. Rejects at once, with the signal's reason, if the signal aborts. */
export function sleepUntil(clock: Clock, time: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(abortReason(signal));
    const cancel = wakeAt(clock, time, () => {
      ignore();
      resolve();
    });
    const ignore = onAbort(signal, () => {
      ignore();
      cancel();
      reject(abortReason(signal!));
    });
  });
}
