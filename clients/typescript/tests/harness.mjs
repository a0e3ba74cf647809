// The parts of node:test that tests use, with a deadline for each test. Nothing that a test leaves behind keeps its
// process running.
import hooks from "node:async_hooks";
import { writeFileSync } from "node:fs";

// By a hook on every promise, node:test tells which test an uncaught error belongs to. Our tests make a million of them,
// and two thirds of their CPU time would go there, so the hook ends where the first test begins. An uncaught error still
// fails the file.
const { createHook } = hooks;
let hook;
hooks.createHook = (callbacks) => (hook = createHook(callbacks));
const own = await import("node:test");
hooks.createHook = createHook;

// A file that gets the name of each test that begins, for scripts/test.mjs.
const { RUNNING_TEST } = process.env;
const TEST_MS = 90_000;
const LEFT_OPEN_MS = 10_000;
const PARENT_MS = 500;

function withDeadline(define) {
  return (name, ...rest) => {
    const body = rest.pop();
    const run = (test) => {
      hook?.disable();
      if (RUNNING_TEST) writeFileSync(RUNNING_TEST, name);
      return body(test);
    };
    return define(name, { timeout: TEST_MS, ...rest[0] }, run);
  };
}

export const { after, before, describe } = own;
export const it = withDeadline(own.it);
export const test = withDeadline(own.test);

/** With CI set, a test fails that cannot run here. Otherwise it may be skipped. */
export const inCi = !["", "0", "false"].includes(process.env.CI ?? "");

after(() => {
  const fail = () => {
    console.error(`still open after the last test: ${process.getActiveResourcesInfo().join(", ")}`);
    process.exit(1);
  };
  setTimeout(fail, LEFT_OPEN_MS).unref();
});

// If the process that runs the tests is killed, this one ends too, and with it what it has started.
const parent = process.ppid;
setInterval(() => process.ppid !== parent && process.exit(1), PARENT_MS).unref();
