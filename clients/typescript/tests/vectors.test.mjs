// The cases that every client of Ratewright has to pass.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { decide, defaultPolicy, Lane } from "../dist/index.js";
import { test } from "./harness.mjs";

const folder = new URL("../../vectors/", import.meta.url);
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
const cases = files.flatMap((file) =>
  JSON.parse(readFileSync(new URL(file, folder), "utf8")).cases.map((one) => ({ ...one, file })),
);

test("there are vector files with at least 200 cases", () => {
  assert.ok(cases.length >= 200, `only ${cases.length} cases in ${files.length} files`);
});

for (const file of files) {
  test(`vectors/${file}`, () => {
    for (const one of cases.filter((other) => other.file === file)) {
      if (one.steps) checkLane(one);
      else checkDecision(one);
    }
  });
}

function checkDecision({ name, policy, request, state, seen, now, random, expect }) {
  const facts = {
    request: { method: "GET", ...request },
    state: { attempts: 1, budget: 50_000, ...state },
    seen: seen.failure ? seen : { headers: [], ...seen },
    now,
  };
  const decision = decide({ ...defaultPolicy, ...policy }, facts, random);
  assert.deepEqual(vectorForm(decision), expect, name);

  // The same with the Headers of a real response, if its lines survive there.
  const lines = facts.seen.headers ?? [];
  if (lines.every(([, value]) => /^[\t -~]*$/.test(value))) {
    const real = seen.failure ? seen : { ...seen, headers: new Headers(lines.map((line) => [...line])) };
    assert.deepEqual(
      vectorForm(decide({ ...defaultPolicy, ...policy }, { ...facts, seen: real }, random)),
      expect,
      name,
    );
  }
}

function vectorForm({ action, atMs, cause, cost, why, retryAtWallMs }) {
  if (action === "retry") return { retry: { atMs, cause, cost } };
  return { return: retryAtWallMs === undefined ? { why } : { why, retryAtWallMs } };
}

function checkLane({ name, steps }) {
  const lane = new Lane();
  for (const [index, step] of steps.entries()) {
    const where = `${name}, step ${index}`;
    if ("enter" in step) {
      const entry = lane.enter(step.at);
      assert.deepEqual(entry.until === undefined ? entry : { until: Math.ceil(entry.until) }, step.enter, where);
    } else if (step.learn) lane.learn(step.learn.q, step.learn.w);
    else if (step.throttled) lane.throttled(step.at, step.throttled);
    else if ("accepted" in step) lane.accepted(step.at);
    else if ("failed" in step) lane.failed();
    else assert.fail(`unknown step: ${where}`);
    if (step.rate !== undefined) {
      assert.ok(
        Math.abs(lane.rate - step.rate) <= step.rate * 1e-6,
        `${where}: rate ${lane.rate}, expected ${step.rate}`,
      );
    }
  }
}
