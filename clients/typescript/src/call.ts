/**
 * One call: send, decide, wait, and send again.
 *
 * # Laws
 * - No send starts after the deadline, and no retry before its time.
 * - The returned response is untouched; the ones before it are drained or cancelled.
 * - A call that ends, however it ends, leaves no timer, no listener and no place in a lane behind.
 */
import type { Budget } from "./budget.js";
import { abortReason, type Clock, wait } from "./clock.js";
import { DeadlineError } from "./deadline-error.js";
import { type Decision, decide, type Facts, isDone, type RetryDecision, type Why } from "./decide.js";
import { discard } from "./discard.js";
import type { RetryEvent } from "./events.js";
import { classifyFailure, isAbort, isInvalid } from "./failure.js";
import type { Gate } from "./gate.js";
import type { Throttle } from "./lane.js";
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
  readonly on: ((event: RetryEvent) => void) | undefined;
  readonly attemptHeader: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  readonly summaries: WeakMap<object, Summary>;
}

/** A send that got no response. */
interface FailedSend {
  readonly error: unknown;
}

export async function call(settings: Settings, input: FetchInput, init: RetryInit | undefined): Promise<Response> {
  const { fetch, gate, budget, partition, clock, summaries } = settings;
  const startedAt = clock.now();
  const deadline = startedAt + settings.deadlineMs;
  const request = prepareRequest(input, init, settings);
  const { target, signal, replay } = request;
  const { method, url, origin, shape } = target;
  const scope = `${origin}\n${typeof partition === "function" ? partition(target) : partition}`;
  let attempts = 0;
  let stopDraining: (() => void) | undefined;

  try {
    for (;;) {
      const response = await attempt(await enter());
      if (response) return response;
    }
  } catch (error) {
    emit({ type: "failed", error, why: summaries.get(error as object)?.why });
    throw error;
  } finally {
    stopDraining?.();
    replay.close?.();
  }

  /** Waits for the gate. */
  async function enter(): Promise<LaneQueue | undefined> {
    throwIfAborted();
    const queue = gate ? gate.queueFor(scope, shape) : undefined;
    if (clock.now() > deadline) throw deadlineError(queue); // a late timer
    const turn = queue?.enter({ clock, deadline, signal });
    if (turn) {
      emit({ type: "held", waiting: queue!.waiting });
      if (!(await turn)) throw deadlineError(queue);
    }
    return queue;
  }

  /** Sends once. Returns the response that ends the call, or undefined when it is time for the next attempt. */
  async function attempt(sentIn: LaneQueue | undefined): Promise<Response | undefined> {
    const sentAt = clock.now();
    const result = await send(sentIn);
    const now = clock.now();
    if ("error" in result) {
      const decision = decideNext({ failure: classifyFailure(result.error) }, now);
      if (decision.action === "retry") return waitFor(decision, sentIn);
      summarize(result.error, decision.why);
      throw result.error;
    }
    const { status, headers } = result;
    if (isDone(status)) {
      settle(sentIn, headers, now);
      if (budget) budget.earn(scope);
      return end(result, "done");
    }
    const decision = decideNext(result, now);
    const hint = decision.serverWaitMs;
    const isRetry = decision.action === "retry";
    const isThrottle = status === 429 || (status === 503 && hint > 0);
    const throttle = { sentAt, hint, retryAt: isRetry ? startedAt + decision.atMs : now + hint };
    const queue = settle(sentIn, headers, now, isThrottle ? throttle : undefined);
    if (!isRetry) return end(result, decision.why, decision.retryAtWallMs);
    if (queue && queue.waiting + queue.asleep >= queue.lane.capacityUntil(deadline)) {
      // The lane cannot reach this call in time. The response is worth more than an error later.
      return end(result, "deadline", clock.wall() + (hint || queue.lane.opensAt() - now));
    }
    stopDraining = discard(result);
    return waitFor(decision, queue, status);
  }

  /** Counts a response in its lane, and returns the queue of that lane. */
  function settle(queue: LaneQueue | undefined, headers: Headers, now: number, throttle?: Throttle) {
    return gate && queue ? gate.settle({ scope, shape, queue }, headers, now, throttle) : undefined;
  }

  async function send(queue: LaneQueue | undefined): Promise<Response | FailedSend> {
    try {
      const [nextInput, nextInit] = await request.next(attempts + 1);
      throwIfAborted();
      stopDraining?.();
      attempts += 1;
      emit({ type: "sent" });
      return await fetch(nextInput, nextInit).catch((error): FailedSend => {
        if (isAbort(error, signal) || isInvalid(url, nextInit)) throw error;
        queue?.failed();
        return { error };
      });
    } catch (error) {
      queue?.failed();
      throw error;
    }
  }

  function decideNext(seen: Facts["seen"], now: number): Decision {
    const facts: Facts = {
      request: {
        method,
        idempotencyKey: !!request.headers().get("idempotency-key"),
        body: replay.kind(),
        repeat: init?.retry ?? "auto",
      },
      state: { attempts, budget: budget ? budget.level(scope) : Infinity },
      seen,
      // Rounded up: a retry that is due after whole milliseconds is then never early.
      now: { elapsedMs: Math.ceil(now - startedAt), wallMs: clock.wall() },
    };
    return decide(settings, facts, settings.random());
  }

  /** Takes the retry's cost from the budget, in the same step as the decision, and waits for its time. */
  async function waitFor({ atMs, cause, cost }: RetryDecision, queue: LaneQueue | undefined, status?: number) {
    if (budget) budget.take(scope, cost);
    const time = startedAt + atMs;
    emit({ type: "waiting", cause, waitMs: time - clock.now(), status });
    if (queue) queue.asleep += 1;
    try {
      await wait({ clock, deadline: time, signal });
    } finally {
      if (queue) queue.asleep -= 1;
    }
    return undefined;
  }

  function end(response: Response, why: Why, retryAtWallMs?: number): Response {
    emit({ type: "returned", status: response.status, ...summarize(response, why, retryAtWallMs) });
    return response;
  }

  function deadlineError(queue: LaneQueue | undefined): DeadlineError {
    const opensIn = queue ? queue.lane.opensAt() - clock.now() : 0;
    const error = new DeadlineError(target, attempts, opensIn > 0 ? new Date(clock.wall() + opensIn) : undefined);
    summaries.set(error, { attempts, why: "deadline", retryAt: error.retryAt });
    return error;
  }

  function summarize(result: unknown, why: Why, retryAtWallMs?: number): Summary {
    const summary = { attempts, why, retryAt: retryAtWallMs ? new Date(retryAtWallMs) : undefined };
    if (result instanceof Object) summaries.set(result, summary);
    return summary;
  }

  function throwIfAborted(): void {
    if (signal?.aborted) throw abortReason(signal);
  }

  function emit(event: EventDetails): void {
    try {
      settings.on?.({ method, url, attempts, ...event } as RetryEvent);
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
