// What the tests of the live page and its screenshots need: the program, Redis, requests, and a browser.
//
// RATEWRIGHT is the program, CHROMIUM the browser (default: /usr/bin/chromium).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

// Playwright and axe are installed with the packages of the TypeScript client.
const require = createRequire(new URL("../../../../clients/typescript/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const { RATEWRIGHT, CHROMIUM = "/usr/bin/chromium" } = process.env;

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

// Waits until a call returns something, or fails after 60 s.
export async function until(what, call) {
  const deadline = Date.now() + 60_000;
  while (true) {
    const found = await call().catch(() => null);
    if (found) return found;
    assert.ok(Date.now() < deadline, `not within 60 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// Starts a process, and ends it with the test.
function start(test, program, args) {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  test.after(() => child.kill("SIGKILL"));
  return child;
}

export async function startRedis(test) {
  const port = await freePort();
  const run = () => start(test, "redis-server", ["--port", `${port}`, "--save", "", "--appendonly", "no"]);
  return { url: `redis://127.0.0.1:${port}`, process: run(), run };
}

// The program with a policy file, on fixed ports, so that it can be started again.
export class Ratewright {
  static async start(test, config, { admin, gateway } = {}) {
    const folder = mkdtempSync(join(tmpdir(), "ratewright-page-"));
    test.after(() => rmSync(folder, { recursive: true, force: true }));
    const [api, adminPort] = [await freePort(), await freePort()];
    const address = `${admin ?? "127.0.0.1"}:${adminPort}`;
    const listeners = { api: `127.0.0.1:${api}`, admin: address };
    if (gateway) listeners.gateway = `127.0.0.1:${gateway}`;
    const listen = `listen: ${JSON.stringify(listeners)}\nstop_delay: 0s\n`;
    const program = new Ratewright();
    Object.assign(program, { test, listen, file: join(folder, "ratewright.yaml") });
    program.api = `http://127.0.0.1:${api}`;
    program.admin = `http://${address}`;
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
    this.process = start(this.test, RATEWRIGHT, ["-c", this.file]);
    const lines = createInterface({ input: this.process.stderr });
    const log = [];
    for await (const line of lines) {
      if (line.startsWith("ratewright ")) {
        lines.on("line", () => {});
        this.process.stderr.resume();
        return;
      }
      log.push(line);
    }
    assert.fail(`the program does not start: ${log.join("\n")}`);
  }

  async kill() {
    this.process.kill("SIGKILL");
    await once(this.process, "exit");
  }

  // Asks for a decision; returns its status.
  async decide(attributes) {
    const body = JSON.stringify({ attributes });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`${this.api}/api/v1/decide`, { method: "POST", headers, body });
    await response.arrayBuffer();
    return response.status;
  }
}

export async function launch(test) {
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  test.after(() => browser.close());
  return browser;
}

// A tab that fails the test on any error, rejected script or blocked request.
export async function openTab(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const tab = await context.newPage();
  tab.setDefaultTimeout(60_000);
  tab.problems = [];
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
  await tab.goto(url);
  return tab;
}

export const view = (tab, name) => tab.getByRole("navigation").getByRole("link", { name, exact: true }).click();

// The violations that axe finds. The tab must be opened with `bypassCSP`, which lets axe in.
export async function violations(tab) {
  await tab.evaluate(AXE);
  const { violations } = await tab.evaluate(() => globalThis.axe.run());
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join("; ")}`);
}
