// What goes wrong in practice: one test for each failure that other retry clients have had.
import assert from "node:assert/strict";
import { decide, defaultPolicy, Gate, withRetry } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";
import { describe, it } from "./harness.mjs";
import { answer, networkError, run, scripted, seeded, url, watch } from "./support.mjs";

const throttled = (headers = { "Retry-After": "1" }) => answer(429, headers);

describe("what goes wrong in practice", () => {
  it("clients that were denied together do not return together", async () => {
    const clock = new FakeClock();
    const times = [];
    const random = seeded(1);
    for (let client = 0; client < 200; client++) {
      const fetch = scripted(clock, throttled({ "Retry-After": "60" }), answer());
      withRetry(fetch, { clock, random, deadlineMs: 120_000 })(url).then(() => times.push(fetch.sends[1].at));
    }
    await clock.advance(70_000);
    assert.equal(times.length, 200);
    const most = Math.max(...countBy(times, (time) => Math.floor(time / 100)).values());
    assert.ok(most < 50, `${most} of 200 retries within 100 ms`);
    assert.ok(Math.min(...times) >= 60_000);
  });

  it("the spread grows with each attempt, and is added to the wait", async () => {
    const { times } = await run(throttled(), { options: { random: () => 0.999, gate: false } });
    assert.deepEqual(times.map((time, i) => time - (times[i - 1] ?? 0)).slice(1), [1_999, 2_998, 4_996]);
  });

  it("jitter never undercuts the hint", async () => {
    for (const random of [0, 0.001, 0.5, 0.999]) {
      const { times } = await run([throttled(), answer()], { options: { random: () => random } });
      assert.ok(times[1] >= 1_000 && times[1] < 2_000, `random ${random}: retry after ${times[1]} ms`);
    }
  });

  it("a 429 without a hint waits at least 10 % of its window, which starts at a second", async () => {
    const { times } = await run(answer(429), { options: { random: () => 0, gate: false } });
    assert.deepEqual(times, [0, 100, 300, 700]);
  });

  for (const seconds of ["61", "3600", "198300", "9999999999", "99999999999999999999"]) {
    it(`a Retry-After of ${seconds} s ends the call at once, with the time`, async () => {
      const { times, response, summary, endedAt, clock } = await run(throttled({ "Retry-After": seconds }));
      assert.deepEqual(times, [0]);
      assert.equal(response.status, 429);
      assert.equal(summary.why, "server-wait");
      assert.equal(endedAt, 0);
      const expected = Math.min(Number(seconds), 1e9) * 1_000;
      assert.equal(summary.retryAt.getTime() - (clock.wall() - clock.now()), expected);
      assert.equal(clock.pending, 0);
    });
  }

  it("a wait that does not fit the deadline is not started", async () => {
    const { times, summary, endedAt } = await run(throttled({ "Retry-After": "31" }));
    assert.deepEqual([times, summary.why, endedAt], [[0], "deadline", 0]);
  });

  it("no timer is longer than 30 s, so a wait of 2^31 ms does not overflow", async () => {
    const { clock, times, settled, waits } = await run([throttled({ "Retry-After": "2147484" }), answer()], {
      options: { serverWaitMaxMs: Infinity, deadlineMs: Infinity },
      advanceMs: 3_600_000,
    });
    assert.equal(clock.longestTimerMs, 30_000);
    assert.deepEqual([times, settled, waits[0].waitMs], [[0], false, 2_147_484_500]);
  });

  for (const hint of ["-1", "-60", "Sun, 15 Nov 2026 11:00:00 GMT", "0"]) {
    it(`Retry-After: ${hint} neither throws nor retries at once`, async () => {
      const { times } = await run([throttled({ "Retry-After": hint }), answer()], { options: { random: () => 0 } });
      assert.deepEqual(times, [0, 100]);
    });
  }

  it("a date is compared with the server's own clock", async () => {
    const clock = new FakeClock(Date.UTC(2026, 10, 15, 13)); // an hour ahead of the server
    const headers = { "Retry-After": "Sun, 15 Nov 2026 12:00:05 GMT", Date: "Sun, 15 Nov 2026 12:00:00 GMT" };
    const { times } = await run([throttled(headers), answer()], { options: { clock } });
    assert.deepEqual(times, [0, 5_500]);
  });

  it("a date with an unknown day of the week is no date", async () => {
    const headers = { "Retry-After": "Sun, 15 Nov 2026 12:00:05 GMT", Date: "Sundays, 15-Nov-26 11:59:00 GMT" };
    const { times } = await run([throttled(headers), answer()]);
    assert.deepEqual(times, [0, 5_500]);
  });

  it("a date from a cache is compared with our clock", async () => {
    const headers = {
      "Retry-After": "Sun, 15 Nov 2026 12:00:05 GMT",
      Date: "Sun, 15 Nov 2026 11:00:00 GMT",
      Age: "3600",
    };
    const { times } = await run([throttled(headers), answer()]);
    assert.deepEqual(times, [0, 5_500]);
  });

  it("Retry-After wins over counters that reset later", async () => {
    const headers = {
      "Retry-After": "1",
      "X-RateLimit-Reset": "6",
      "X-RateLimit-Remaining": "0",
      RateLimit: '"a";r=0;t=9',
    };
    const { times, waits } = await run([throttled(headers), answer()]);
    assert.deepEqual([times, waits[0].cause], [[0, 1_500], "retry-after"]);
  });

  it("a reset does not count while something remains", async () => {
    const { waits } = await run([throttled({ "X-RateLimit-Reset": "6", "X-RateLimit-Remaining": "3" }), answer()]);
    assert.equal(waits[0].cause, "throttled");
  });

  describe("requests that are not idempotent", () => {
    const post = { method: "POST", body: "x" };
    const streamError = (code) =>
      networkError("ERR_HTTP2_STREAM_ERROR", { message: `Stream closed with error code ${code}` });
    const refusedStream = streamError("NGHTTP2_REFUSED_STREAM");
    const brokenStream = streamError("NGHTTP2_INTERNAL_ERROR");
    const cases = [
      ["POST, 500", answer(500), post, 1],
      ["POST, 503 with Retry-After", answer(503, { "Retry-After": "1" }), post, 1],
      ["POST, a limiter's 429", throttled(), post, 2],
      ["POST, 429 without a limiter's header", answer(429), post, 1],
      ["POST without redirects, connection refused", networkError("ECONNREFUSED"), { ...post, redirect: "error" }, 2],
      [
        "POST without redirects, connection refused, perhaps to its body function's stream",
        networkError("ECONNREFUSED"),
        { method: "POST", body: () => new Blob(["x"]).stream(), redirect: "error" },
        1,
      ],
      ["POST, connection refused, perhaps by a redirect's target", networkError("ECONNREFUSED"), post, 1],
      ["POST without redirects, HTTP/2 stream refused", refusedStream, { ...post, redirect: "error" }, 2],
      ["POST, HTTP/2 stream refused, perhaps by a redirect's target", refusedStream, post, 1],
      ["POST without redirects, HTTP/2 stream cancelled", brokenStream, { ...post, redirect: "error" }, 1],
      ["POST, connection reset", networkError("ECONNRESET"), post, 1],
      ["POST, unreachable while reading", networkError("EHOSTUNREACH", { syscall: "read" }), post, 1],
      ["POST with Idempotency-Key, 500", answer(500), { ...post, headers: { "Idempotency-Key": "k" } }, 2],
      ["POST with an empty key, 500", answer(500), { ...post, headers: { "idempotency-key": "" } }, 1],
      ["POST marked safe, 500", answer(500), { ...post, retry: "safe" }, 2],
      ["GET marked unprocessed, 500", answer(500), { retry: "unprocessed" }, 1],
      ["GET marked unprocessed, a limiter's 429", throttled(), { retry: "unprocessed" }, 2],
      ["GET marked never, a limiter's 429", throttled(), { retry: "never" }, 1],
      ["PUT, 502", answer(502), { method: "put", body: "x" }, 2],
      ["PATCH, 502", answer(502), { method: "PATCH", body: "x" }, 1],
      ["DELETE, connection reset", networkError("ECONNRESET"), { method: "DELETE" }, 2],
    ];
    for (const [name, first, init, sends] of cases) {
      it(`${name}: ${sends === 1 ? "not retried" : "retried"}`, async () => {
        const result = await run([first, answer()], { init });
        assert.equal(result.sends.length, sends);
        if (sends === 1 && !(first instanceof Error)) assert.ok(["unsafe", "never"].includes(result.summary.why));
        if (sends === 1 && first instanceof Error) assert.equal(result.error, first);
      });
    }

    it("every address refused counts as not sent; one that failed otherwise does not", async () => {
      const refused = Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
      const reset = Object.assign(new Error("reset"), { code: "ECONNRESET" });
      for (const [errors, sends] of [
        [[refused, refused], 2],
        [[refused, reset], 1],
      ]) {
        const error = new TypeError("fetch failed", {
          cause: Object.assign(new AggregateError(errors), { code: "ECONNREFUSED" }),
        });
        const init = { ...post, redirect: "error" };
        assert.equal((await run([error, answer()], { init })).sends.length, sends);
      }
    });

    it("trust429: false retries a POST after no 429", async () => {
      const { sends } = await run([throttled(), answer()], { init: post, options: { trust429: false } });
      assert.equal(sends.length, 1);
    });
  });

  it("during a cool-down other calls do not keep firing", async () => {
    const clock = new FakeClock();
    const fetch = scripted(clock, throttled(), answer());
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    api(url);
    await clock.advance(10);
    for (let i = 0; i < 20; i++) api(url);
    await clock.advance(1_000);
    assert.equal(fetch.sends.length, 1);
    await clock.advance(28_000);
    assert.equal(fetch.sends.length, 22);
  });

  it("a throttle does not hold back calls that meet another limit", async () => {
    const clock = new FakeClock();
    const fetch = scripted(clock, throttled({ "Retry-After": "20" }), answer());
    const api = withRetry(fetch, { clock, random: () => 0.5 });
    api(`${url}/login`);
    await clock.advance(10);
    const other = watch(api(`${url}/search`), clock);
    await clock.advance(0);
    assert.equal(other.response.status, 200);
  });

  it("a call has at most 4 sends; retries are numbered for the server", async () => {
    const { sends, summary, response } = await run(answer(500));
    assert.equal(sends.length, 4);
    assert.deepEqual([summary.attempts, summary.why, response.status], [4, "attempts", 500]);
    const numbers = sends.map(({ init }) => new Headers(init?.headers).get("ratewright-attempt"));
    assert.deepEqual(numbers, [null, "2", "3", "4"]);
  });

  it("attemptHeader: false leaves the headers alone", async () => {
    const { sends } = await run([answer(500), answer()], {
      options: { attemptHeader: false },
      init: { headers: { a: "b" } },
    });
    assert.deepEqual([...sends[1].init.headers], [["a", "b"]]);
  });

  it("in an outage retries stop when the budget is empty", async () => {
    const clock = new FakeClock();
    const fetch = scripted(clock, answer(500));
    const api = withRetry(fetch, { clock, random: seeded(3) });
    const calls = [];
    for (let i = 0; i < 1_000; i++) calls.push(api(url));
    await clock.advance(60_000);
    const whys = countBy(await Promise.all(calls), (response) => api.summary(response).why);
    assert.equal(fetch.sends.length, 1_050);
    assert.ok(whys.get("budget") > 900);
  });

  it("a header that the browser hides means a second of backoff, not 100 ms loops", async () => {
    const { times } = await run([answer(429), answer(429), answer(429), answer()], { options: { gate: false } });
    assert.deepEqual(times, [0, 550, 1_650, 3_850]);
  });

  for (const [name, value, cause] of [
    ["RateLimit", ' "a";r=0;t=5 ', "ratelimit"],
    ["RateLimit", " limit=1, remaining=0, reset=5", "ratelimit"],
    ["RateLimit", '"a";r=0;t=5, remaining=0, reset=5', "throttled"],
    ["RateLimit", 'remaining=0, reset=5, "a";r=0;t=5', "throttled"],
    ["RateLimit", '\t"a";r=0;t=5', "throttled"],
    ["RateLimit", '"a";r=0;t=5, ', "throttled"],
    ["Retry-After", "Sunday, 15-Nov-26 12:00:05 GMT", "retry-after"],
    ["Retry-After", "Sundays, 15-Nov-26 12:00:05 GMT", "throttled"],
    ["Retry-After", "Sunnesday, 15-Nov-26 12:00:05 GMT", "throttled"],
    ["Retry-After", "Sun, 15-Nov-26 12:00:05 GMT", "throttled"],
    ["Retry-After", "Sun , 15 Nov 2026 12:00:05 GMT", "throttled"],
    ["Retry-After", "Thu, 06 Aug 252426 19:07:32 GMT", "throttled"],
    ["Retry-After", "Sun , 5", "retry-after"],
  ]) {
    it(`${name}: ${JSON.stringify(value)} is ${cause === "throttled" ? "malformed" : "read"}`, () => {
      const facts = {
        request: { method: "GET" },
        state: { attempts: 1, budget: 0 },
        seen: { status: 429, headers: [[name, value]] },
        now: { elapsedMs: 0, wallMs: Date.UTC(2026, 10, 15, 12) },
      };
      assert.equal(decide(defaultPolicy, facts, 0).cause, cause);
    });
  }

  it("a reset beyond every date is a wait of the longest kind, whatever the server's clock", async () => {
    for (const reset of ["9000000000001", "18446744073709551616", "9".repeat(400)]) {
      const headers = { "X-RateLimit-Reset": `${reset}000`, Date: "Fri, 31 Dec 9999 23:59:59 GMT" };
      const { summary, clock } = await run(throttled(headers));
      assert.deepEqual([summary.why, summary.retryAt - (clock.wall() - clock.now())], ["server-wait", 1e12]);
    }
  });

  it("an unknown kind of limit header is ignored", async () => {
    const { waits } = await run([throttled({ RateLimit: "weekly;r=0;t=5", "Retry-After": "soon" }), answer()]);
    assert.equal(waits[0].cause, "throttled");
  });
});

