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

const sizeMax = 1_024;

/** Holds the lanes. Share one gate between wrappers that call the same servers. */
export class Gate {
  readonly #queues = new BoundedMap<LaneQueue>(sizeMax);
  /** The lane's key for each shape whose limit is known. */
  readonly #learned = new BoundedMap<string>(sizeMax);

  /** The number of lanes; at most 1,024. */
  get size(): number {
    return this.#queues.size;
  }

  /** The queue that a request has to pass. `scope` is its origin and partition. */
  queueFor(scope: string, shape: string): LaneQueue {
    const shapeKey = laneKey(scope, shape);
    return this.#queue(this.#learned.get(shapeKey) ?? shapeKey);
  }

  /** Counts a response in the lane of the limit that it names, and returns that lane's queue. */
  settle(sent: Sent, headers: Headers, now: number, throttle?: Throttle): LaneQueue {
    const queue = this.#learn(sent, headers, throttle !== undefined) ?? sent.queue;
    if (queue !== sent.queue) {
      queue.lane.inFlight += 1;
      sent.queue.failed();
    }
    if (throttle) queue.lane.throttled(now, throttle);
    else queue.lane.accepted(now);
    queue.release();
    return queue;
  }

  /** Learns the limit's name for the shape, and the limit's policy for its lane. */
  #learn({ scope, shape }: Sent, headers: Headers, isThrottle: boolean): LaneQueue | undefined {
    const name = tightestLimit(parseServiceLimits(headers))?.name;
    if (!name) return undefined;
    const shapeKey = laneKey(scope, shape);
    const key = laneKey(scope, name);
    if (isThrottle || !this.#learned.get(shapeKey)) this.#learned.set(shapeKey, key);

    const queue = this.#queue(key);
    const text = headers.get("ratelimit-policy");
    if (text !== queue.policyText) {
      queue.policyText = text;
      const policy = parseLimitPolicy(headers, name);
      if (policy) queue.lane.learn(...policy);
    }
    return queue;
  }

  #queue(key: string): LaneQueue {
    let queue = this.#queues.get(key);
    if (!queue) {
      queue = new LaneQueue();
      this.#queues.set(key, queue);
    }
    return queue;
  }
}

/** A request that was sent: its scope, its shape, and the queue that it passed. */
export interface Sent {
  readonly scope: string;
  readonly shape: string;
  readonly queue: LaneQueue;
}

/** Neither limits and shapes nor origins contain a line break, so two lanes never share a key. */
function laneKey(scope: string, limit: string): string {
  return `${limit}\n${scope}`;
}
