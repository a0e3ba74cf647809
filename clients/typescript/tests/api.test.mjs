// The wrapper itself: inputs, events, summaries, and what it leaves alone.
import assert from "node:assert/strict";
import { Budget, decide, defaultPolicy, Gate, withRetry } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";
import { describe, it } from "./harness.mjs";
import { answer, networkError, run, scripted, url, watch } from "./support.mjs";

const closed = (seconds = "1") => answer(429, { "Retry-After": seconds });

describe("withRetry", () => {
  it("without a function uses globalThis.fetch, looked up at the call", async (context) => {
    const api = withRetry();
    const withOptions = withRetry({ attempts: 1 });
    context.mock.method(globalThis, "fetch", async () => answer(204));
    assert.equal((await api(url)).status, 204);
    assert.equal((await withOptions(url)).status, 204);
  });

  it("calls the function without a receiver, as browsers demand", async () => {
    let receiver = "not called";
    await withRetry(async function () {
      receiver = this;
      return answer();
    })(url);
    assert.equal(receiver, undefined);
  });

  it("passes the arguments on, and adds nothing to a first send", async () => {
    const init = { method: "POST", body: "x", headers: { a: "b" }, cache: "no-store" };
    const { sends } = await run(answer(), { init: { ...init, retry: "safe" } });
    assert.equal(sends[0].input, url);
    assert.deepEqual({ ...sends[0].init, headers: Object.fromEntries(sends[0].init.headers) }, init);
  });

  it("adds duplex for a stream", async () => {
    const { sends } = await run(answer(), { init: { method: "POST", body: new Blob(["x"]).stream() } });
    assert.equal(sends[0].init.duplex, "half");
  });

  for (const input of [url, new URL(url), new Request(url)]) {
    it(`accepts a ${input.constructor.name}`, async () => {
      const { sends, events } = await run([closed(), answer()], { input });
      assert.equal(sends.length, 2);
      assert.equal(events[0].url, url);
    });
  }

  it("accepts relative URLs, which only browsers can send", async () => {
    const { sends } = await run([closed(), answer()], { input: "/items/7?x#y" });
    assert.equal(sends.length, 2);
  });

  it("reads init as fetch does: inherited members and getters count, null is none", async () => {
    const plain = { method: "PUT", headers: { a: "b" }, body: "content" };
    for (const init of [new Request(url, plain), Object.create(plain), plain]) {
      const { sends } = await run(answer(), { init });
      const sent = new Request(sends[0].input, sends[0].init);
      assert.deepEqual([sent.method, sent.headers.get("a"), await sent.text()], ["PUT", "b", "content"]);
    }
    assert.equal((await run([closed(), answer()], { init: null })).response?.status, 200);
  });

  it("keeps the referrer and the referrer policy of a Request, in each attempt", async () => {
    const given = { referrerPolicy: "no-referrer", referrer: "" };
    for (const [input, init, policy] of [
      [new Request(url, given), undefined, "no-referrer"],
      [new Request(url, given), { retry: "safe" }, "no-referrer"],
      [new Request(url, given), { referrerPolicy: "origin" }, "origin"],
    ]) {
      const seen = [];
      const read = (response) => (target, sent) => {
        const { referrerPolicy, referrer } = new Request(target, sent);
        seen.push([referrerPolicy, referrer]);
        return response;
      };
      await run([read(closed()), read(answer())], { input, init });
      assert.deepEqual(seen, [
        [policy, ""],
        [policy, ""],
      ]);
    }
  });

  it("rejects options that could only be mistakes", () => {
    assert.throws(() => withRetry(fetch, { attempts: 0 }), /option attempts is 0; use at least 1/);
    assert.throws(() => withRetry(fetch, { deadlineMs: Number.NaN }), RangeError);
    assert.throws(() => new Budget({ retriesMax: -1 }), RangeError);
    assert.throws(() => withRetry(fetch, { spread: { firstMs: -1 } }), /option firstMs is -1; use at least 0/);
  });

  it("completes a backoff that is given in part, so that no wait is cut short", async () => {
    const { waits } = await run([answer(429, { "Retry-After": "2" }), answer()], {
      options: { spread: { firstMs: 500 } },
    });
    assert.equal(waits[0].waitMs, 2_250);
  });

  it("sends what the caller gave, even if it changes later", async () => {
    const clock = new FakeClock();
    const fetch = scripted(clock, answer());
    const api = withRetry(fetch, { clock });
    const init = { method: "PUT", headers: { a: "1" } };
    const buffer = new Uint8Array([1, 2, 3]);
    const target = new URL(url);
    for (const body of ["one", "two", buffer]) {
      init.body = body;
      init.headers.a = String(body);
      api(target, init);
    }
    buffer.fill(9);
    target.pathname = "/changed";
    await clock.advance(10);
    const bodies = fetch.sends.map(({ init: sent }) => String(sent.body));
    assert.deepEqual(bodies, ["one", "two", "1,2,3"]);
    assert.deepEqual(
      fetch.sends.map(({ init: sent }) => sent.headers.get("a")),
      bodies,
    );
    assert.ok(fetch.sends.every(({ input }) => input === url));
  });

  it("repeats what the caller gave, even if it changes while the retry waits", async () => {
    const init = { method: "PUT", headers: { a: "1" }, body: "one", cache: "no-store" };
    const change = () => Object.assign(init, { method: "DELETE", headers: { a: "2" }, body: "two", cache: "reload" });
    const { sends } = await run([closed(), answer()], {
      init,
      options: { on: ({ type }) => type === "waiting" && change() },
    });
    const { method, body, cache, headers } = sends[1].init;
    assert.deepEqual([method, body, cache, headers.get("a")], ["PUT", "one", "no-store", "1"]);
  });

  it("sends what a body factory makes, even if that is nothing", async () => {
    for (const [made, sent] of [
      ["", ""],
      [undefined, null],
      [null, null],
    ]) {
      const { sends } = await run(answer(), { init: { method: "PUT", body: () => made } });
      assert.equal(sends[0].init.body, sent);
    }
  });

  it("counts a URL for the host that fetch sends it to", async () => {
    const clock = new FakeClock();
    const events = [];
    const api = withRetry(scripted(clock, answer(429, { "Retry-After": "20" }), answer()), {
      clock,
      on: (e) => events.push(e),
    });
    api("https://evil.test\\@api.example/items");
    await clock.advance(10);
    api(url);
    await clock.advance(10);
    assert.deepEqual(
      events.map(({ type }) => type).filter((type) => type === "queued"),
      [],
    );
  });

  it("survives a handler that rejects", async () => {
    const { response } = await run(answer(), { options: { on: async () => Promise.reject(new Error("handler")) } });
    assert.equal(response.status, 200);
  });

  it("a redirected POST is not sent twice", async () => {
    const redirected = () => Object.defineProperty(answer(429, { "Retry-After": "1" }), "redirected", { value: true });
    const post = { method: "POST", body: "x" };
    assert.equal((await run([redirected(), answer()], { init: post })).sends.length, 1);
    assert.equal((await run([redirected(), answer()])).sends.length, 2);
  });

  it("a POST is not sent twice where nothing shows that it was not redirected, as in React Native", async () => {
    const post = { method: "POST", body: "x" };
    for (const [responseUrl, sends] of [
      [url, 2],
      [`${url}/1`, 1],
      ["", 1],
      [undefined, 1],
    ]) {
      const seen = { status: 429, url: responseUrl, headers: new Headers({ "Retry-After": "1" }) };
      for (const input of [url, `${url}#part`]) {
        assert.equal((await run([() => seen, answer()], { input, init: post })).sends.length, sends);
        assert.equal((await run([() => seen, answer()], { input })).sends.length, 2);
      }
    }
  });

  it("reads a header full of spaces in linear time", () => {
    const spaces = " ".repeat(200_000);
    const headers = [
      ["X-RateLimit-Remaining", `0${spaces}x`],
      ["X-RateLimit-Reset", "5"],
      ["Date", `a${spaces}b`],
    ];
    const seen = { status: 429, headers };
    const facts = {
      request: { method: "GET" },
      state: { attempts: 1, budget: 50_000 },
      seen,
      now: { elapsedMs: 0, wallMs: 0 },
    };
    const start = process.cpuUsage().user;
    decide(defaultPolicy, facts, 0);
    assert.ok(process.cpuUsage().user - start < 5_000_000); // the old expression took minutes
  });

  it("takes undefined options as absent", async () => {
    const { sends } = await run([closed(), answer()], {
      options: { attempts: undefined, gate: undefined, budget: undefined },
    });
    assert.equal(sends.length, 2);
  });

  it("does not retry arguments that fetch rejects", async () => {
    for (const [input, init] of [
      ["http://", undefined],
      [url, { method: "GET", body: "x" }],
      [url, { headers: { "bad header": "x" } }],
    ]) {
      let sends = 0;
      const api = withRetry((...args) => (sends++, fetch(...args)), { clock: new FakeClock() });
      await assert.rejects(api(input, init), TypeError);
      assert.ok(sends <= 1); // some are rejected before fetch sees them
    }
  });

  it("does not retry a Request whose body was used", async () => {
    const used = new Request(url, { method: "PUT", body: "x" });
    await used.text();
    for (const args of [[used], [url, used]]) {
      let sends = 0;
      const clock = new FakeClock();
      const api = withRetry((...given) => (sends++, fetch(...given)), { clock });
      const call = watch(api(...args), clock);
      for (let i = 0; i < 20 && !call.settled; i++) {
        await new Promise((resolve) => setImmediate(resolve));
        await clock.advance(1_000);
      }
      assert.ok(call.error instanceof TypeError);
      assert.ok(sends <= 1, `${sends} sends`);
    }
  });

  it("retries a failed connection, and rejects with the last error", async () => {
    const { sends, error, summary, waits } = await run(() => networkError("ECONNREFUSED"));
    assert.equal(sends.length, 4);
    assert.equal(error.cause.code, "ECONNREFUSED");
    assert.deepEqual([summary.attempts, summary.why], [4, "attempts"]);
    assert.equal(waits[0].cause, "connection");
  });

  it("does not mistake an error that is no object", async () => {
    const clock = new FakeClock();
    const api = withRetry(() => Promise.reject("offline"), { clock, attempts: 2, random: () => 0 });
    const call = watch(api(url), clock);
    await clock.advance(10);
    assert.equal(call.error, "offline");
    assert.equal(api.summary(answer()), undefined);
  });

  it("uses the defaults that its page documents", () => {
    assert.deepEqual(defaultPolicy, {
      attempts: 4,
      deadlineMs: 30_000,
      serverWaitMaxMs: 60_000,
      failureBackoff: { firstMs: 100, maxMs: 5_000 },
      throttleBackoff: { firstMs: 1_000, maxMs: 10_000 },
      spread: { firstMs: 1_000, maxMs: 5_000 },
      replayMax: 65_536,
      trust429: true,
    });
  });
});

