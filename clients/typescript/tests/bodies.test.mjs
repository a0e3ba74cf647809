// Bodies: the same bytes in each attempt, or one attempt.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { DeadlineError, Gate } from "../dist/index.js";
import { FakeClock } from "../dist/testing.js";
import { describe, it } from "./harness.mjs";
import { answer, run, url } from "./support.mjs";

const closed = () => answer(429, { "Retry-After": "1" });
const kib64 = 65_536;

/** Runs a PUT that is throttled once. Reads each attempt's body as a server would. */
async function put(init, { input = url, options } = {}) {
  const seen = [];
  const read = async (target, sent) => {
    const request = new Request(target, sent);
    const bytes = Buffer.from(await request.arrayBuffer());
    const type = request.headers.get("content-type")?.split("boundary=");
    // A form has another boundary each time; everything else must be equal.
    const text = type?.[1] ? bytes.toString("latin1").replaceAll(type[1], "BOUNDARY") : bytes;
    seen.push(`${type?.[0]} ${bytes.length} ${createHash("sha256").update(text).digest("hex")}`);
  };
  const result = await run(
    [async (...args) => (await read(...args), closed()), async (...args) => (await read(...args), answer())],
    { input, init: { method: "PUT", ...init }, options, advanceMs: 20 },
  );
  // Reading a Blob takes real time, so wait for that as well.
  for (let i = 0; i < 100 && !result.outcome.settled; i++) {
    await allPromises();
    await result.clock.advance(100);
  }
  const { response } = result.outcome;
  return { ...result, response, summary: result.api.summary(response), seen };
}

/** Lets all promises settle that need no I/O. */
const allPromises = () => new Promise((resolve) => setImmediate(resolve));

function form() {
  const data = new FormData();
  data.append("name", "größe");
  data.append("file", new Blob(["content"], { type: "text/plain" }), "a.txt");
  return data;
}

describe("a body is sent again, with the same bytes:", () => {
  const bytes = Uint8Array.from({ length: 1_000 }, (_, i) => i % 256);
  for (const [name, make] of [
    ["string", () => "größe 🎈"],
    ["string of 64 KiB", () => "x".repeat(kib64)],
    ["number", () => 5],
    ["boolean", () => false],
    ["typed array", () => bytes],
    ["part of a buffer", () => bytes.subarray(100, 200)],
    ["DataView", () => new DataView(bytes.buffer, 10, 20)],
    ["Buffer", () => Buffer.from("content")],
    ["ArrayBuffer", () => bytes.buffer.slice(0)],
    ["Blob", () => new Blob(["content"], { type: "text/plain" })],
    ["Blob of 64 KiB", () => new Blob(["x".repeat(kib64)])],
    ["URLSearchParams", () => new URLSearchParams({ a: "ö", b: "2" })],
    ["FormData", form],
    ["factory of a string", () => () => "content"],
    ["factory of a promise", () => async () => "content"],
    ["factory of a stream", () => () => new Blob(["content"]).stream()],
    ["factory of much", () => () => "x".repeat(1_000_000)],
  ]) {
    it(name, async () => {
      const { seen } = await put({ body: make() });
      assert.equal(seen.length, 2);
      assert.equal(seen[1], seen[0]);
    });
  }

  it("although the caller changes it meanwhile", async () => {
    const array = Uint8Array.from([1, 2, 3]);
    const params = new URLSearchParams("a=1");
    const data = form();
    for (const [body, change] of [
      [array, () => array.fill(9)],
      [params, () => params.set("a", "2")],
      [data, () => data.append("more", "x")],
    ]) {
      const { seen } = await put({ body }, { options: { on: (event) => event.type === "waiting" && change() } });
      assert.equal(seen.length, 2);
      assert.equal(seen[1], seen[0]);
    }
  });
});

describe("a body is sent once:", () => {
  for (const [name, make] of [
    ["string of 64 KiB + 1", () => "x".repeat(kib64 + 1)],
    ["string of 22,000 characters with 3 bytes each", () => "€".repeat(22_000)],
    ["string of 16,400 characters with 4 bytes each", () => "🎈".repeat(16_400)],
    ["typed array of 64 KiB + 1", () => new Uint8Array(kib64 + 1)],
    ["Blob of 64 KiB + 1", () => new Blob(["x".repeat(kib64 + 1)])],
    ["URLSearchParams of 64 KiB + 1", () => new URLSearchParams({ a: "x".repeat(kib64 - 1) })],
    [
      "FormData with a large file",
      () => {
        const data = form();
        data.append("large", new Blob(["x".repeat(kib64)]));
        return data;
      },
    ],
    ["stream", () => new Blob(["content"]).stream()],
  ]) {
    it(name, async () => {
      const { sends, summary, response } = await put({ body: make() });
      assert.equal(sends.length, 1);
      assert.equal(summary.why, "body");
      assert.equal(response.status, 429);
    });
  }
});

