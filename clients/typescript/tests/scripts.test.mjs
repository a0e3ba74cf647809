// The programs beside the library run: the burst that drives a gateway, and the example.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startLimiter } from "./e2e/stub.mjs";
import { environment } from "./environment.mjs";
import { describe, it } from "./harness.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const run = async (script, env) => {
  const options = { env: environment(env), timeout: 60_000, killSignal: "SIGKILL" };
  return (await promisify(execFile)(process.execPath, [at(script)], options)).stdout.trim();
};

describe("the programs beside the library", { concurrency: true }, () => {
  it("e2e/burst.mjs counts what a burst does", async (t) => {
    const limiter = await startLimiter(t, { denials: 2 });
    const line = await run("e2e/burst.mjs", { GATEWAY_URL: limiter.url, REQUESTS: "20", PATHNAME: "/items" });
    assert.deepEqual(JSON.parse(line), { statuses: { 200: 20 }, sends: 22, earlyRetries: 0, maxAttempts: 2 });
  });

  it("examples/node.mjs retries to success", async (t) => {
    const limiter = await startLimiter(t);
    const output = await run("../examples/node.mjs", { API_URL: limiter.url });
    assert.match(output, /waiting \d+ ms: retry-after\n200 after 2 attempts: content$/);
  });
});