describe("responses", () => {
  it("the returned one is untouched", async () => {
    const { response } = await run([closed(), answer(200, {}, "content")]);
    assert.equal(response.bodyUsed, false);
    assert.equal(await response.text(), "content");
  });

  it("the last one of a call that gives up is untouched too", async () => {
    const { response, summary } = await run(answer(429, { "Retry-After": "3600" }, "slow down"));
    assert.equal(summary.why, "server-wait");
    assert.equal(await response.text(), "slow down");
  });

  it("an abandoned one is drained if it is short, and cancelled if it is long", async () => {
    for (const [chunk, chunks, cancelled] of [
      [100, 3, false],
      [30_000, 100, true],
    ]) {
      const stream = countedStream(chunk, chunks);
      await run([new Response(stream.body, { status: 429, headers: { "Retry-After": "1" } }), answer()]);
      assert.equal(stream.cancelled, cancelled);
      assert.ok(stream.pulled <= 5, `${stream.pulled} chunks read`);
    }
  });

  it("one whose body never ends is cancelled before the next send", async () => {
    let cancelled = false;
    const body = new ReadableStream({ cancel: () => void (cancelled = true) });
    const { sends } = await run([
      new Response(body, { status: 429, headers: { "Retry-After": "1" } }),
      () => {
        assert.equal(cancelled, true);
        return answer();
      },
    ]);
    assert.equal(sends.length, 2);
  });
});