describe("clocks and timers", () => {
  it("the wall clock may jump during a wait", async () => {
    for (const jump of [3_600_000, -3_600_000]) {
      const clock = new FakeClock();
      const fetch = scripted(clock, throttled({ "Retry-After": "10" }), answer());
      withRetry(fetch, { clock, random: () => 0.5 })(url);
      await clock.advance(5_000);
      clock.jumpWall(jump);
      await clock.advance(5_499);
      assert.equal(fetch.sends.length, 1);
      await clock.advance(1);
      assert.equal(fetch.sends.length, 2);
    }
  });

  it("a timer that fires late sends late, but not after the deadline", async () => {
    const late = await lateWake(20_000);
    assert.deepEqual(late.times, [0, 20_000]);
    const tooLate = await lateWake(60_000);
    assert.deepEqual(tooLate.times, [0]);
    assert.equal(tooLate.outcome.error.name, "DeadlineError");
    assert.equal(tooLate.outcome.error.attempts, 1);
  });

  it("a timer that fires early sends nothing early", async () => {
    const clock = new FakeClock();
    const early = {
      now: () => clock.now(),
      wall: () => clock.wall(),
      startTimer: (ms, wake) => clock.startTimer(ms / 2, wake),
    };
    const fetch = scripted(clock, throttled(), answer());
    withRetry(fetch, { clock: early, random: () => 0 })(url);
    await clock.advance(3_000);
    assert.ok(fetch.sends[1].at >= 1_000);
  });

  it("a computer that slept releases no burst", async () => {
    const clock = new FakeClock();
    const fetch = scripted(clock, throttled(), answer());
    const api = withRetry(fetch, { clock, random: () => 0.5, deadlineMs: 600_000 });
    api(url);
    await clock.advance(10);
    for (let i = 0; i < 1_000; i++) api(url);
    await clock.advance(0);
    await clock.skip(60_000);
    assert.ok(fetch.sends.length <= 15, `${fetch.sends.length} sends at once`);
  });
});

async function lateWake(ms) {
  const clock = new FakeClock();
  const fetch = scripted(clock, throttled(), answer());
  const outcome = watch(withRetry(fetch, { clock, random: () => 0.5, gate: new Gate() })(url), clock);
  await clock.advance(0);
  await clock.skip(ms);
  return { times: fetch.sends.map((send) => send.at), outcome };
}

function countBy(values, key) {
  const counts = new Map();
  for (const value of values) counts.set(key(value), (counts.get(key(value)) ?? 0) + 1);
  return counts;
}
