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

/** Where a call goes, as far as limits are concerned. */
export interface Route {
  readonly origin: string;
  /** The caller's choice, for instance a tenant with quotas of its own. */
  readonly partition: string;
  /** The method and the path, with `*` for the segments that look like ids. */
  readonly shape: string;
}

const sizeMax = 1_024;

/** Holds the lanes. Share one gate between wrappers that call the same servers. */
export class Gate {
  readonly #queues = new BoundedMap<LaneQueue>(sizeMax);
  /** The name of the limit that requests of a shape meet. */
  readonly #limits = new BoundedMap<string>(sizeMax);

  /** The number of lanes; at most 1,024. */
  get size(): number {
    return this.#queues.size;
  }

  /** The queue that a call has to pass. */
  queueFor(route: Route): LaneQueue {
    return this.#queue(route, this.#limits.get(laneKey(route, route.shape)) ?? route.shape);
  }

  /** Counts a response in the lane of the limit that it names, and returns that lane's queue. */
  settle(route: Route, sentIn: LaneQueue, headers: Headers, now: number, throttle?: Throttle): LaneQueue {
    const queue = this.#learn(route, headers, throttle !== undefined) ?? sentIn;
    if (queue !== sentIn) {
      queue.lane.inFlight += 1;
      sentIn.failed();
    }
    if (throttle) queue.lane.throttled(now, throttle);
    else queue.lane.accepted(now);
    queue.release();
    return queue;
  }

  /** Learns the limit's name for the shape, and the limit's policy for its lane. */
  #learn(route: Route, headers: Headers, isThrottle: boolean): LaneQueue | undefined {
    const name = tightestLimit(parseServiceLimits(headers))?.name;
    if (!name) return undefined;
    const shapeKey = laneKey(route, route.shape);
    if (isThrottle || this.#limits.get(shapeKey) === undefined) this.#limits.set(shapeKey, name);

    const queue = this.#queue(route, name);
    const text = headers.get("ratelimit-policy");
    if (text !== queue.policyText) {
      queue.policyText = text;
      const policy = parseLimitPolicy(headers, name);
      if (policy) queue.lane.learn(...policy);
    }
    return queue;
  }

  #queue(route: Route, limit: string): LaneQueue {
    const key = laneKey(route, limit);
    let queue = this.#queues.get(key);
    if (!queue) {
      queue = new LaneQueue();
      this.#queues.set(key, queue);
    }
    return queue;
  }
}

/** Neither origins nor limits contain a line break, so two lanes never share a key. */
function laneKey({ origin, partition }: Route, limit: string): string {
  return `${origin}\n${limit}\n${partition}`;
}
