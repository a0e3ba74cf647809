// Laws, over many made-up cases.
import assert from "node:assert/strict";
import { Budget, decide, defaultPolicy, Lane, withRetry } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";
import fc from "./fast-check.mjs";
import { describe, it } from "./harness.mjs";
import { answer, networkError, scripted, url, watch } from "./support.mjs";

const fraction = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const wallMs = 1_794_744_000_000;
const seconds = fc.oneof(fc.nat(120), fc.nat(10 ** 10)).map(String);
const hints = fc.oneof(
  seconds.map((value) => [["Retry-After", value]]),
  fc.nat(200_000).map((value) => [["Retry-After", (value / 1_000).toFixed(3)]]),
  fc.integer({ min: -100, max: 200 }).map((value) => [["Retry-After", new Date(wallMs + value * 1_000).toUTCString()]]),
  seconds.map((value) => [["RateLimit", `"a";r=0;t=${value}`]]),
  seconds.map((value) => [["X-RateLimit-Reset", value]]),
  fc.constant([]),
);

/** The wait that the made-up headers ask for, computed the plain way. */
function askedMs([line]) {
  if (!line) return 0;
  const [name, value] = line;
  if (value.endsWith("GMT")) return Math.max(0, Date.parse(value) - wallMs);
  const number = Number(value.replace('"a";r=0;t=', ""));
  if (name === "X-RateLimit-Reset" && number >= 1e9) return Math.max(0, number * 1_000 - wallMs);
  return number * 1_000;
}

describe("the decision", () => {
  it("is never earlier than the hint, at most 5 s later, and within the deadline (100,000 cases)", () => {
    const cases = fc.tuple(
      hints,
      fraction,
      fc.integer({ min: 1, max: 6 }),
      fc.nat(40_000),
      fc.constantFrom(429, 503, 500, 408),
    );
    const check = ([headers, random, attempts, elapsedMs, status]) => {
      const policy = { ...defaultPolicy, attempts: 6, serverWaitMaxMs: 100_000, deadlineMs: 100_000 };
      const facts = {
        request: { method: "GET" },
        state: { attempts, budget: 50_000 },
        seen: { status, headers },
        now: { elapsedMs, wallMs },
      };
      const decision = decide(policy, facts, random);
      const asked = askedMs(headers);
      if (decision.action === "return") {
        if (decision.why === "server-wait") assert.ok(asked > 100_000);
        return;
      }
      const wait = decision.atMs - elapsedMs;
      assert.ok(wait >= asked - 0.001, `waits ${wait}, asked for ${asked}`);
      assert.ok(wait < asked + (asked > 0 ? 5_001 : 10_001));
      assert.ok(decision.atMs <= policy.deadlineMs && attempts < policy.attempts && asked <= 100_001);
      assert.ok(Number.isInteger(decision.atMs));
    };
    fc.assert(fc.property(cases, check), { numRuns: 100_000 });
  });
});

const results = fc.constantFrom(
  () => answer(),
  () => answer(429),
  () => answer(429, { "Retry-After": "1" }),
  () => answer(429, { "Retry-After": "20", RateLimit: '"a";r=0;t=20', "RateLimit-Policy": '"a";q=10;w=10' }),
  () => answer(503, { "Retry-After": "2" }),
  () => answer(500),
  () => networkError("ECONNREFUSED"),
  () => networkError("ECONNRESET"),
);

