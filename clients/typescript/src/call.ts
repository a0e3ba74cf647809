/**
 * One call: send, decide, wait, and send again.
 *
 * # Laws
 * - No send starts after the deadline, and no retry before its time.
 * - The returned response is untouched; the ones before it are drained or cancelled.
 * - A call that ends, however it ends, leaves no timer, no listener and no place in a lane behind.
 */
import { type Body, readBody } from "./body.js";
import { Budget } from "./budget.js";
import { abortReason, type Clock, wait } from "./clock.js";
import { DeadlineError } from "./deadline-error.js";
import { decideAttempt, type Failure, type Why } from "./decide.js";
import type { RetryEvent } from "./events.js";
import { isInvalid, isUnprocessed } from "./failure.js";
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

/** What a send gave: a response, or an error. */
interface Result {
  readonly response?: Response;
  readonly failure?: Failure;
  readonly error?: unknown;
}

/** The most that is read of a response that is given up. A new connection costs less than reading a longer rest. */
const drainMax = 65_536;

export async function call(settings: Settings, input: FetchInput, init?: RetryInit | null): Promise<Response> {
  const { fetch, clock, partition, summaries } = settings;
  const budget = settings.budget || new Budget({ retriesMax: Infinity });
  const startedAt = clock.now();
  const deadline = startedAt + settings.deadlineMs;
  const { target, signal, replay, facts, next } = prepareRequest(input, init, settings);
  const { method, url, origin, shape } = target;
  const patience = { clock, deadline, signal };
  let scope = `${origin}\n`;
  let attempts = 0;
  /** The queue that counts this call as in flight. */
  let sentIn: LaneQueue | undefined;
  let stopDraining: (() => void) | undefined;

  try {
    scope += typeof partition === "function" ? partition(target) : partition;
    for (;;) {
      // Without a gate, each attempt passes one of its own, which never holds it back.
      const gate = settings.gate || new Gate();
      let queue = gate.queueFor(scope, shape);
      // A late timer may have passed the deadline already.
      const turn = clock.now() <= deadline ? queue.join(patience) : expire(queue);
      if (turn instanceof Promise) {
        emit({ type: "queued", waiting: queue.waiting });
        if (!(await turn)) expire(queue);
      }
      sentIn = queue;
      const sentAt = turn === "closed" ? -1 : clock.now(); // Sent to a closed lane, it says nothing new about the pace.

      const result = await send(queue);
      const { response } = result;
      const status = response?.status;
      const now = clock.now();
      const outcome = {
        attempts,
        budget: budget.level(origin),
        ...result,
        // React Native's responses do not say it. There, only an equal URL is taken as proof that nothing redirected.
        redirected: response?.redirected ?? response?.url !== url.split("#")[0],
        elapsedMs: Math.ceil(now - startedAt), // Rounded up: a retry after whole milliseconds is then never early.
        wallMs: clock.wall(),
      };
      const decision = decideAttempt(settings, facts(), outcome, settings.random());
      const isRetry = decision.action === "retry";
      const hint = decision.serverWaitMs;
      const retryAt = isRetry ? startedAt + decision.atMs : now + hint;
      if (result.failure) {
        queue.failed();
      } else {
        const throttle = status === 429 || (status === 503 && hint) ? { sentAt, hint, retryAt } : undefined;
        queue = gate.settle(scope, shape, queue, response!.headers, now, throttle);
      }
      sentIn = undefined;

      if (!isRetry) return end(result, decision.why, decision.retryAtWallMs);
      if (response) {
        if (queue.waiting + queue.asleep >= queue.capacityUntil(deadline)) {
          // The lane cannot reach this call in time. The response is worth more than an error later.
          return end(result, "deadline", clock.wall() + (hint || queue.opensAt() - now));
        }
        const { body } = response;
        // A locked body is read by somebody else. React Native shows no body, and has read it all.
        if (body?.locked === false) stopDraining = readBody(body, drainMax);
      }
      budget.take(origin, decision.cost); // in the same step as the decision
      emit({ type: "waiting", cause: decision.cause, waitMs: retryAt - clock.now(), status });
      queue.asleep += 1;
      await wait({ clock, deadline: retryAt, signal }, () => (queue.asleep -= 1));
    }
  } catch (error) {
    emit({ type: "failed", error, why: summaries.get(error as object)?.why });
    throw error;
  } finally {
    sentIn?.failed();
    stopDraining?.();
    replay.close?.();
  }

  /** Ends the call at its deadline. */
  function expire(queue: LaneQueue): never {
    const retryAt = clock.wall() + Math.max(0, queue.opensAt() - clock.now());
    const error = new DeadlineError(target, attempts, new Date(retryAt));
    throw end({ error }, "deadline", retryAt);
  }

  /** Makes the body of the next attempt, and sends it. */
  async function send(queue: LaneQueue): Promise<Result> {
    const { again } = replay;
    let body = again as Body | null | undefined;
    const isMade = typeof again === "function";
    if (isMade) {
      body = await wait<Body | null>(patience, undefined, async (go) => go((await again()) ?? null));
      if (body === undefined || clock.now() > deadline) expire(queue);
    }
    const args = next(attempts + 1, body);
    if (signal?.aborted) throw abortReason(signal);
    stopDraining?.();
    attempts += 1;
    emit({ type: "sending" });
    try {
      return { response: await fetch(...args) };
    } catch (error) {
      const isAborted = signal?.aborted || (error as Error | undefined)?.name === "AbortError";
      if (isAborted || isInvalid(url, args[1])) throw error;
      // Errors do not tell whether they are those of a redirect's target, or of a stream that a function made.
      const isProof = args[1].redirect === "error" && !isMade && isUnprocessed(error);
      return { failure: isProof ? "not-sent" : "unknown", error };
    }
  }

  function end({ response, error }: Result, why: Why, retryAtWallMs?: number): Response {
    const summary = { attempts, why, retryAt: retryAtWallMs ? new Date(retryAtWallMs) : undefined };
    summaries.set(Object(response ?? error), summary);
    if (!response) throw error;
    if (why === "done") budget.earn(origin);
    emit({ type: "returned", status: response.status, ...summary });
    return response;
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
