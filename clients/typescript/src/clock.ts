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
 * Waits until the deadline; or until `begin` resolves it, and gives that value. Rejects at once if `begin` fails, or
 * if the signal aborts, with the signal's reason. `cleanUp` is called in each case.
 */
export function wait<T>(
  { clock, deadline, signal }: Patience,
  cleanUp?: () => unknown,
  begin?: (resolve: (value: T) => void) => unknown,
): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const end = (value?: T) => {
      cancel();
      stopListening?.();
      cleanUp?.();
      resolve(value);
    };
    const fail = (reason: unknown) => {
      reject(reason);
      end();
    };
    const abort = () => fail(abortReason(signal!));
    const cancel = wakeAt(clock, deadline, () => end());
    const stopListening = signal && onAbort(signal, abort);
    if (signal?.aborted) abort();
    else (async () => begin?.(end))().catch(fail);
  });
}

/** What has to be called when a signal aborts, and the listener that does it. */
const listeners = new WeakMap<AbortSignal, [aborts: Set<() => void>, abortAll: () => void]>();

/** Calls `abort` when the signal aborts. All calls share one listener: Node warns if a signal has more than ten. */
function onAbort(signal: AbortSignal, abort: () => void): () => void {
  const known = new Set<() => void>();
  const [aborts, abortAll] = listeners.get(signal) ?? [known, () => known.forEach((each) => void each())];
  listeners.set(signal, [aborts, abortAll]);
  aborts.add(abort);
  signal.addEventListener("abort", abortAll); // No effect if it is there already.
  return () => {
    aborts.delete(abort);
    if (!aborts.size) signal.removeEventListener("abort", abortAll);
  };
}

/** The reason of an aborted signal. Older React Native has none. */
export function abortReason(signal: AbortSignal): unknown {
  return signal.reason ?? Object.assign(new Error("request aborted"), { name: "AbortError" });
}
