/**
 * One call: send, decide, wait, and send again.
 *
 * # Laws
 * - No send starts after the deadline, and no retry before its time.
 * - The returned response is untouched; the ones before it are drained or cancelled.
 * - A call that ends, however it ends, leaves no timer, no listener and no place in a lane behind.
 */
import { type Body, type BodyFactory, isStream, type Replay, replayOf, replayOfRequest } from "./body.js";
import type { Budget } from "./budget.js";
import { abortReason, type Clock, sleepUntil } from "./clock.js";
import { DeadlineError } from "./deadline-error.js";
import { type Decision, decide, type Facts, isDone, type Repeat, type RetryDecision, type Why } from "./decide.js";
import { discard } from "./discard.js";
import type { RetryEvent } from "./events.js";
import { classifyFailure, isAbort, isInvalid } from "./failure.js";
import type { Gate, Route } from "./gate.js";
import type { Policy } from "./policy.js";
import type { LaneQueue } from "./queue.js";
import { describeTarget, isRequest, type Target } from "./target.js";

export type FetchInput = string | URL | Request;

export interface RetryInit extends Omit<RequestInit, "body"> {
  /** As for `fetch`; or a function that makes the body, called for each attempt. */
  body?: Body | BodyFactory | null;
  /**
   * Whether the request may be repeated. `auto` (default): by its method; `safe`: it may be processed twice;
   * `unprocessed`: only if it certainly was not processed; `never`.
   */
  retry?: Repeat;
  /** Needed for streams in Node and Chromium; added if it is missing. */
  duplex?: "half";
}

/** How a call went. */
export interface Summary {
  readonly attempts: number;
  readonly why: Why;
  /** When the server is ready again, if it said so. */
  readonly retryAt?: Date;
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
class FailedSend {
  constructor(readonly error: unknown) {}
}

export class Call {
  readonly #settings: Settings;
  readonly #input: FetchInput;
  readonly #init: RetryInit | undefined;
  readonly #target: Target;
  readonly #route: Route;
  readonly #replay: Replay;
  readonly #startedAt: number;
  #attempts = 0;
  #stopDraining: (() => void) | undefined;

  readonly clock: Clock;
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;

  constructor(settings: Settings, input: FetchInput, init: RetryInit | undefined) {
    const { policy, clock } = settings;
    this.#settings = settings;
    this.#input = input;
    this.#init = init;
    this.#target = describeTarget(input, init as RequestInit | undefined);
    const { origin, shape } = this.#target;
    this.#route = { origin, shape, partition: settings.partition(this.#target) };
    this.#startedAt = clock.now();
    this.clock = clock;
    this.deadline = this.#startedAt + policy.deadlineMs;

    const request = isRequest(input) ? input : undefined;
    this.signal = (init?.signal === undefined ? request?.signal : init.signal) ?? undefined;
    this.#replay =
      request?.body && init?.body == null
        ? replayOfRequest(request, policy.replayMax)
        : replayOf(init?.body, policy.replayMax);
  }

  async run(): Promise<Response> {
    try {
      for (;;) {
        const queue = await this.#enter();
        const response = await this.#attempt(queue);
        if (response) return response;
      }
    } catch (error) {
      this.#emit({ type: "failed", error, ...this.#whyOf(error) });
      throw error;
    } finally {
      this.#replay.close?.();
    }
  }

  /** Waits for the gate. */
  async #enter(): Promise<LaneQueue | undefined> {
    this.#throwIfAborted();
    if (this.clock.now() > this.deadline) throw this.#deadlineError(undefined);
    const queue = this.#settings.gate?.queueFor(this.#route);
    const turn = queue?.enter(this);
    if (!turn) return queue;
    this.#emit({ type: "held", waiting: queue!.waiting });
    if (!(await turn)) throw this.#deadlineError(queue);
    return queue;
  }

  /** Sends once. Returns the response that ends the call, or undefined when it is time for the next attempt. */
  async #attempt(queue: LaneQueue | undefined): Promise<Response | undefined> {
    const sentAt = this.clock.now();
    const result = await this.#send(queue);
    const now = this.clock.now();
    if (result instanceof FailedSend) {
      const decision = this.#decide({ failure: classifyFailure(result.error) }, now);
      if (decision.action === "return") return this.#fail(result.error, decision.why);
      return this.#waitFor(decision, now, this.#settings.gate?.queueFor(this.#route));
    }
    const { gate, budget } = this.#settings;
    if (isDone(result.status)) {
      if (queue) gate!.settle(this.#route, queue, result.headers, now);
      budget?.earn(this.#budgetKey());
      return this.#return(result, "done");
    }
    const decision = this.#decide(result, now);
    const settled = queue && this.#settle(result, queue, sentAt, now, decision);
    if (decision.action === "return") return this.#return(result, decision.why, decision.retryAtWallMs);
    if (settled && settled.waiting + settled.asleep >= settled.lane.capacityUntil(this.deadline)) {
      // The lane cannot reach this call in time. The response is worth more than an error later.
      const waitMs = decision.serverWaitMs || settled.lane.opensAt() - now;
      return this.#return(result, "deadline", this.clock.wall() + waitMs);
    }
    this.#stopDraining = discard(result);
    return this.#waitFor(decision, now, settled, result.status);
  }

  async #send(queue: LaneQueue | undefined): Promise<Response | FailedSend> {
    try {
      const init = await this.#nextInit();
      this.#throwIfAborted();
      this.#stopDraining?.();
      this.#attempts += 1;
      this.#emit({ type: "sent" });
      const { fetch } = this.#settings;
      return await fetch(this.#nextInput(), init).then(undefined, (error) => {
        if (isAbort(error, this.signal) || isInvalid(this.#target.url, init)) throw error;
        queue?.failed();
        return new FailedSend(error);
      });
    } catch (error) {
      queue?.failed();
      throw error;
    }
  }

  /** The `Request` or URL for the next attempt. */
  #nextInput(): FetchInput {
    const input = this.#input;
    // Where a Request shows no body (Firefox, React Native), it can only be sent again as a clone.
    const hidesBody = isRequest(input) && input.body === undefined && !input.bodyUsed;
    return hidesBody ? input.clone() : input;
  }

