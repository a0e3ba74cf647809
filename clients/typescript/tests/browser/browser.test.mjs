// A real browser: cross-origin calls with a preflight, with and without exposed headers, and the example page.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startLimiter } from "../e2e/stub.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const chromium = process.env.CHROMIUM ?? "/usr/bin/chromium";
const skip = !existsSync(chromium) && !process.env.CI && `${chromium} is missing; ./.ci/install chromium:chromium`;

/** A port that was free a moment ago. */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

async function browse(limiter, env = {}) {
  const options = { env: { ...process.env, GATEWAY_URL: limiter.url, ...env }, timeout: 120_000 };
  const { stdout } = await promisify(execFile)(process.execPath, [at("../e2e/browser.mjs")], options);
  limiter.close();
  return JSON.parse(stdout);
}

test("a page reads the limiter's headers across origins, and retries", { skip }, async () => {
  const limiter = await startLimiter();
  const result = await browse(limiter);
  assert.deepEqual(result.statuses, [200]);
  assert.deepEqual(result.attempts, [2]);
  const { failedStatus, retryAfter, rateLimit, rateLimitPolicy } = result;
  assert.deepEqual([failedStatus, retryAfter, rateLimit], [429, "1", '"page";r=0;t=1']);
  assert.equal(rateLimitPolicy, '"page";q=5;w=5');
  assert.deepEqual(result.waits, ["retry-after"]);
  assert.ok(result.waitedMs >= 1_000 && result.waitedMs < 4_000, `waited ${result.waitedMs} ms`);
  assert.deepEqual(limiter.methods, ["OPTIONS", "GET", "GET"]);
  assert.deepEqual(result.errors, []);
});

test("hidden headers mean backoff from a second, and at most 4 sends", { skip }, async () => {
  const limiter = await startLimiter({ denials: 100, exposed: false });
  const result = await browse(limiter);
  assert.deepEqual([result.statuses, result.sends, result.retryAfter], [[429], 4, null]);
  assert.equal(result.rateLimitPolicy, null);
  assert.ok(result.waitedMs >= 700, `4 sends within ${result.waitedMs} ms`);
});

test("a 503 is retried with what its headers say", { skip }, async () => {
  let left = 1;
  const respond = (_, response, cors) =>
    left-- > 0
      ? response.writeHead(503, { ...cors, "Retry-After": "1" }).end()
      : response.writeHead(200, cors).end("content");
  const result = await browse(await startLimiter({ denials: 0, respond }));
  assert.deepEqual([result.statuses, result.failedStatus, result.waits], [[200], 503, ["retry-after"]]);
});

test("an origin that is not allowed gets an error, and no response", { skip }, async () => {
  const result = await browse(await startLimiter({ denials: 0, origin: "https://other.example" }));
  assert.deepEqual([result.statuses, result.sends], [["TypeError: Failed to fetch"], 0]);
  assert.deepEqual([result.attempts, result.whys], [[4], ["attempts"]]);
  assert.match(result.console.join("\n"), /blocked by CORS policy/);
});

test("credentials are sent in each attempt, if the call asks for them", { skip }, async () => {
  const PORT = String(await freePort());
  const limiter = await startLimiter({ origin: `http://127.0.0.1:${PORT}` });
  const env = { PORT, COOKIE: "session=secret", INIT: JSON.stringify({ credentials: "include" }) };
  const result = await browse(limiter, env);
  assert.deepEqual(result.statuses, [200]);
  assert.deepEqual(
    limiter.headers.map(({ cookie }) => cookie),
    ["session=secret", "session=secret"],
  );
});

test("examples/page.html runs", { skip }, async () => {
  const limiter = await startLimiter({ denials: 1 });
  const result = await browse(limiter, { PAGE_DIR: at("../../examples"), PAGE: "page.html" });
  assert.match(result.text, /^200 after 2 attempts/);
});