describe("a response that cannot be drained", () => {
  it("is given up nevertheless: its body belongs to the one who reads it", async () => {
    const locked = answer(429, { "Retry-After": "1" }, "slow down");
    const reader = locked.body.getReader();
    const { response, sends } = await run([locked, answer()]);
    assert.deepEqual([response?.status, sends.length], [200, 2]);
    assert.equal(new TextDecoder().decode((await reader.read()).value), "slow down");
  });

  it("because a wrapper below has read it already, is given up as well", async () => {
    const read = async () => {
      const response = answer(429, { "Retry-After": "1" }, "slow down");
      await response.text();
      return response;
    };
    const clock = new FakeClock();
    const fetch = scripted(clock, read, answer());
    const call = watch(withRetry(fetch, { clock })(url), clock);
    for (let i = 0; i < 20 && !call.settled; i++) {
      await new Promise((resolve) => setImmediate(resolve));
      await clock.advance(1_000);
    }
    assert.equal(call.response?.status, 200);
  });
});

describe("events", () => {
  it("tell what a call does", async () => {
    const { events } = await run([closed(), networkError("ECONNRESET"), answer()]);
    const base = { method: "GET", url };
    assert.deepEqual(events, [
      { ...base, attempts: 1, type: "sending" },
      { ...base, attempts: 1, type: "waiting", cause: "retry-after", waitMs: 1_500, status: 429 },
      { ...base, attempts: 2, type: "sending" },
      { ...base, attempts: 2, type: "waiting", cause: "connection", waitMs: 100, status: undefined },
      { ...base, attempts: 2, type: "queued", waiting: 1 },
      { ...base, attempts: 3, type: "sending" },
      { ...base, attempts: 3, type: "returned", status: 200, why: "done", retryAt: undefined },
    ]);
  });

  it("tell why a call failed", async () => {
    const { events, error } = await run(networkError("ECONNRESET"), { init: { method: "POST" } });
    assert.deepEqual(events.at(-1), { method: "POST", url, attempts: 1, type: "failed", error, why: "unsafe" });
  });

  it("an exception in the handler does not break the call", async () => {
    const on = () => {
      throw new Error("broken handler");
    };
    const { response } = await run([closed(), answer()], { options: { on } });
    assert.equal(response.status, 200);
  });
});

