// A real browser: cross-origin calls with a preflight, with and without exposed headers, and the example page.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startLimiter } from "../e2e/stub.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const chromium = process.env.CHROMIUM ?? "/usr/bin/chromium";
const skip = !existsSync(chromium) && !process.env.CI && `${chromium} is missing; ./.ci/install chromium:chromium`;

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
  assert.deepEqual([result.retryAfter, result.rateLimit], ["1", '"page";r=0;t=1']);
  assert.deepEqual(result.waits, ["retry-after"]);
  assert.ok(result.waitedMs >= 1_000 && result.waitedMs < 4_000, `waited ${result.waitedMs} ms`);
  assert.deepEqual(limiter.methods, ["OPTIONS", "GET", "GET"]);
  assert.deepEqual(result.errors, []);
});

test("hidden headers mean backoff from a second, and at most 4 sends", { skip }, async () => {
  const limiter = await startLimiter({ denials: 100, exposed: false });
  const result = await browse(limiter);
  assert.deepEqual([result.statuses, result.sends, result.retryAfter], [[429], 4, null]);
  assert.ok(result.waitedMs >= 700, `4 sends within ${result.waitedMs} ms`);
});

test("examples/page.html runs", { skip }, async () => {
  const limiter = await startLimiter({ denials: 1 });
  const result = await browse(limiter, { PAGE_DIR: at("../../examples"), PAGE: "page.html" });
  assert.match(result.text, /^200 after 2 attempts/);
});
