/**
 * The gate: after a throttle, calls that meet the same limit go one after another, at the pace of the limit. New calls
 * are held back as well, since they would meet it too. Calls that meet other limits are not.
 *
 *     call ──► shape "GET /users/*" ──► limit "search", if a response named one ──► lane ──► send
 */
import type { Throttle } from "./lane.js";
import { parseLimitPolicy, tightestLimit } from "./limits.js";
import { LaneQueue } from "./queue.js";
import { remember } from "./remember.js";

/** Holds the lanes. Share one gate between wrappers that call the same servers. */
export class Gate {
  /** The queue of each limit, and of each shape: its limit's one if that is known, else one of its own. At most 1,024. */
  readonly #queues = new Map<string, LaneQueue>();

  /** The queue that a request has to pass, or from now on has to pass. `scope` is its origin and partition. */
  queueFor(scope: string, shape: string, queue?: LaneQueue): LaneQueue {
    // Neither limits and shapes nor origins contain a line break, and only limits are quoted: no two share a key.
    const key = `${shape}\n${scope}`;
    return remember(
      this.#queues,
      key,
      queue ?? this.#queues.get(key) ?? new LaneQueue(),
      ({ pacing, inFlight }) => pacing || inFlight > 0,
    );
  }

  /** Counts the response to a request that was sent in the lane `sentIn`, and returns that lane's queue. */
  settle(
    scope: string,
    shape: string,
    sentIn: LaneQueue,
    headers: Headers,
    now: number,
    throttle?: Throttle,
  ): LaneQueue {
    // Once its limit is known, a shape learns from throttles only; reading each response would cost too much.
    const name = throttle || !sentIn.isNamed ? tightestLimit(headers) : undefined;
    const queue = name ? this.queueFor(scope, name) : sentIn;
    if (name) {
      queue.isNamed = true;
      queue.learn(...parseLimitPolicy(headers, name));
      if (throttle || !this.queueFor(scope, shape).isNamed) this.queueFor(scope, shape, queue);
    }
    if (queue !== sentIn) {
      queue.inFlight += 1;
      sentIn.failed();
    }
    if (throttle) queue.throttled(now, throttle);
    else queue.accepted(now);
    queue.release();
    return queue;
  }
}