describe("the budget", () => {
  it("is kept for each origin, whatever the partition", async () => {
    const clock = new FakeClock();
    const budget = new Budget({ retriesMax: 1 });
    const fetch = scripted(clock, answer(500));
    const api = withRetry(fetch, { clock, budget, partition: (target) => new URL(target.url).search });
    const whys = [];
    for (const target of [url, url, "https://other.example/", `${url}?b`]) {
      const call = watch(api(target), clock);
      await clock.advance(10_000);
      whys.push([api.summary(call.response).attempts, api.summary(call.response).why]);
    }
    assert.deepEqual(whys, [
      [2, "budget"],
      [1, "budget"],
      [2, "budget"],
      [1, "budget"],
    ]);
  });

  it("a success earns a tenth of a retry, a 429 costs nothing", async () => {
    const budget = new Budget();
    const key = "https://api.example";
    await run([answer(500), answer()], { options: { budget } });
    assert.equal(budget.level(key), 49_100);
    await run([closed(), answer()], { options: { budget } });
    assert.equal(budget.level(key), 49_200);
  });

  it("budget: false bounds nothing", async () => {
    const { sends } = await run(answer(500), {
      options: { budget: false, attempts: 100, failureBackoff: { firstMs: 0, maxMs: 0 } },
    });
    assert.equal(sends.length, 100);
  });

  it("remembers an origin that has spent it, however many others there are", () => {
    const budget = new Budget();
    for (let i = 0; i < 50; i++) budget.take("down", 1_000);
    for (let i = 0; i < 5_000; i++) budget.take(`origin-${i}`, 1_000);
    assert.equal(budget.level("down"), 0);
  });

  it("forgets the fullest first, so that calls to other origins do not refill one", () => {
    const budget = new Budget();
    for (let i = 0; i < 24; i++) budget.take("flaky", 1_000);
    for (let i = 0; i < 5_000; i++) budget.take(`origin-${i}`, 3_000);
    assert.equal(budget.level("flaky"), 26_000);
  });

  it("stays bounded, however many origins there are", () => {
    const budget = new Budget();
    for (let i = 0; i < 5_000; i++) budget.take(`origin-${i}`, 1_000);
    assert.equal(budget.level("origin-4999"), 49_000);
    assert.equal(budget.level("origin-0"), 50_000);
  });
});

