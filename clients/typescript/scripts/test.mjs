// Builds the client, then runs the type checker, the linter and each test file, several at a time. A job that takes too
// long is killed, with what it started. Only some test files: node scripts/test.mjs tests/gate.test.mjs
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { environment } from "../tests/environment.mjs";

const JOB_MS = 120_000;
// Most of them wait more than they compute.
const JOBS_AT_ONCE = 2 * availableParallelism();
// The test files that take longest start first.
const LONG = ["browser/browser", "properties", "hermes", "gate", "scripts", "sockets", "pages"];

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const { scripts } = JSON.parse(readFileSync("package.json", "utf8"));
mkdirSync("build", { recursive: true });
const folder = mkdtempSync("build/test-");

const running = new Set();
process.on("exit", () => {
  for (const child of running) kill(child);
  rmSync(folder, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

/** Kills a job and what it has started: it leads a process group. */
function kill(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {} // Nothing is left of it.
}

/** Runs a job to its end. Resolves to its output, and its exit code or null. */
function run({ name, command, args, shell }) {
  const current = resolve(folder, name.replaceAll("/", "-"));
  const PATH = [resolve("node_modules/.bin"), process.env.PATH].join(delimiter);
  const env = environment({ PATH, NO_COLOR: "1", RUNNING_TEST: current });
  const child = spawn(command, args, { env, shell, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  running.add(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  const late = setTimeout(() => {
    output += `killed: still running after ${JOB_MS / 1_000} s; the last test that began: ${begun(current)}\n`;
    kill(child);
  }, JOB_MS);
  return new Promise((done) => {
    child.on("error", (error) => (output += error));
    child.on("exit", () => kill(child));
    child.on("close", (code) => {
      clearTimeout(late);
      running.delete(child);
      done({ output, code });
    });
  });
}

function begun(file) {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "none";
  }
}

/** Runs a job. Prints a line if it passed, with the tests that it skipped, or all of its output. True if it passed. */
async function passes(job) {
  const startedAt = performance.now();
  const { output, code } = await run(job);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  const skipped = output.split("\n").filter((line) => /^\s*﹣/.test(line));
  const tests = Number(output.match(/^ℹ tests (\d+)$/m)?.[1] ?? 0);
  const isEmpty = job.isTest && tests + skipped.length === 0;
  const passed = code === 0 && !isEmpty;
  console.log(`${passed ? "ok" : "FAILED"} ${job.name}${tests > 0 ? `, ${tests} tests` : ""}, ${seconds} s`);
  for (const line of passed ? skipped : [output]) console.log(line);
  if (isEmpty && code === 0) console.log("it has no tests");
  return passed;
}

const script = (name) => ({ name, command: scripts[name], args: [], shell: true });
const testFile = (name) => ({ name, command: process.execPath, args: ["--test-reporter=spec", name], isTest: true });

function allJobs() {
  const inFolder = (folder) => readdirSync(folder).map((name) => join(folder, name));
  const files = ["tests", "tests/browser"].flatMap(inFolder).filter((name) => name.endsWith(".test.mjs"));
  const long = LONG.map((name) => `tests/${name}.test.mjs`);
  const others = files.filter((name) => !long.includes(name));
  return [...[...long, ...others].map(testFile), script("types"), script("lint")];
}

const startedAt = performance.now();
if (!(await passes(script("build")))) process.exit(1);
const named = process.argv.slice(2);
const jobs = named.length > 0 ? named.map(testFile) : allJobs();
const failed = [];
const work = async () => {
  for (let job = jobs.shift(); job; job = jobs.shift()) if (!(await passes(job))) failed.push(job.name);
};
await Promise.all(Array.from({ length: JOBS_AT_ONCE }, work));
const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
console.log(failed.length > 0 ? `failed: ${failed.join(", ")}` : `all passed in ${seconds} s`);
process.exitCode = failed.length > 0 ? 1 : 0;