describe("calls", () => {
  it("keep to their attempts and deadline, and leave nothing behind", async () => {
    const calls = fc.array(
      fc.record({
        startMs: fc.nat(20_000),
        latencyMs: fc.nat(3_000),
        abortMs: fc.option(fc.nat(40_000), { freq: 4 }),
        method: fc.constantFrom("GET", "POST"),
        script: fc.array(results, { minLength: 1, maxLength: 6 }),
      }),
      { minLength: 1, maxLength: 12 },
    );
    const check = async (plans, random, attempts, deadlineMs) => {
      const clock = new FakeClock();
      const sends = plans.map(() => []);
      let hung = 0;
      const fetch = (input, { signal }) =>
        new Promise((resolve, reject) => {
          const index = Number(new URL(input).searchParams.get("n"));
          const { script, latencyMs } = plans[index];
          sends[index].push(clock.now());
          hung += 1;
          const settle = (act) => {
            hung -= 1;
            signal.removeEventListener("abort", abort);
            act();
          };
          const abort = () => {
            cancel();
            settle(() => reject(signal.reason));
          };
          const cancel = clock.startTimer(latencyMs, () =>
            settle(() => {
              const result = script[(sends[index].length - 1) % script.length]();
              if (result instanceof Error) reject(result);
              else resolve(result);
            }),
          );
          signal.addEventListener("abort", abort);
        });
      const api = withRetry(fetch, { clock, random: () => random, attempts, deadlineMs });
      const outcomes = plans.map((plan, index) => {
        const controller = new AbortController();
        const outcome = { settled: false };
        clock.startTimer(plan.startMs, () => {
          outcome.startedAt = clock.now();
          const promise = api(`${url}?n=${index}`, { method: plan.method, signal: controller.signal });
          promise.catch(() => {}).then(() => Object.assign(outcome, { settled: true, endedAt: clock.now() }));
        });
        if (plan.abortMs !== null) {
          clock.startTimer(plan.abortMs, () => {
            controller.abort(new Error("left"));
            outcome.abortedAt = clock.now();
          });
        }
        return outcome;
      });
      await clock.advance(20_000 + deadlineMs + 5_000);
      for (const [index, outcome] of outcomes.entries()) {
        assert.ok(outcome.settled, `call ${index} never ended`);
        assert.ok(sends[index].length <= attempts);
        assert.ok(sends[index].every((at) => at - outcome.startedAt <= deadlineMs));
        if (outcome.abortedAt !== undefined)
          assert.ok(outcome.endedAt <= Math.max(outcome.abortedAt, outcome.startedAt));
      }
      assert.equal(hung, 0);
      await clock.advance(60_000);
      assert.equal(clock.pending, 0);
    };
    const property = fc.asyncProperty(
      calls,
      fraction,
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 100, max: 40_000 }),
      check,
    );
    await fc.assert(property, { numRuns: 150 });
  });

  it("can be cancelled at every moment of a wait", async () => {
    const check = async (atMs) => {
      const clock = new FakeClock();
      const fetch = scripted(clock, answer(429, { "Retry-After": "3" }));
      const api = withRetry(fetch, { clock, random: () => 0.3 });
      const controller = new AbortController();
      const calls = [url, url, url].map((target) => watch(api(target, { signal: controller.signal }), clock));
      await clock.advance(atMs);
      controller.abort();
      await clock.advance(0);
      const sent = fetch.sends.length;
      assert.ok(calls.every((call) => call.settled && call.endedAt <= atMs));
      assert.equal(clock.pending, 0);
      await clock.advance(60_000);
      assert.equal(fetch.sends.length, sent);
    };
    await fc.assert(fc.asyncProperty(fc.nat(30_000), check), { numRuns: 300 });
  });
});

describe("the budget", () => {
  it("never gives out more than it holds and earns, for every ratio", () => {
    const steps = fc.array(fc.constantFrom("take", "earn"), { maxLength: 500 });
    const check = (retriesMax, perSuccess, history) => {
      const budget = new Budget({ retriesMax, perSuccess });
      let taken = 0;
      let earned = 0;
      for (const step of history) {
        if (step === "earn") {
          budget.earn("a");
          earned += 1;
        } else if (budget.take("a", 1_000)) taken += 1;
        assert.ok(taken <= retriesMax + earned * perSuccess + 1e-9);
        assert.ok(budget.level("a") >= 0 && budget.level("a") <= retriesMax * 1_000);
      }
    };
    fc.assert(
      fc.property(
        fc.nat(60),
        fc.integer({ min: 0, max: 1_000 }).map((n) => n / 1_000),
        steps,
        check,
      ),
    );
  });

  it("is never exceeded, however calls interleave", async () => {
    const check = async (latencies, retriesMax) => {
      const clock = new FakeClock();
      let sends = 0;
      const fetch = async () => {
        await new Promise((resolve) => clock.startTimer(latencies[sends++ % latencies.length], resolve));
        return answer(500);
      };
      const api = withRetry(fetch, { clock, budget: new Budget({ retriesMax }), gate: false });
      for (let i = 0; i < 60; i++) api(url);
      await clock.advance(40_000);
      assert.equal(sends, 60 + Math.min(retriesMax, 180));
    };
    const latencies = fc.array(fc.nat(500), { minLength: 1, maxLength: 20 });
    await fc.assert(fc.asyncProperty(latencies, fc.nat(60), check), { numRuns: 50 });
  });
});

describe("the lane", () => {
  it("keeps its pace within the ceiling, and its count of sends right", () => {
    const steps = fc.array(fc.tuple(fc.constantFrom("enter", "accepted", "failed", "throttled"), fc.nat(2_000)), {
      maxLength: 200,
    });
    const check = (history, quota, windowSeconds) => {
      const lane = new Lane();
      lane.learn(quota, windowSeconds);
      let now = 0;
      const sent = [];
      for (const [step, passed] of history) {
        now += passed;
        if (step === "enter") {
          const entry = lane.enter(now);
          if (entry === "go") sent.push(now);
          else if (entry !== "full") assert.ok(entry.until > now);
        } else if (sent.length > 0) {
          const sentAt = sent.shift();
          if (step === "throttled") lane.throttled(now, { sentAt, hint: passed, retryAt: now + passed });
          else lane[step](now);
        }
        assert.equal(lane.inFlight, sent.length);
        assert.ok(lane.rate > 0);
        if (lane.pacing) assert.ok(lane.rate <= quota / (windowSeconds - 1) + 1e-9);
      }
    };
    fc.assert(fc.property(steps, fc.integer({ min: 1, max: 1_000 }), fc.integer({ min: 2, max: 100 }), check));
  });
});