describe("a Request", () => {
  it("without a body is sent again", async () => {
    const { sends } = await run([closed(), answer()], { input: new Request(url) });
    assert.equal(sends.length, 2);
  });

  it("with a short body is copied while it is sent, and sent again", async () => {
    const input = new Request(url, { method: "PUT", body: "content", headers: { "content-type": "text/x" } });
    const { seen } = await put({}, { input });
    assert.equal(seen.length, 2);
    assert.equal(seen[1], seen[0]);
    assert.match(seen[0], /^text\/x 7 /);
  });

  it("with a long body is sent once, and arrives whole", async () => {
    const input = new Request(url, { method: "PUT", body: "x".repeat(1_000_000) });
    const { seen, summary } = await put({}, { input });
    assert.equal(seen.length, 1);
    assert.match(seen[0], / 1000000 /);
    assert.equal(summary.why, "body");
  });

  it("with a long body is not copied beyond 64 KiB", async () => {
    let pulled = 0;
    const pull = (controller) => (++pulled < 1_000 ? controller.enqueue(new Uint8Array(10_000)) : controller.close());
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    let respond;
    const sending = new Promise((resolve) => (respond = resolve));
    const input = new Request(url, { method: "PUT", body, duplex: "half" });
    const { clock, outcome } = await run(() => sending, { input, advanceMs: 0 });
    await allPromises();
    assert.ok(pulled >= 7, `only ${pulled * 10_000} bytes are copied while the request is sent`);
    respond(answer());
    await clock.advance(0);
    await allPromises();
    assert.equal(outcome.response.status, 200);
    assert.ok(pulled <= 9, `${pulled * 10_000} bytes read`);
  });

  it("with a body that never ends is sent without delay, and once", async () => {
    const stream = new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array(10)) });
    const input = new Request(url, { method: "PUT", body: stream, duplex: "half" });
    const { sends, summary } = await run(closed(), { input, advanceMs: 0 });
    assert.equal(sends.length, 1);
    assert.equal(summary.why, "body");
  });

  it("whose body is replaced by the options sends that one", async () => {
    const input = new Request(url, { method: "PUT", body: "old" });
    const { seen } = await put({ body: "newer" }, { input });
    assert.match(seen[0], / 5 /);
    assert.equal(seen[1], seen[0]);
  });
});

it("a form of npm's form-data, which is a Node stream, is sent once", async () => {
  const body = Object.assign(Readable.from(["content"]), { append() {} });
  const { sends, summary } = await run([closed(), answer()], { init: { method: "PUT", body } });
  assert.deepEqual([sends.length, summary.why], [1, "body"]);
});

it("a number is sent as its text, as fetch does", async () => {
  const { sends } = await run(answer(), { init: { method: "PUT", body: 5 } });
  const sent = new Request(sends[0].input, sends[0].init);
  assert.deepEqual([await sent.text(), sent.headers.get("content-type")], ["5", "text/plain;charset=UTF-8"]);
});

describe("a factory that never makes a body", () => {
  const init = { method: "PUT", body: () => new Promise(() => {}) };

  it("does not outlive the deadline", async () => {
    const result = await run(answer(), { init });
    assert.ok(result.error instanceof DeadlineError);
    assert.deepEqual([result.endedAt, result.sends.length, result.clock.pending], [30_000, 0, 0]);
    assert.deepEqual([result.summary.why, result.summary.attempts], ["deadline", 0]);
  });

  it("does not outlive an abort", async () => {
    const controller = new AbortController();
    const clock = new FakeClock();
    const result = run(answer(), { init: { ...init, signal: controller.signal }, options: { clock }, advanceMs: 100 });
    controller.abort(new Error("the user left"));
    const { error, endedAt } = await result;
    assert.deepEqual([error?.message, endedAt, clock.pending], ["the user left", 0, 0]);
  });

  it("leaves nothing behind if it makes one in time, or too late", async () => {
    for (const [makeMs, sends] of [
      [29_000, 1],
      [31_000, 0],
    ]) {
      const clock = new FakeClock();
      const gate = new Gate();
      const body = () => new Promise((resolve) => clock.startTimer(makeMs, () => resolve("content")));
      const result = await run(answer(), { init: { method: "PUT", body }, options: { clock, gate } });
      assert.deepEqual([result.sends.length, clock.pending], [sends, 0]);
      assert.equal(gate.queueFor("https://api.example\n", "PUT /items").inFlight, 0);
    }
  });
});

it("a body that is made after the deadline, with the timers late, is not sent", async () => {
  const clock = new FakeClock();
  let make;
  const body = () => new Promise((resolve) => (make = resolve));
  const { outcome, sends } = await run(answer(), { init: { method: "POST", body }, options: { clock }, advanceMs: 10 });
  make("content");
  await clock.skip(3_600_000); // The computer sleeps before the call goes on.
  assert.ok(outcome.error instanceof DeadlineError);
  assert.deepEqual([sends.length, clock.pending], [0, 0]);
});

it("an exception in a factory ends the call and frees its lane", async () => {
  const error = new Error("no file");
  const result = await run(answer(), {
    init: {
      method: "PUT",
      body: () => {
        throw error;
      },
    },
  });
  assert.equal(result.error, error);
  assert.equal(result.sends.length, 0);
});
