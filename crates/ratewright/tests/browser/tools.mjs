// What the tests of the live page and its screenshots need: the program, Redis, requests, and a browser.
//
// RATEWRIGHT is the program, CHROMIUM the browser (default: /usr/bin/chromium).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer, request as httpRequest } from "node:http";
import { createRequire } from "node:module";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream";
import { launchChromium } from "../../../../clients/typescript/tests/chromium.mjs";
import { environment } from "../../../../clients/typescript/tests/environment.mjs";
import { after } from "../../../../clients/typescript/tests/harness.mjs";

const { resolve } = createRequire(new URL("../../../../clients/typescript/package.json", import.meta.url));
const AXE = readFileSync(resolve("axe-core/axe.min.js"), "utf8");

const { RATEWRIGHT } = process.env;
const PATIENCE_MS = 60_000;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Waits for a promise, or fails at a time.
async function before(deadline, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`timed out after ${PATIENCE_MS / 1_000} s, waiting until ${what}`)),
      deadline - Date.now(),
    );
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// Waits until a call returns something, or fails after 60 s.
export async function until(what, call) {
  const deadline = Date.now() + PATIENCE_MS;
  let cause;
  while (Date.now() < deadline) {
    const found = await before(deadline, what, call()).catch((error) => {
      cause = error;
    });
    if (found) return found;
    await pause(50);
  }
  throw new Error(`timed out after ${PATIENCE_MS / 1_000} s, waiting until ${what}`, { cause });
}

// Starts a process that ends with the test, and with this process if that is killed.
function start(test, program, args) {
  const options = { stdio: ["ignore", "ignore", "pipe"], env: environment() };
  const child = spawn("setpriv", ["--pdeathsig", "KILL", program, ...args], options);
  test.after(() => child.kill("SIGKILL"));
  return child;
}

function temporary(test) {
  const folder = mkdtempSync(join(tmpdir(), "ratewright-page-"));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

// Redis on a socket file, which no other test takes.
export function startRedis(test) {
  const folder = temporary(test);
  const socket = join(folder, "redis");
  const args = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", folder];
  const run = () => start(test, "redis-server", args);
  return { url: `unix://${socket}`, process: run(), run };
}

// An address that stays the same when a server takes another port: passes connections on to what `port` returns.
export async function startFront(test, port) {
  const front = createServer((client) => {
    const server = connect(port(), "127.0.0.1");
    pipeline(client, server, client, () => {});
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  test.after(() => front.close());
  return `http://127.0.0.1:${front.address().port}`;
}

// A proxy on every address of this machine that records which host a browser named, and the status that it got.
export async function startRecorder(test, url) {
  const answers = [];
  const proxy = createHttpServer((request, response) => {
    const { method, url: path, rawHeaders } = request;
    const { hostname, port } = new URL(url);
    const passed = httpRequest({ hostname, port, method, path, headers: rawHeaders }, (answer) => {
      answers.push({ host: request.headers.host, path, status: answer.statusCode });
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on("error", () => response.destroy());
    request.pipe(passed);
  });
  proxy.listen(0); // on all addresses, IPv6 too if the machine has it
  await once(proxy, "listening");
  test.after(() => proxy.closeAllConnections() ?? proxy.close());
  return { answers, port: proxy.address().port };
}

const get = (url, options) => fetch(url, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });

// The program with a policy file, on free ports. It gets others when it starts again.
export class Ratewright {
  static async start(test, config, { admin = "127.0.0.1" } = {}) {
    assert.ok(RATEWRIGHT, "RATEWRIGHT is not set; set it to the path of the program");
    const file = join(temporary(test), "ratewright.yaml");
    const listeners = { gateway: "127.0.0.1:0", api: "127.0.0.1:0", grpc: "127.0.0.1:0", admin: `${admin}:0` };
    const listen = `listen: ${JSON.stringify(listeners)}\nstop_delay: 0s\n`;
    const program = Object.assign(new Ratewright(), { test, listen, file });
    program.write(config);
    await program.run();
    return program;
  }

  // Replaces the policy file in one step.
  write(config) {
    writeFileSync(`${this.file}.new`, this.listen + config);
    renameSync(`${this.file}.new`, this.file);
  }

  async run() {
    this.process = start(this.test, RATEWRIGHT, ["serve", "-c", this.file]);
    const log = [];
    const banner = new Promise((found, reject) => {
      createInterface({ input: this.process.stderr }).on("line", (line) => {
        if (line.startsWith("ratewright ")) found(line);
        else log.push(line);
      });
      this.process.on("error", reject);
      this.process.on("close", () => reject(new Error(`the program does not start: ${log.join("\n")}`)));
    });
    const line = await before(Date.now() + PATIENCE_MS, "the program starts", banner);
    const url = (listener) => line.match(`${listener} on (http://[^,; ]*)`)?.[1];
    [this.api, this.admin, this.gateway] = ["decisions", "admin", "gateway"].map(url);
  }

  async kill() {
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await before(Date.now() + PATIENCE_MS, "the program ends", ended);
  }

  // Sends a request to the API; returns its status.
  async send(path, options) {
    const response = await get(this.api + path, options);
    await response.arrayBuffer();
    return response.status;
  }

  async uptimeSeconds() {
    const response = await get(`${this.admin}/actuator/info`);
    return (await response.json()).uptimeSeconds;
  }

  // Asks for a decision; returns its status.
  decide(attributes) {
    const headers = { "Content-Type": "application/json" };
    return this.send("/api/v1/decide", { method: "POST", headers, body: JSON.stringify({ attributes }) });
  }
}

// One browser for all tests of a file, and the tabs that tests have left, by their options. To open a tab costs as much
// as most tests.
let browser;
const idle = {};
after(async () => (await browser)?.close());

async function newTab(options) {
  browser ??= launchChromium();
  const context = await (await browser).newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const tab = await context.newPage();
  tab.setDefaultTimeout(PATIENCE_MS);
  tab.on("pageerror", (error) => tab.problems.push(`error: ${error}`));
  tab.on("dialog", (dialog) => {
    tab.problems.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  tab.on("console", (message) => {
    const text = message.text();
    // Chromium logs calls that fail; tests of failures expect them.
    if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(text)) tab.problems.push(text);
  });
  return tab;
}

// A tab that fails the test on any error, rejected script or blocked request.
export async function openTab(test, url, options = {}) {
  const left = (idle[JSON.stringify(options)] ??= []);
  const tab = left.pop() ?? (await newTab(options));
  test.after(async () => {
    const isEmpty = await tab.goto("about:blank", { timeout: 5_000 }).catch(() => false);
    if (isEmpty === false) await tab.context().close();
    else left.push(tab);
  });
  tab.problems = [];
  await tab.goto(url);
  return tab;
}

export const view = (tab, name) => tab.getByRole("navigation").getByRole("link", { name, exact: true }).click();

// The violations that axe finds. The tab must be opened with `bypassCSP`, which lets axe in.
export async function violations(tab) {
  if (!(await tab.evaluate(() => "axe" in globalThis))) await tab.evaluate(AXE);
  const { violations } = await tab.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join("; ")}`);
}
