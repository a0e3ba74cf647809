// Real sockets: Node's own fetch against servers that misbehave.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import { withRetry } from "../dist/index.js";
import { after, describe, it } from "./harness.mjs";

const servers = [];
const sockets = [];
after(() => {
  for (const server of servers) server.close();
  for (const socket of sockets) socket.destroy();
});

/** A server that answers each request by the next handler; the last one for ever. Counts sockets, keeps body hashes. */
async function serve(...handlers) {
  const seen = { sockets: 0, requests: [], url: "" };
  const server = createServer(async (request, response) => {
    const place = seen.requests.push({ at: performance.now(), method: request.method, headers: request.headers });
    const hash = createHash("sha256");
    for await (const chunk of request) hash.update(chunk);
    seen.requests[place - 1].hash = hash.digest("hex");
    handlers[Math.min(place, handlers.length) - 1](response, request);
  });
  server.on("connection", () => (seen.sockets += 1));
  seen.url = await listen(server);
  return seen;
}

async function listen(server) {
  servers.push(server);
  server.on("connection", (socket) => sockets.push(socket.on("error", () => {})));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}/`;
}

/** A URL whose port nobody listens on, and nobody can take: it is the client's end of a connection. */
async function refusing() {
  const { port } = new URL(await listen(createTcpServer()));
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  await once(socket, "connect");
  return `http://127.0.0.1:${socket.localPort}/`;
}

const ok = (response) => response.end("content");
const closed = (body) => (response) => response.writeHead(429, { "Retry-After": "0.2" }).end(body);
const quick = {
  spread: { firstMs: 50, maxMs: 50 },
  throttleBackoff: { firstMs: 50, maxMs: 50 },
  failureBackoff: { firstMs: 20, maxMs: 20 },
};

