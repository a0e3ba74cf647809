// A real browser: cross-origin calls with a preflight, with and without exposed headers, and the example page.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { CHROMIUM, launchChromium } from "../chromium.mjs";
import { bundle, servePage, visit } from "../e2e/page.mjs";
import { startLimiter } from "../e2e/stub.mjs";
import { after, before, describe, inCi, it } from "../harness.mjs";

const skip = !inCi && !existsSync(CHROMIUM) && `${CHROMIUM} is missing; ./.ci/install chromium:chromium`;

describe("a page in Chromium", { skip, concurrency: true }, () => {
  let browser;
  let script;
  before(async () => {
    [browser, script] = await Promise.all([launchChromium(), bundle()]);
  });
  after(() => browser?.close());

  /** Serves a page for one test; `page` says which. */
  async function serve(test, page) {
    const server = await servePage(script, page);
    test.after(() => server.close());
    return server;
  }

  const browse = async (test, limiter, page) => visit(browser, await serve(test, page), limiter.url);

  it("reads the limiter's headers across origins, and retries", async (t) => {
    const limiter = await startLimiter(t);
    const result = await browse(t, limiter);
    assert.deepEqual(result.statuses, [200]);
    assert.deepEqual(result.attempts, [2]);
    const { failedStatus, retryAfter, rateLimit, rateLimitPolicy } = result;
    assert.deepEqual([failedStatus, retryAfter, rateLimit], [429, "1", '"page";r=0;t=1']);
    assert.equal(rateLimitPolicy, '"page";q=5;w=5');
    assert.deepEqual(result.waits, ["retry-after"]);
    const [waitMs] = result.waitsMs;
    assert.ok(waitMs >= 1_000 && waitMs < 4_000, `waits ${waitMs} ms`);
    assert.ok(result.waitedMs >= 1_000, `waited ${result.waitedMs} ms`);
    assert.deepEqual(limiter.methods, ["OPTIONS", "GET", "GET"]);
    assert.deepEqual(result.errors, []);
  });

  it("hidden headers mean backoff from a second, and at most 4 sends", async (t) => {
    const limiter = await startLimiter(t, { denials: 100, exposed: false });
    const result = await browse(t, limiter);
    assert.deepEqual([result.statuses, result.sends, result.retryAfter], [[429], 4, null]);
    assert.equal(result.rateLimitPolicy, null);
    assert.ok(result.waitedMs >= 700, `4 sends within ${result.waitedMs} ms`);
  });

  it("retries a 503 by what its headers say", async (t) => {
    let left = 1;
    const respond = (_, response, cors) =>
      left-- > 0
        ? response.writeHead(503, { ...cors, "Retry-After": "1" }).end()
        : response.writeHead(200, cors).end("content");
    const result = await browse(t, await startLimiter(t, { denials: 0, respond }));
    assert.deepEqual([result.statuses, result.failedStatus, result.waits], [[200], 503, ["retry-after"]]);
  });

  it("of an origin that is not allowed gets an error, and no response", async (t) => {
    const result = await browse(t, await startLimiter(t, { denials: 0, origin: "https://other.example" }));
    assert.deepEqual([result.statuses, result.sends], [["TypeError: Failed to fetch"], 0]);
    assert.deepEqual([result.attempts, result.whys], [[4], ["attempts"]]);
    assert.match(result.console.join("\n"), /blocked by CORS policy/);
  });

  it("sends credentials in each attempt, if the call asks for them", async (t) => {
    const server = await serve(t);
    const limiter = await startLimiter(t, { origin: `http://127.0.0.1:${server.address().port}` });
    const options = { cookie: "session=secret", init: { credentials: "include" } };
    const result = await visit(browser, server, limiter.url, options);
    assert.deepEqual(result.statuses, [200]);
    assert.deepEqual(
      limiter.headers.map(({ cookie }) => cookie),
      ["session=secret", "session=secret"],
    );
  });

  it("runs examples/page.html", async (t) => {
    const folder = fileURLToPath(new URL("../../examples", import.meta.url));
    const result = await browse(t, await startLimiter(t), { folder, file: "page.html" });
    assert.match(result.text, /^200 after 2 attempts/);
  });
});
