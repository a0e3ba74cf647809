// The programs beside the library run: the burst that drives a gateway, the example, the bench.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startLimiter } from "./e2e/stub.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const run = async (script, env) => {
  const options = { env: { ...process.env, ...env }, timeout: 60_000 };
  return (await promisify(execFile)(process.execPath, [at(script)], options)).stdout.trim();
};

test("e2e/burst.mjs counts what a burst does", async () => {
  const limiter = await startLimiter({ denials: 5 });
  const line = await run("e2e/burst.mjs", { GATEWAY_URL: limiter.url, REQUESTS: "20", PATHNAME: "/items" });
  limiter.close();
  assert.deepEqual(JSON.parse(line), { statuses: { 200: 20 }, sends: 25, earlyRetries: 0, maxAttempts: 2 });
});

test("examples/node.mjs retries to success", async () => {
  const limiter = await startLimiter({ denials: 1 });
  const output = await run("../examples/node.mjs", { API_URL: limiter.url });
  limiter.close();
  assert.match(output, /waiting \d+ ms: retry-after\n200 after 2 attempts: content$/);
});
