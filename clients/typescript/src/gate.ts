/**
 * The gate: after a throttle, calls that meet the same limit go one after another, at the pace of the limit. New calls
 * are held back as well, since they would meet it too. Calls that meet other limits are not.
 *
 *     call ──► shape "GET /users/*" ──► limit "search", if a response named one ──► lane ──► send
 */
import { BoundedMap } from "./bounded-map.js";
import type { Throttle } from "./lane.js";
import { parseLimitPolicy, parseServiceLimits, tightestLimit } from "./limits.js";
import { LaneQueue } from "./queue.js";

/** Holds the lanes. Share one gate between wrappers that call the same servers. */
export class Gate {
  /** The queue of each limit, and of each shape: its limit's one if that is known, else one of its own. */
  readonly #queues = new BoundedMap<LaneQueue>();

  /** The number of limits and shapes that are remembered; at most 1,024. */
  get size(): number {
    return this.#queues.size;
  }

  /** The queue that a request has to pass. `scope` is its origin and partition. */
  queueFor(scope: string, shape: string): LaneQueue {
    const key = laneKey(scope, shape);
    let queue = this.#queues.get(key);
    if (!queue) {
      queue = new LaneQueue();
      this.#queues.set(key, queue);
    }
    return queue;
  }

  /** Counts a response in its lane, and returns that lane's queue. */
  settle(sent: Sent, headers: Headers, now: number, throttle?: Throttle): LaneQueue {
    // Once its limit is known, a shape learns from throttles only; reading each response would cost too much.
    const queue = throttle || !sent.queue.isNamed ? this.#learn(sent, headers, throttle) : sent.queue;
    if (queue !== sent.queue) {
      queue.lane.inFlight += 1;
      sent.queue.failed();
    }
    if (throttle) queue.lane.throttled(now, throttle);
    else queue.lane.accepted(now);
    queue.release();
    return queue;
  }

  /** Learns the limit's name for the shape, and the limit's policy for its lane. Returns the limit's queue. */
  #learn({ scope, shape, queue: sentIn }: Sent, headers: Headers, throttle: Throttle | undefined): LaneQueue {
    const name = tightestLimit(parseServiceLimits(headers))?.name;
    if (!name) return sentIn;
    const queue = this.queueFor(scope, name);
    queue.isNamed = true;
    if (throttle || !this.queueFor(scope, shape).isNamed) this.#queues.set(laneKey(scope, shape), queue);
    const policy = parseLimitPolicy(headers, name);
    if (policy) queue.lane.learn(...policy);
    return queue;
  }
}

/** A request that was sent: its scope, its shape, and the queue that it passed. */
export interface Sent {
  readonly scope: string;
  readonly shape: string;
  readonly queue: LaneQueue;
}

/** Neither limits and shapes nor origins contain a line break, and only limits are quoted: no two share a key. */
function laneKey(scope: string, limitOrShape: string): string {
  return `${limitOrShape}\n${scope}`;
}