  /** The options for the next attempt: as the caller gave them, unless something has to change. */
  #nextInit(): RequestInit | undefined | Promise<RequestInit> {
    const init = this.#init;
    const isFirst = this.#attempts === 0;
    if (isFirst && init?.retry === undefined && typeof init?.body !== "function") {
      return isStream(init?.body) && !init?.duplex ? ({ ...init, duplex: "half" } as RequestInit) : (init as RequestInit);
    }
    return this.#changedInit(isFirst);
  }

  async #changedInit(isFirst: boolean): Promise<RequestInit> {
    const { retry: _, ...init } = { ...this.#init } as RetryInit;
    if (!isFirst || typeof init.body === "function") {
      const body = await this.#replay.again?.();
      if (body !== undefined) init.body = body;
    }
    if (isStream(init.body)) init.duplex ??= "half";
    if (!isFirst && this.#settings.attemptHeader) {
      const headers = this.#requestHeaders();
      headers.set("ratewright-attempt", String(this.#attempts + 1));
      init.headers = headers;
    }
    return init as RequestInit;
  }

  #requestHeaders(): Headers {
    return new Headers(this.#init?.headers ?? (isRequest(this.#input) ? this.#input.headers : undefined));
  }

  #decide(seen: Facts["seen"], now: number): Decision {
    const { policy, budget, random } = this.#settings;
    const facts: Facts = {
      request: {
        method: this.#target.method,
        idempotencyKey: Boolean(this.#requestHeaders().get("idempotency-key")),
        body: this.#replay.kind(),
        repeat: this.#init?.retry ?? "auto",
      },
      state: { attempts: this.#attempts, budget: budget ? budget.level(this.#budgetKey()) : Number.POSITIVE_INFINITY },
      seen,
      // Rounded up: a retry that is due after whole milliseconds is then never early.
      now: { elapsedMs: Math.ceil(now - this.#startedAt), wallMs: this.clock.wall() },
    };
    return decide(policy, facts, random());
  }

  /** Counts a response that is not done in its lane, as a throttle or as accepted. */
  #settle(response: Response, queue: LaneQueue, sentAt: number, now: number, decision: Decision): LaneQueue {
    const hint = decision.serverWaitMs;
    const isThrottle = response.status === 429 || (response.status === 503 && hint > 0);
    const retryAt = decision.action === "retry" ? this.#startedAt + decision.atMs : now + hint;
    const throttle = isThrottle ? { sentAt, hint, retryAt } : undefined;
    return this.#settings.gate!.settle(this.#route, queue, response.headers, now, throttle);
  }

  /** Takes the retry's cost from the budget, in the same step as the decision, and waits for its time. */
  async #waitFor(decision: RetryDecision, now: number, queue: LaneQueue | undefined, status?: number): Promise<undefined> {
    this.#settings.budget?.take(this.#budgetKey(), decision.cost);
    const time = this.#startedAt + decision.atMs;
    const waitMs = Math.max(0, time - now);
    this.#emit({ type: "waiting", cause: decision.cause, waitMs, ...(status === undefined ? {} : { status }) });
    if (queue) queue.asleep += 1;
    try {
      await sleepUntil(this.clock, time, this.signal);
    } catch (error) {
      this.#stopDraining?.();
      throw error;
    } finally {
      if (queue) queue.asleep -= 1;
    }
  }

  #return(response: Response, why: Why, retryAtWallMs?: number): Response {
    const retryAt = retryAtWallMs === undefined ? {} : { retryAt: new Date(retryAtWallMs) };
    this.#settings.summaries.set(response, { attempts: this.#attempts, why, ...retryAt });
    this.#emit({ type: "returned", why, status: response.status, ...retryAt });
    return response;
  }

  #fail(error: unknown, why: Why): never {
    if (typeof error === "object" && error !== null) {
      this.#settings.summaries.set(error, { attempts: this.#attempts, why });
    }
    throw error;
  }

  #deadlineError(queue: LaneQueue | undefined): DeadlineError {
    const opensIn = queue ? queue.lane.opensAt() - this.clock.now() : 0;
    const retryAt = opensIn > 0 ? new Date(this.clock.wall() + opensIn) : undefined;
    const error = new DeadlineError(
      { ...this.#target, attempts: this.#attempts },
      this.#settings.policy.deadlineMs,
      retryAt,
    );
    const summary: Summary = { attempts: this.#attempts, why: "deadline" };
    this.#settings.summaries.set(error, retryAt ? { ...summary, retryAt } : summary);
    return error;
  }

  #throwIfAborted(): void {
    if (this.signal?.aborted) throw abortReason(this.signal);
  }

  #whyOf(error: unknown): { why?: Why } {
    const summary = typeof error === "object" && error !== null ? this.#settings.summaries.get(error) : undefined;
    return summary ? { why: summary.why } : {};
  }

  #budgetKey(): string {
    return `${this.#route.origin}\n${this.#route.partition}`;
  }

  #emit(event: DistributiveOmit<RetryEvent, "method" | "url" | "attempts">): void {
    const { on } = this.#settings;
    if (!on) return;
    const { method, url } = this.#target;
    try {
      on({ ...event, method, url, attempts: this.#attempts } as RetryEvent);
    } catch {
      // The caller's handler must not break the caller's request.
    }
  }
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;
