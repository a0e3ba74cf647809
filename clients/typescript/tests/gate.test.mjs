// The gate: who waits for whom, and in which order.
import assert from "node:assert/strict";
import { DeadlineError, Gate, withRetry } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";
import { describe, it } from "./harness.mjs";
import { answer, scripted, seeded, url, watch } from "./support.mjs";

const named = (name, r, t) => ({ RateLimit: `"${name}";r=${r};t=${t}` });
const closed = (seconds = 1, headers = {}) => answer(429, { "Retry-After": String(seconds), ...headers });

function broken() {
  throw new Error("broken");
}

/** A wrapper whose first call was throttled, so that its lane is closed. */
async function throttledApi({ seconds = 1, after = answer(), options = {}, headers = {} } = {}) {
  const clock = new FakeClock();
  const fetch = scripted(clock, closed(seconds, headers), after);
  const api = withRetry(fetch, { clock, random: () => 0.5, ...options });
  const first = watch(api(url), clock);
  await clock.advance(10);
  return { clock, fetch, api, first };
}

describe("the gate", () => {
  it("never releases 1,000 waiting calls in one tick", async () => {
    const { clock, fetch, api } = await throttledApi({ options: { deadlineMs: 600_000 } });
    const all = Array.from({ length: 1_000 }, () => watch(api(url), clock));
    let most = 0;
    while (all.some((call) => !call.settled) && clock.now() < 600_000) {
      const before = fetch.sends.length;
      await clock.advance(20);
      most = Math.max(most, fetch.sends.length - before);
    }
    assert.equal(fetch.sends.length, 1_002);
    assert.ok(most <= 200, `${most} sends within 20 ms`);
    assert.equal(clock.pending, 0);
  });

  it("keeps the pace although it was quiet for long, as long as calls wait", async () => {
    // A policy of 6 in 60 s keeps the pace near one send in ten seconds.
    const headers = { ...named("a", 0, 1), "RateLimit-Policy": '"a";q=6;w=60' };
    const { clock, fetch, api } = await throttledApi({ headers, options: { deadlineMs: 3_600_000 } });
    for (let i = 0; i < 50; i++) api(url);
    await clock.advance(200_000);
    assert.ok(fetch.sends.length > 10 && fetch.sends.length < 30, `${fetch.sends.length} sends in 200 s`);
    const times = fetch.sends.map((send) => send.at);
    assert.ok(times.every((time, i) => i < 2 || time - times[i - 1] > 9_000));
  });

  it("lets calls go in the order in which they came", async () => {
    const { clock, fetch, api } = await throttledApi();
    for (let i = 0; i < 10; i++) api(`${url}?n=${i}`);
    await clock.advance(20_000);
    const order = fetch.sends.slice(1).map((send) => new URL(send.input).searchParams.get("n"));
    assert.deepEqual(
      order.filter((n) => n !== null),
      ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
    );
  });

  it("shows how many wait", async () => {
    const queued = [];
    const { api, clock } = await throttledApi({
      options: { on: (event) => event.type === "queued" && queued.push(event) },
    });
    api(url);
    api(url);
    await clock.advance(0);
    assert.deepEqual(
      queued.map((event) => [event.waiting, event.attempts]),
      [
        [1, 0],
        [2, 0],
      ],
    );
  });

  for (const [name, request, options] of [
    ["origins", ["https://other.example/items"], {}],
    ["methods", [url, { method: "DELETE" }], {}],
    ["paths", ["https://api.example/users"], {}],
    ["partitions", [`${url}?tenant=b`], { partition: ({ url: target }) => new URL(target).search }],
  ]) {
    it(`keeps ${name} apart`, async () => {
      const { clock, api } = await throttledApi({ seconds: 20, options });
      const other = watch(api(...request), clock);
      await clock.advance(0);
      assert.equal(other.response?.status, 200);
    });
  }

  it("takes ids in a path as one shape", async () => {
    const clock = new FakeClock();
    const fetch = scripted(clock, closed(20), answer());
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    api("https://api.example/users/17/orders/3f2a9c1e?x=1");
    await clock.advance(10);
    const same = watch(api("https://user@API.example/users/18/orders/77777777-aa"), clock);
    const other = watch(api("https://api.example/users/me/orders/3f2a9c1e"), clock);
    await clock.advance(1_000);
    assert.equal(same.settled, false);
    assert.equal(other.settled, true);
  });

  it("two shapes that meet the same limit share its lane, two limits do not", async () => {
    const clock = new FakeClock();
    let throttle = false;
    const fetch = scripted(clock, (input) => {
      const limit = input.endsWith("/c") ? "other" : "shared";
      return throttle && limit === "shared" ? closed(10, named(limit, 0, 10)) : answer(200, named(limit, 5, 10));
    });
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    for (const path of ["/a", "/b", "/c"]) api(url + path);
    await clock.advance(10);
    throttle = true;
    api(`${url}/a`);
    await clock.advance(10);
    throttle = false;
    const b = watch(api(`${url}/b`), clock);
    const c = watch(api(`${url}/c`), clock);
    await clock.advance(1_000);
    assert.equal(b.settled, false);
    assert.equal(c.settled, true);
    await clock.advance(20_000);
    assert.equal(b.settled, true);
  });

  it("a limit that alternates in successful responses stays learned", async () => {
    const clock = new FakeClock();
    let n = 0;
    const fetch = scripted(clock, () => (n++ === 0 ? answer(200, named("a", 3, 1)) : answer(200, named("b", 2, 1))));
    const gate = new Gate();
    const api = withRetry(fetch, { clock, gate });
    for (let i = 0; i < 3; i++) {
      api(url);
      await clock.advance(10);
    }
    const scope = "https://api.example\n";
    assert.equal(gate.queueFor(scope, "GET /items"), gate.queueFor(scope, '"a"'));
  });

  it("a shape learns its limit from the first response that names one, and from every throttle", () => {
    const gate = new Gate();
    const throttle = { sentAt: 0, hint: 0, retryAt: 0 };
    for (const [header, isThrottle, learned] of [
      [{}, false, "GET /"],
      [named("a", 1, 1), false, '"a"'],
      [named("b", 0, 1), false, '"a"'],
      [named("b", 0, 1), true, '"b"'],
      [named("a", 0, 1), false, '"b"'],
      [{}, true, '"b"'],
    ]) {
      const queue = gate.queueFor("scope", "GET /");
      queue.join({ clock: new FakeClock(), deadline: 0, signal: undefined });
      const settled = gate.settle("scope", "GET /", queue, new Headers(header), 0, isThrottle ? throttle : undefined);
      assert.equal(settled, gate.queueFor("scope", learned));
      assert.equal(settled, gate.queueFor("scope", "GET /"));
      assert.deepEqual([queue.inFlight, settled.inFlight], [0, 0]);
    }
  });

  it("responses to calls that were sent before the limit was known count for the limit", () => {
    const gate = new Gate();
    const queue = gate.queueFor("scope", "GET /");
    for (const name of ["a", "a", "b"]) {
      queue.join({ clock: new FakeClock(), deadline: 0, signal: undefined });
      const settled = gate.settle("scope", "GET /", queue, new Headers(named(name, 1, 1)), 0);
      assert.equal(settled, gate.queueFor("scope", `"${name}"`));
      assert.equal(gate.queueFor("scope", "GET /"), gate.queueFor("scope", '"a"'));
    }
  });

  it("late 429s of the same burst do not slow the lane down again", async () => {
    const clock = new FakeClock();
    let n = 0;
    const script = async () => {
      const place = ++n;
      if (place > 20) return answer();
      // The answers to the burst come one after another, 10 ms apart.
      await new Promise((resolve) => clock.startTimer(place * 10, resolve));
      return place > 10 ? closed(1) : answer();
    };
    const fetch = scripted(clock, script);
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    const calls = Array.from({ length: 20 }, () => watch(api(url), clock));
    await clock.advance(4_000);
    // 10 were accepted, so the pace starts at 7 a second; were each 429 to slow it down, it would be at 1.
    assert.ok(calls.every((call) => call.response?.status === 200));
  });

  it("frees the place of a failed send", async () => {
    const { clock, fetch, api } = await throttledApi({
      after: () => new TypeError("fetch failed"),
      options: { attempts: 1 },
    });
    const calls = Array.from({ length: 30 }, () => watch(api(url), clock));
    await clock.advance(29_000);
    assert.ok(calls.every((call) => call.settled));
    assert.equal(fetch.sends.length, 31);
  });

  for (const [name, options, response = answer()] of [
    ["random", { random: broken }],
    ["partition", { partition: broken }],
    ["the headers of a response", {}, Object.defineProperty(answer(429), "headers", { value: { get: broken } })],
    ["a response without headers", {}, { status: 200 }],
    ["no response", {}, null],
  ]) {
    it(`frees the place of a call that fails by an exception: ${name}`, async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const events = [];
      const api = withRetry(async () => response, { clock, gate, on: (event) => events.push(event.type), ...options });
      const call = watch(api(url), clock);
      await clock.advance(60_000);
      assert.ok(call.error instanceof Error);
      assert.equal(gate.queueFor("https://api.example\n", "GET /items").inFlight, 0);
      assert.equal(events.at(-1), "failed");
      assert.equal(clock.pending, 0);
    });
  }

  it("frees the place of a call whose clock fails, whenever that is", async () => {
    for (let reads = 1; reads <= 6; reads++) {
      const clock = new FakeClock();
      const gate = new Gate();
      let left = reads;
      const now = () => (left-- > 0 ? clock.now() : broken());
      const api = withRetry(async () => answer(), {
        clock: { now, wall: () => 0, startTimer: (...timer) => clock.startTimer(...timer) },
        gate,
      });
      await api(url).catch(() => {});
      assert.equal(gate.queueFor("https://api.example\n", "GET /items").inFlight, 0, `after ${reads} reads`);
    }
  });

  it("closes the copy of a Request's body if the partition fails", async () => {
    const source = { cancelled: false };
    const body = new ReadableStream({ cancel: () => void (source.cancelled = true) });
    const input = new Request(url, { method: "PUT", body, duplex: "half" });
    await assert.rejects(withRetry(async () => answer(), { partition: broken })(input), /broken/);
    input.body.cancel();
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(source.cancelled, true); // a stream with two readers is cancelled by both
  });

  it("a call whose lane opens only after its deadline is sent at once", async () => {
    const { clock, api } = await throttledApi({ seconds: 50 });
    const call = watch(api(url), clock);
    await clock.advance(0);
    assert.equal(call.response.status, 200);
  });

  it("a call that waits until its deadline fails without being sent", async () => {
    const { clock, fetch, api } = await throttledApi({
      headers: { ...named("a", 0, 1), "RateLimit-Policy": '"a";q=6;w=60' },
    });
    const calls = Array.from({ length: 10 }, () => watch(api(url), clock));
    await clock.advance(31_000);
    const failed = calls.filter((call) => call.error);
    assert.ok(failed.length >= 5);
    const { error } = failed[0];
    assert.ok(error instanceof DeadlineError && error instanceof Error);
    assert.deepEqual([error.name, error.attempts], ["DeadlineError", 0]);
    assert.ok(error.retryAt instanceof Date && error.retryAt.getTime() > clock.wall() - 10_000);
    assert.match(
      error.message,
      /^deadline passed before the send \(GET \/items at https:\/\/api\.example\); try again at 20/,
    );
    assert.equal(failed[0].endedAt, 30_010);
    assert.ok(fetch.sends.every((send) => send.at <= 30_010));
    assert.equal(clock.pending, 0);
  });

  it("returns the response at once if the lane cannot reach a retry before the deadline", async () => {
    const clock = new FakeClock();
    // 1 in 100 s: after a throttle the pace is one send in 99 s.
    const headers = { ...named("a", 0, 2), "RateLimit-Policy": '"a";q=1;w=100' };
    const fetch = scripted(clock, () => closed(2, headers));
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    const calls = Array.from({ length: 5 }, () => watch(api(url), clock));
    await clock.advance(0);
    const ended = calls.filter((call) => call.settled);
    assert.equal(ended.length, 4);
    for (const { response } of ended) {
      assert.equal(response.status, 429);
      assert.equal(response.bodyUsed, false);
      assert.equal(api.summary(response).why, "deadline");
      assert.equal(api.summary(response).retryAt.getTime(), clock.wall() + 2_000);
    }
  });

  it("remembers 1,024 limits and shapes, however many a server names", async () => {
    const clock = new FakeClock();
    let n = 0;
    const fetch = scripted(clock, () => answer(200, named(`limit-${n++}`, 1, 1)));
    const gate = new Gate();
    const api = withRetry(fetch, { clock, gate });
    const first = gate.queueFor("scope", "GET /first");
    for (let i = 0; i < 511; i++) await api(`https://host-${i}.example/`);
    const second = gate.queueFor("scope", "GET /second");
    assert.equal(gate.queueFor("scope", "GET /first"), first); // 511 shapes with a limit each, and these two
    for (let i = 0; i < 512; i++) await api(`https://other-${i}.example/`);
    assert.notEqual(gate.queueFor("scope", "GET /second"), second);
  });

  it("remembers a closed lane, however many other lanes are used meanwhile", async () => {
    const { clock, api, fetch } = await throttledApi({ seconds: 20 });
    for (let i = 0; i < 3_000; i++) await api(`https://host-${i}.example/`);
    const sends = fetch.sends.length;
    const call = watch(api(url), clock);
    await clock.advance(10_000);
    assert.deepEqual([call.settled, fetch.sends.length], [false, sends]);
  });

  it("remembers a lane with a call in flight, however many other lanes are used meanwhile", async () => {
    const clock = new FakeClock();
    let respond;
    const fetch = scripted(clock, () => new Promise((resolve) => (respond = resolve)), answer());
    const api = withRetry(fetch, { clock });
    api(url);
    for (let i = 0; i < 1_100; i++) await api(`https://host-${i}.example/`);
    respond(closed(20));
    await clock.advance(10);
    const call = watch(api(url), clock);
    await clock.advance(10_000);
    assert.equal(call.settled, false);
  });

  it("is bounded even if all lanes are closed, and forgets the oldest", async () => {
    const clock = new FakeClock();
    const gate = new Gate();
    const api = withRetry(async () => closed(50), { clock, gate });
    for (let i = 0; i < 1_100; i++) await api(`https://host-${i}.example/`);
    assert.equal(gate.queueFor("https://host-1099.example\n", "GET /").pacing, true);
    assert.equal(gate.queueFor("https://host-0.example\n", "GET /").pacing, false);
  });

  it("counts a response that names another limit there, and leaves no send behind", () => {
    const gate = new Gate();
    const sentIn = gate.queueFor("scope", "GET /");
    sentIn.join({ clock: new FakeClock(), deadline: 0, signal: undefined });
    const queue = gate.settle("scope", "GET /", sentIn, new Headers(named("a", 1, 1)), 0);
    assert.notEqual(queue, sentIn);
    assert.deepEqual([sentIn.inFlight, queue.inFlight], [0, 0]);
    assert.equal(gate.queueFor("scope", "GET /"), queue);
  });

  it("learns a policy only if it counts requests", () => {
    for (const [unit, rate] of [
      ["", 1 / 99],
      [';qu="requests"', 1 / 99],
      [';qu="content-bytes"', 1],
    ]) {
      const gate = new Gate();
      const sentIn = gate.queueFor("", "");
      sentIn.join({ clock: new FakeClock(), deadline: 0, signal: undefined });
      const headers = new Headers({ ...named("a", 0, 1), "RateLimit-Policy": `"b";q=7;w=7, "a";q=1;w=100${unit}` });
      const lane = gate.settle("", "", sentIn, headers, 0, { sentAt: 0, hint: 0, retryAt: 0 });
      assert.equal(lane.rate, rate);
    }
  });

  it("forgets retries that have been sent", async () => {
    const clock = new FakeClock();
    const headers = { ...named("a", 0, 1), "RateLimit-Policy": '"a";q=2;w=10' };
    let n = 0;
    const fetch = scripted(clock, () => (n++ % 2 === 0 ? closed(1, headers) : answer(200, named("a", 1, 1))));
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    for (let i = 0; i < 15; i++) {
      const call = watch(api(url), clock);
      await clock.advance(30_000);
      assert.equal(call.response.status, 200, `call ${i}`);
    }
  });

  it("sends nothing after a deadline that passed while the computer slept", async () => {
    const { clock, fetch, api } = await throttledApi();
    const calls = Array.from({ length: 20 }, () => watch(api(url), clock));
    await clock.advance(0);
    await clock.skip(60_000);
    assert.equal(fetch.sends.length, 1);
    assert.ok(calls.every((call) => call.error instanceof DeadlineError));
  });

  it("gate: false paces nothing", async () => {
    const { clock, api } = await throttledApi({ seconds: 20, options: { gate: false } });
    const call = watch(api(url), clock);
    await clock.advance(0);
    assert.equal(call.settled, true);
  });

  it("wrappers that share a gate share its lanes", async () => {
    const gate = new Gate();
    const { clock } = await throttledApi({ options: { gate } });
    const other = watch(withRetry(async () => answer(), { clock, gate })(url), clock);
    await clock.advance(500);
    assert.equal(other.settled, false);
  });
});

