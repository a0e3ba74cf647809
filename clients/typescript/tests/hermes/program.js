// Runs in Hermes. Prints one line of JSON for each check.
import "./globals.js";
import { decide, defaultPolicy, Lane, withRetry } from "../../dist/index.js";
import { FakeClock } from "../../dist/testing.js";

const url = "https://api.example/items";
// React Native's responses have a URL, and no `redirected`.
const closed = (seconds, from = url) =>
  new Response("", { status: 429, headers: { "Retry-After": seconds }, url: from });
const report = (name, value) => print(JSON.stringify({ name, value }));

function scripted(...script) {
  const sends = [];
  const fetch = (input, init) => {
    sends.push({ input, init, body: input._bodyText ?? init?.body });
    return Promise.resolve(script[Math.min(sends.length, script.length) - 1]);
  };
  return Object.assign(fetch, { sends });
}

async function vectors() {
  let passed = 0;
  const failed = [];
  for (const { name, steps, policy, request, state, seen, now, random, expect } of VECTORS) {
    if (steps) {
      const lane = new Lane();
      for (const step of steps) {
        if ("enter" in step) lane.enter(step.at);
        else if (step.learn) lane.learn(step.learn.q, step.learn.w);
        else if (step.throttled) lane.throttled(step.at, step.throttled);
        else if ("accepted" in step) lane.accepted(step.at);
        else lane.failed();
        if (step.rate !== undefined && Math.abs(lane.rate - step.rate) > step.rate * 1e-6) failed.push(name);
      }
      passed += 1;
      continue;
    }
    const facts = {
      request: { method: "GET", ...request },
      state: { attempts: 1, budget: 50000, ...state },
      seen: seen.failure ? seen : { headers: [], ...seen },
      now,
    };
    const { action, atMs, cause, cost, why, retryAtWallMs } = decide({ ...defaultPolicy, ...policy }, facts, random);
    const got = action === "retry" ? { retry: { atMs, cause, cost } } : { return: { why, retryAtWallMs } };
    if (JSON.stringify(got) === JSON.stringify(expect)) passed += 1;
    else failed.push([name, got, expect]);
  }
  report("vectors", { passed, failed: failed.slice(0, 5), total: VECTORS.length });
}

async function retry() {
  const clock = new FakeClock();
  const fetch = scripted(closed("1"), new Response("content"));
  const promise = withRetry(fetch, { clock, random: () => 0.5 })(url);
  await clock.advance(1500);
  const response = await promise;
  report("retry", { sends: fetch.sends.length, text: await response.text(), init: fetch.sends[1].init });
}

async function abort() {
  const clock = new FakeClock();
  const controller = new AbortController();
  let error;
  withRetry(scripted(closed("1")), { clock })(url, { signal: controller.signal }).catch((reason) => (error = reason));
  await clock.advance(100);
  controller.abort();
  await clock.advance(0);
  report("abort", { name: error.name, timers: clock.pending, listeners: controller.signal.listeners.size });
}

async function bodies() {
  const form = new FormData();
  form.append("a", { uri: "file:///a.jpg" });
  const inputs = [
    ["string", url, { method: "POST", body: "größe" }],
    ["form", url, { method: "POST", body: form }],
    ["request", new Request(url, { method: "POST", body: "content" })],
  ];
  for (const [name, input, init] of inputs) {
    const clock = new FakeClock();
    const fetch = scripted(closed("1"), new Response("content"));
    const promise = withRetry(fetch, { clock })(input, init);
    await clock.advance(3000);
    await promise;
    const [first, second] = fetch.sends;
    report(`body: ${name}`, { sends: fetch.sends.length, same: first.body === second.body && Boolean(first.body) });
  }
}

async function redirect() {
  const clock = new FakeClock();
  const fetch = scripted(closed("1", `${url}/1`), new Response("content"));
  const promise = withRetry(fetch, { clock })(url, { method: "POST", body: "order" });
  await clock.advance(3000);
  report("redirect", { sends: fetch.sends.length, status: (await promise).status });
}

async function systemClock() {
  const fetch = scripted(closed("0.05"), new Response("content"));
  const started = Date.now();
  await withRetry(fetch, { spread: { firstMs: 0, maxMs: 0 } })(url);
  report("system clock", { early: Date.now() - started < 50, sends: fetch.sends.length });
}

vectors()
  .then(retry)
  .then(abort)
  .then(bodies)
  .then(redirect)
  .then(systemClock)
  .catch((error) => report("error", String(error.stack)));
