/**
 * One call: send, decide, wait, and send again.
 *
 * # Laws
 * - No send starts after the deadline, and no retry before its time.
 * - The returned response is untouched; the ones before it are drained or cancelled.
 * - A call that ends, however it ends, leaves no timer, no listener and no place in a lane behind.
 */
import { Budget } from "./budget.js";
import { abortReason, type Clock, wait } from "./clock.js";
import { DeadlineError } from "./deadline-error.js";
import { decideByReader, type Failure, type Why } from "./decide.js";
import { discard } from "./discard.js";
import type { RetryEvent } from "./events.js";
import { isConnectFailure, isInvalid } from "./failure.js";
import { Gate } from "./gate.js";
import { type FetchInput, prepareRequest, type RetryInit } from "./outgoing.js";
import type { Policy } from "./policy.js";
import type { LaneQueue } from "./queue.js";
import type { Target } from "./target.js";

/** How a call went. */
export interface Summary {
  readonly attempts: number;
  readonly why: Why;
  /** When the server is ready again, as far as is known. */
  readonly retryAt?: Date | undefined;
}

export interface Settings extends Policy {
  readonly fetch: (input: FetchInput, init?: RequestInit) => Promise<Response>;
  readonly gate: Gate | false;
  readonly budget: Budget | false;
  readonly partition: string | ((target: Target) => string);
  readonly on?: (event: RetryEvent) => void;
  readonly attemptHeader: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  readonly summaries: WeakMap<object, Summary>;
}

/** A send that got no response. */
interface FailedSend {
  readonly failure: Failure;
  readonly error: unknown;
}

export async function call(settings: Settings, input: FetchInput, init: RetryInit | undefined): Promise<Response> {
  const { fetch, clock, partition, summaries } = settings;
  const budget = settings.budget || new Budget({ retriesMax: Infinity });
  const startedAt = clock.now();
  const deadline = startedAt + settings.deadlineMs;
  const { target, signal, replay, facts, next } = prepareRequest(input, init, settings);
  const { method, url, origin, shape } = target;
  const scope = `${origin}\n${typeof partition === "function" ? partition(target) : partition}`;
  let attempts = 0;
  let stopDraining: (() => void) | null | undefined;

  try {
    for (;;) {
      const response = await attempt();
      if (response) return response;
    }
  } catch (error) {
    emit({ type: "failed", error, why: summaries.get(error as object)?.why });
    throw error;
  } finally {
    stopDraining?.();
    replay.close?.();
  }

  /** Sends once. Returns the response that ends the call, or undefined when it is time for the next attempt. */
  async function attempt(): Promise<Response | undefined> {
    // Without a gate, each attempt passes one of its own, which never holds it back.
    const gate = settings.gate || new Gate();
    let queue = gate.queueFor(scope, shape);
    const sentAt = await enter(queue);
    const result = await send(queue);
    const now = clock.now();
    const response = "status" in result ? result : undefined;
    const status = response?.status;
    const state = { attempts, budget: budget.level(origin) };
    // Rounded up: a retry that is due after whole milliseconds is then never early.
    const time = { elapsedMs: Math.ceil(now - startedAt), wallMs: clock.wall() };
    const decision = decideByReader(settings, { request: facts(), state, seen: result, now: time }, settings.random());
    const isRetry = decision.action === "retry";
    const hint = decision.serverWaitMs;
    const retryAt = isRetry ? startedAt + decision.atMs : now + hint;
    if (response) {
      const isThrottle = status === 429 || (status === 503 && hint > 0);
      const throttle = isThrottle ? { sentAt, hint, retryAt } : undefined;
      queue = gate.settle({ scope, shape, queue }, response.headers, now, throttle);
    }
    if (!isRetry) return end(result, decision.why, decision.retryAtWallMs);
    if (response) {
      if (queue.waiting + queue.asleep >= queue.capacityUntil(deadline)) {
        // The lane cannot reach this call in time. The response is worth more than an error later.
        return end(result, "deadline", clock.wall() + (hint || queue.opensAt() - now));
      }
      stopDraining = discard(response);
    }
    budget.take(origin, decision.cost); // in the same step as the decision
    emit({ type: "waiting", cause: decision.cause, waitMs: retryAt - clock.now(), status });
    queue.asleep += 1;
    await wait({ clock, deadline: retryAt, signal }, undefined, () => (queue.asleep -= 1));
    return undefined;
  }

  /** Waits for the gate. Returns the time at which the request counts as sent. */
  async function enter(queue: LaneQueue): Promise<number> {
    // A late timer may have passed the deadline already.
    if (clock.now() <= deadline) {
      const turn = queue.join({ clock, deadline, signal });
      if (turn === "closed") return -1; // It says nothing new about the pace.
      if (turn) emit({ type: "queued", waiting: queue.waiting });
      if (!turn || (await turn)) return clock.now();
    }
    const retryAt = new Date(clock.wall() + Math.max(0, queue.opensAt() - clock.now()));
    const error = new DeadlineError(target, attempts, retryAt);
    summaries.set(error, { attempts, why: "deadline", retryAt });
    throw error;
  }

  async function send(queue: LaneQueue): Promise<Response | FailedSend> {
    let args: [FetchInput, RequestInit] | undefined;
    try {
      args = await next(attempts + 1);
      if (signal?.aborted) throw abortReason(signal);
      stopDraining?.();
      attempts += 1;
      emit({ type: "sending" });
      return await fetch(...args);
    } catch (error) {
      queue.failed();
      const isAborted = signal?.aborted || (error as Error | undefined)?.name === "AbortError";
      if (!args || isAborted || isInvalid(url, args[1])) throw error;
      // Errors do not tell whether they are those of a redirect's target.
      const isProof = args[1].redirect === "error" && isConnectFailure(error);
      return { failure: isProof ? "not-sent" : "unknown", error };
    }
  }

  function end(result: Response | FailedSend, why: Why, retryAtWallMs?: number): Response {
    const summary = { attempts, why, retryAt: retryAtWallMs ? new Date(retryAtWallMs) : undefined };
    const ended = "error" in result ? result.error : result;
    if (ended instanceof Object) summaries.set(ended, summary);
    if ("error" in result) throw result.error;
    if (why === "done") budget.earn(origin);
    emit({ type: "returned", status: result.status, ...summary });
    return result;
  }

  function emit(event: EventDetails): void {
    try {
      const done: unknown = settings.on?.({ method, url, attempts, ...event } as RetryEvent);
      (done as Promise<void> | undefined)?.catch?.(() => {});
    } catch {
      // The caller's handler must not break the caller's request.
    }
  }
}

type EventDetails = RetryEvent extends infer E
  ? E extends unknown
    ? Omit<E, "method" | "url" | "attempts">
    : never
  : never;
