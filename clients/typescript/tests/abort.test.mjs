// Aborts: at once, with the signal's reason, and nothing is left behind.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { Gate, withRetry } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";
import { describe, it } from "./harness.mjs";
import { answer, scripted, url, watch } from "./support.mjs";

const reason = new Error("the user left");
const closed = (seconds = 5) => answer(429, { "Retry-After": String(seconds) });
/** A send that takes until the signal aborts, as a real fetch does. */
const hanging = (_, init) =>
  new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason), { once: true }));

function start(script, { signal, options = {}, input = url } = {}) {
  const clock = new FakeClock();
  const fetch = scripted(clock, ...script);
  const gate = new Gate();
  const api = withRetry(fetch, { clock, gate, random: () => 0.5, ...options });
  return { clock, fetch, gate, api, call: watch(api(input, { signal }), clock) };
}

describe("an abort", () => {
  it("before the send: nothing is sent", async () => {
    const controller = new AbortController();
    controller.abort(reason);
    const { call, fetch, clock } = start([answer()], { signal: controller.signal });
    await clock.advance(0);
    assert.equal(call.error, reason);
    assert.equal(fetch.sends.length, 0);
  });

  it("during the send: rejects at once, is not retried, and frees the lane", async () => {
    const controller = new AbortController();
    const { call, fetch, clock, gate } = start([hanging, answer()], { signal: controller.signal });
    await clock.advance(100);
    controller.abort(reason);
    await clock.advance(0);
    assert.equal(call.error, reason);
    assert.equal(inFlight(gate), 0);
    await clock.advance(60_000);
    assert.equal(fetch.sends.length, 1);
  });

  it("during the wait: rejects at once and clears the timer", async () => {
    const controller = new AbortController();
    const { call, fetch, clock } = start([closed(), answer()], { signal: controller.signal });
    await clock.advance(100);
    assert.equal(clock.pending, 1);
    controller.abort(reason);
    await clock.advance(0);
    assert.equal(call.error, reason);
    assert.equal(call.endedAt, 100);
    assert.equal(clock.pending, 0);
    await clock.advance(60_000);
    assert.equal(fetch.sends.length, 1);
  });

  it("in the gate's queue: rejects at once, and those behind move up", async () => {
    const { clock, api, fetch } = start([closed(), answer()]);
    await clock.advance(10);
    const controllers = Array.from({ length: 3 }, () => new AbortController());
    const calls = controllers.map(({ signal }, i) => watch(api(`${url}?n=${i}`, { signal }), clock));
    await clock.advance(10);
    controllers[0].abort(reason);
    controllers[1].abort(reason);
    await clock.advance(0);
    assert.deepEqual(
      calls.map((call) => call.error),
      [reason, reason, undefined],
    );
    await clock.advance(20_000);
    assert.equal(calls[2].response.status, 200);
    assert.deepEqual(
      fetch.sends.map((send) => new URL(send.input).search),
      ["", "?n=2", ""],
    );
    assert.equal(clock.pending, 0);
  });

  it("of the only call in the queue clears the lane's timer", async () => {
    const first = new AbortController();
    const { clock, api } = start([closed(), answer()], { signal: first.signal });
    await clock.advance(10);
    const second = new AbortController();
    const call = watch(api(url, { signal: second.signal }), clock);
    await clock.advance(10);
    first.abort(reason);
    second.abort(reason);
    await clock.advance(0);
    assert.equal(call.error, reason);
    assert.equal(clock.pending, 0);
  });

  it("through the signal of a Request", async () => {
    const controller = new AbortController();
    const input = new Request(url, { signal: controller.signal });
    const { call, clock } = start([closed(), answer()], { input });
    await clock.advance(100);
    controller.abort(reason);
    await clock.advance(0);
    assert.equal(call.error, reason);
  });

  it("signal: null in the options overrides the Request's", async () => {
    const controller = new AbortController();
    const clock = new FakeClock();
    const api = withRetry(scripted(clock, closed(), answer()), { clock });
    const call = watch(api(new Request(url, { signal: controller.signal }), { signal: null }), clock);
    await clock.advance(100);
    controller.abort();
    await clock.advance(10_000);
    assert.equal(call.response.status, 200);
  });

  it("without a reason, as in older React Native, gives an AbortError", async () => {
    const signal = Object.assign(new EventTarget(), { aborted: false });
    const { call, clock } = start([closed(), answer()], { signal });
    await clock.advance(100);
    signal.aborted = true;
    signal.dispatchEvent(new Event("abort"));
    await clock.advance(0);
    assert.equal(call.error.name, "AbortError");
  });

  it("by somebody else's AbortError is not retried either", async () => {
    const error = new DOMException("aborted", "AbortError");
    const { call, fetch, clock } = start([error, answer()]);
    await clock.advance(10_000);
    assert.equal(call.error, error);
    assert.equal(fetch.sends.length, 1);
  });

  it("by a signal that many waiting calls share ends them all, and Node does not warn of a leak", async (context) => {
    const warnings = [];
    context.mock.method(process, "emitWarning", (warning) => warnings.push(String(warning)));
    const controller = new AbortController();
    const { signal } = controller;
    const { clock, api } = start([closed(), answer()], { signal });
    await clock.advance(10);
    const calls = Array.from({ length: 2_000 }, () => watch(api(url, { signal }), clock));
    await clock.advance(10);
    controller.abort(reason);
    await clock.advance(0);
    assert.deepEqual(new Set(calls.map((call) => call.error)), new Set([reason]));
    assert.equal(clock.pending, 0);
    assert.deepEqual(warnings, []);
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });

  it("still reaches a call whose signal another call has stopped waiting for", async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const { clock, api, call: first } = start([closed(1), closed(20), answer()], { signal });
    const second = watch(api(`${url}/other`, { signal }), clock);
    await clock.advance(5_000);
    assert.deepEqual([first.response?.status, second.settled], [200, false]);
    controller.abort(reason);
    await clock.advance(0);
    assert.equal(second.error, reason);
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });

  it("leaves no listener on the signal, however the call ends", async () => {
    const controller = new AbortController();
    let listeners = 0;
    const { signal } = controller;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args) => (listeners++, add(...args));
    signal.removeEventListener = (...args) => (listeners--, remove(...args));
    const { call, clock } = start([closed(), answer()], { signal });
    await clock.advance(100);
    assert.equal(listeners, 1);
    await clock.advance(20_000);
    assert.equal(call.response.status, 200);
    assert.equal(listeners, 0);
  });
});

function inFlight(gate) {
  return gate.queueFor("https://api.example\n", "GET /items").inFlight;
}