describe("a herd of 1,000 calls of one process", () => {
  /** A limiter with a bucket: `rate` a second, `burst` at once. */
  function limiter(clock, rate, burst) {
    let tokens = burst;
    let filledAt = 0;
    return async () => {
      await new Promise((resolve) => clock.startTimer(10, resolve));
      tokens = Math.min(burst, tokens + ((clock.now() - filledAt) * rate) / 1_000);
      filledAt = clock.now();
      const policy = { "RateLimit-Policy": `"b";q=${burst};w=${Math.ceil(burst / rate)}` };
      if (tokens < 1) return answer(429, { "Retry-After": "1", RateLimit: '"b";r=0;t=1', ...policy });
      tokens -= 1;
      return answer(200, { RateLimit: `"b";r=${Math.floor(tokens)};t=1`, ...policy });
    };
  }

  async function herd(gate) {
    const clock = new FakeClock();
    const fetch = scripted(clock, limiter(clock, 100, 10));
    const options = { clock, random: seeded(5), gate, attempts: 1_000, deadlineMs: 600_000, budget: false };
    const api = withRetry(fetch, options);
    const calls = Array.from({ length: 1_000 }, () => watch(api(url), clock));
    while (calls.some((call) => !call.settled) && clock.now() < 300_000) await clock.advance(1_000);
    return { sends: fetch.sends.length, lastMs: Math.max(...calls.map((call) => call.endedAt)) };
  }

  it("needs few more sends than the limiter forces, and few more seconds", async () => {
    const paced = await herd(new Gate());
    const alone = await herd(false);
    // 1,000 sends meet a burst of 10, so 990 have to be sent twice.
    assert.ok(paced.sends < 2_300, `${paced.sends} sends`);
    assert.ok(paced.lastMs < 30_000, `${paced.lastMs} ms`);
    assert.ok(paced.sends < alone.sends / 1.5, `${paced.sends} sends with the gate, ${alone.sends} without`);
  });
});