describe("hostile servers", () => {
  it("cannot make header parsing slow", () => {
    const attacks = ["\\", '"a"', ";r", ",", ";r=0", " ", "\t", '"', "=", "9", ":", "?1,"].map((part) =>
      part.repeat(8_192).slice(0, 8_192),
    );
    const gate = new Gate();
    const started = process.cpuUsage();
    for (const value of attacks) {
      for (const text of [value, `"a";r=0;t=1;x=${value}`.slice(0, 8_192), `"a${value}`.slice(0, 8_192)]) {
        const headers = new Headers({ RateLimit: text, "RateLimit-Policy": text, "Retry-After": text.slice(0, 1_024) });
        const resets = new Headers({
          "RateLimit-Reset": `${text}x`,
          "X-RateLimit-Remaining": text,
          "X-RateLimit-Reset": text,
        });
        for (const seen of [headers, resets]) {
          const facts = {
            request: { method: "GET" },
            state: { attempts: 1, budget: 0 },
            now: { elapsedMs: 0, wallMs: 0 },
          };
          decide(defaultPolicy, { ...facts, seen: { status: 429, headers: seen } }, 0);
        }
        const queue = gate.queueFor("scope", "shape");
        queue.join({ clock: new FakeClock(), deadline: 0, signal: undefined });
        gate.settle("scope", "shape", queue, headers, 0, { sentAt: 0, hint: 0, retryAt: 0 });
      }
    }
    const spentMs = process.cpuUsage(started).user / 1_000;
    assert.ok(spentMs < 2_000, `${spentMs} ms of CPU for ${attacks.length * 3} headers`);
  });

  it("cannot reach the prototype of an object by a parameter's name", async () => {
    const { response } = await run([answer(429, { RateLimit: '"a";r=0;t=1;__proto__=1;constructor=2' }), answer()]);
    assert.equal(response.status, 200);
    assert.equal({}.r, undefined);
  });
});

/** A body of `chunks` pieces of `size` bytes that counts what is read. */
function countedStream(size, chunks) {
  const stream = { pulled: 0, cancelled: false };
  stream.body = new ReadableStream(
    {
      pull(controller) {
        stream.pulled += 1;
        controller.enqueue(new Uint8Array(size));
        if (stream.pulled === chunks) controller.close();
      },
      cancel: () => void (stream.cancelled = true),
    },
    { highWaterMark: 0 },
  );
  return stream;
}
