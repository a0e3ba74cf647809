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

export interface Settings {
  readonly fetch: (input: FetchInput, init?: RequestInit) => Promise<Response>;
  readonly policy: Policy;
  readonly gate: Gate | undefined;
  readonly budget: Budget | undefined;
  readonly partition: (target: Target) => string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly attemptHeader: boolean;
  readonly on: ((event: RetryEvent) => void) | undefined;
  readonly summaries: WeakMap<object, Summary>;
}

/** A send that got no response. */
interface FailedSend {
  readonly error: unknown;
}

export async function call(settings: Settings, input: FetchInput, init: RetryInit | undefined): Promise<Response> {
  const { fetch, policy, gate, budget, clock, summaries } = settings;
  const startedAt = clock.now();
  const deadline = startedAt + policy.deadlineMs;
  const request = prepareRequest(input, init, policy.replayMax, settings.attemptHeader);
  const { target, signal, replay } = request;
  const route = { ...target, partition: settings.partition(target) };
  const budgetKey = `${route.origin}\n${route.partition}`;
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
    const queue = gate?.queueFor(route);
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
      if (sentIn) gate!.settle(route, sentIn, headers, now);
      budget?.earn(budgetKey);
      return end(result, "done");
    }
    const decision = decideNext(result, now);
    const hint = decision.serverWaitMs;
    const isRetry = decision.action === "retry";
    const isThrottle = status === 429 || (status === 503 && hint > 0);
    const throttle = { sentAt, hint, retryAt: isRetry ? startedAt + decision.atMs : now + hint };
    const queue = sentIn && gate!.settle(route, sentIn, headers, now, isThrottle ? throttle : undefined);
    if (!isRetry) return end(result, decision.why, decision.retryAtWallMs);
    if (queue && queue.waiting + queue.asleep >= queue.lane.capacityUntil(deadline)) {
      // The lane cannot reach this call in time. The response is worth more than an error later.
      return end(result, "deadline", clock.wall() + (hint || queue.lane.opensAt() - now));
    }
    stopDraining = discard(result);
    return waitFor(decision, queue, status);
  }

  async function send(queue: LaneQueue | undefined): Promise<Response | FailedSend> {
    try {
      const [nextInput, nextInit] = await request.next(attempts + 1);
      throwIfAborted();
      stopDraining?.();
      attempts += 1;
      emit({ type: "sent" });
      return await fetch(nextInput, nextInit).catch((error): FailedSend => {
        if (isAbort(error, signal) || isInvalid(target.url, nextInit)) throw error;
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
        method: target.method,
        idempotencyKey: !!request.headers().get("idempotency-key"),
        body: replay.kind(),
        repeat: init?.retry ?? "auto",
      },
      state: { attempts, budget: budget ? budget.level(budgetKey) : Infinity },
      seen,
      // Rounded up: a retry that is due after whole milliseconds is then never early.
      now: { elapsedMs: Math.ceil(now - startedAt), wallMs: clock.wall() },
    };
    return decide(policy, facts, settings.random());
  }

  /** Takes the retry's cost from the budget, in the same step as the decision, and waits for its time. */
  async function waitFor({ atMs, cause, cost }: RetryDecision, queue: LaneQueue | undefined, status?: number) {
    budget?.take(budgetKey, cost);
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
    const retryAt = retryAtWallMs === undefined ? undefined : new Date(retryAtWallMs);
    emit({ type: "returned", status: response.status, ...summarize(response, why, retryAt) });
    return response;
  }

  function deadlineError(queue: LaneQueue | undefined): DeadlineError {
    const opensIn = queue ? queue.lane.opensAt() - clock.now() : 0;
    const retryAt = opensIn > 0 ? new Date(clock.wall() + opensIn) : undefined;
    const error = new DeadlineError(target, attempts, retryAt);
    summarize(error, "deadline", retryAt);
    return error;
  }

  function summarize(result: unknown, why: Why, retryAt?: Date): Summary {
    const summary = { attempts, why, retryAt };
    if (result instanceof Object) summaries.set(result, summary);
    return summary;
  }

  function throwIfAborted(): void {
    if (signal?.aborted) throw abortReason(signal);
  }

  function emit(event: EventDetails): void {
    try {
      settings.on?.({ method: target.method, url: target.url, attempts, ...event } as RetryEvent);
    } catch {
      // The caller's handler must not break the caller's request.
    }
  }
}

type EventDetails = RetryEvent extends infer E ? (E extends unknown ? Omit<E, "method" | "url" | "attempts"> : never) : never;