describe("over real sockets", { concurrency: true }, () => {
  it("429, then 200: waits as asked, and uses the connection again", async () => {
    const seen = await serve(closed("slow down ".repeat(1_000)), ok);
    const api = withRetry(fetch, quick);
    const response = await api(seen.url);
    assert.equal(await response.text(), "content");
    const [first, second] = seen.requests;
    assert.ok(second.at - first.at >= 199, `retried after ${second.at - first.at} ms`);
    assert.equal(seen.sockets, 1);
    assert.equal(first.headers["ratewright-attempt"], undefined);
    assert.equal(second.headers["ratewright-attempt"], "2");
  });

  it("a 429 with a body of 100 MB costs a connection, not 100 MB", async () => {
    let written = 0;
    const seen = await serve((response) => {
      response.writeHead(429, { "Retry-After": "0.2" });
      const chunk = Buffer.alloc(65_536);
      const write = () => {
        while (written < 1_600 && !response.destroyed) {
          written += 1;
          if (!response.write(chunk)) return response.once("drain", write);
        }
        response.end();
      };
      write();
    }, ok);
    const response = await withRetry(fetch, quick)(seen.url);
    assert.equal(await response.text(), "content");
    assert.ok(seen.sockets >= 2 && written < 800, `${seen.sockets} sockets, ${written} chunks`);
  });

  it("a 429 whose body never ends does not hold up the retry", async () => {
    const seen = await serve((response) => response.writeHead(429, { "Retry-After": "0.2" }).write("..."), ok);
    const response = await withRetry(fetch, quick)(seen.url);
    assert.equal(await response.text(), "content");
  });

  for (const [name, body] of [
    ["string", "größe".repeat(100)],
    ["bytes", new Uint8Array(60_000).fill(7)],
    ["Blob", new Blob(["content"])],
    ["factory of a stream", () => new Blob(["x".repeat(200_000)]).stream()],
  ]) {
    it(`sends the same bytes again: ${name}`, async () => {
      const seen = await serve(closed(), closed(), ok);
      const response = await withRetry(fetch, quick)(seen.url, { method: "POST", body });
      assert.equal(response.status, 200);
      assert.equal(new Set(seen.requests.map((request) => request.hash)).size, 1);
      assert.equal(seen.requests.length, 3);
    });
  }

  it("sends the body of a Request again", async () => {
    const seen = await serve(closed(), closed(), ok);
    const request = new Request(seen.url, { method: "POST", body: "content", headers: { "content-type": "text/x" } });
    const response = await withRetry(fetch, quick)(request);
    assert.equal(response.status, 200);
    const kinds = seen.requests.map((one) => `${one.headers["content-type"]} ${one.hash}`);
    assert.deepEqual([kinds.length, new Set(kinds).size], [3, 1]);
  });

  it("a half-written 200 is the caller's: the body fails, nothing is sent again", async () => {
    const seen = await serve((response) => {
      response.writeHead(200, { "content-length": "100" }).write("half", () => response.destroy());
    }, ok);
    const response = await withRetry(fetch, quick)(seen.url);
    assert.equal(response.status, 200);
    await assert.rejects(response.text());
    assert.equal(seen.requests.length, 1);
  });

  it("a connection that is reset before the response: GET is retried, POST is not", async () => {
    for (const [method, requests] of [
      ["GET", 2],
      ["POST", 1],
    ]) {
      const seen = await serve((response) => response.destroy(), ok);
      const call = withRetry(fetch, quick)(seen.url, { method });
      if (requests === 1) await assert.rejects(call, TypeError);
      else assert.equal((await call).status, 200);
      assert.equal(seen.requests.length, requests);
    }
  });

  it("a refused connection is retried for POST too, if it is not redirected", async () => {
    const url = await refusing();
    const waits = [];
    const api = withRetry(fetch, { ...quick, on: (event) => event.type === "waiting" && waits.push(event.cause) });
    await assert.rejects(api(url, { method: "POST", body: "x", redirect: "error" }), TypeError);
    assert.deepEqual(waits, ["connection", "connection", "connection"]);
  });

  it("a body that fails as a refused connection does, after half of it was sent, is not sent again", async () => {
    let requests = 0;
    let halfCame;
    const half = new Promise((resolve) => (halfCame = resolve));
    const count = (request) => {
      requests += 1;
      request.once("data", halfCame);
    };
    const url = await listen(createServer(count));
    const body = () => {
      const start = async (controller) => {
        controller.enqueue(new TextEncoder().encode("half of the order"));
        await half;
        controller.error(Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" }));
      };
      return new ReadableStream({ start });
    };
    const api = withRetry(fetch, quick);
    const error = await api(url, { method: "POST", body, redirect: "error" }).catch((reason) => reason);
    assert.deepEqual([api.summary(error).why, requests], ["unsafe", 1]);
  });

  it("headers that never come: an abort ends the call at once", async () => {
    const controller = new AbortController();
    const reason = new Error("too slow");
    let connections = 0;
    const silent = createTcpServer((socket) => {
      connections += 1;
      socket.once("data", () => controller.abort(reason));
    });
    const url = await listen(silent);
    await assert.rejects(withRetry(fetch, quick)(url, { signal: controller.signal }), reason);
    assert.equal(connections, 1);
  });

  it("50 calls at once to a limiter of 20 a second all succeed", async () => {
    let tokens = 20;
    let at = performance.now();
    const seen = await serve((response) => {
      const now = performance.now();
      tokens = Math.min(20, tokens + ((now - at) * 20) / 1_000);
      at = now;
      const policy = { "RateLimit-Policy": '"burst";q=20;w=1' };
      if (tokens < 1)
        return response.writeHead(429, { "Retry-After": "1", RateLimit: '"burst";r=0;t=1', ...policy }).end();
      tokens -= 1;
      response.writeHead(200, { RateLimit: `"burst";r=${Math.floor(tokens)};t=1`, ...policy }).end();
    });
    const api = withRetry();
    const responses = await Promise.all(Array.from({ length: 50 }, () => api(seen.url)));
    assert.ok(responses.every((response) => response.status === 200));
    assert.ok(seen.requests.length < 110, `${seen.requests.length} requests for 50 calls`);
  });

  it("works with axios, which takes any fetch", async () => {
    const { default: axios } = await import("axios");
    const seen = await serve(closed(), ok);
    const api = withRetry(fetch, quick);
    const client = axios.create({ adapter: "fetch", env: { fetch: api } });
    const { data, status } = await client.post(seen.url, { name: "x" });
    assert.deepEqual([data, status], ["content", 200]);
    assert.equal(seen.requests.length, 2);
    assert.equal(seen.requests[0].hash, seen.requests[1].hash);
    assert.match(seen.requests[1].headers["content-type"], /json/);
  });
});
