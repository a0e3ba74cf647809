// A page in Chromium that calls a server of another origin through the built bundle.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const VISIT_MS = 60_000;

const PAGE = `<!doctype html><meta charset="utf-8"><title>retry</title><script type="module">
import { withRetry } from "/ratewright.js";
window.start = async (url, requests, init) => {
  const seen = [];
  const noting = async (input, init) => {
    const response = await fetch(input, init);
    const { status, headers } = response;
    const [retryAfter, rateLimit, rateLimitPolicy] =
      ["retry-after", "ratelimit", "ratelimit-policy"].map((name) => headers.get(name));
    seen.push({ at: performance.now(), status, retryAfter, rateLimit, rateLimitPolicy });
    return response;
  };
  const waits = [];
  const waitsMs = [];
  const on = (event) => {
    if (event.type !== "waiting") return;
    waits.push(event.cause);
    waitsMs.push(event.waitMs);
  };
  const api = withRetry(noting, { on });
  const call = async () => {
    const headers = { "X-Api-Client": "page" };
    const result = await api(url, { ...init, headers: { ...init.headers, ...headers } }).catch((error) => error);
    return { status: result.status ?? String(result), ...api.summary(result) };
  };
  const calls = await Promise.all(Array.from({ length: requests }, call));
  const first = seen.find((one) => one.status > 299);
  return {
    statuses: calls.map((one) => one.status), attempts: calls.map((one) => one.attempts),
    whys: calls.map((one) => one.why), sends: seen.length, waits, waitsMs, failedStatus: first?.status ?? null,
    retryAfter: first?.retryAfter ?? null, rateLimit: first?.rateLimit ?? null,
    rateLimitPolicy: first?.rateLimitPolicy ?? null,
    waitedMs: first ? Math.round(seen.at(-1).at - first.at) : 0,
  };
};
</script>`;

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript" };

/** The built client as one file for a page. */
export async function bundle() {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL("../../dist/index.js", import.meta.url))],
    bundle: true,
    minify: true,
    format: "esm",
    write: false,
  });
  return outputFiles[0].contents;
}

/** Serves the page above with a bundle, or `file` of `folder`. Resolves to the server. */
export async function servePage(script, { port = 0, folder, file = "index.html" } = {}) {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://page");
    const send = (type, content) => response.writeHead(200, { "content-type": type }).end(content);
    if (pathname === "/ratewright.js") return send(TYPES[".js"], script);
    if (pathname === "/" && !folder) return send(TYPES[".html"], PAGE);
    try {
      const path = normalize(pathname === "/" ? file : pathname);
      send(TYPES[extname(path)] ?? "text/plain", readFileSync(join(folder, path)));
    } catch {
      response.writeHead(404).end();
    }
  }).listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/**
 * Opens the page in a context of its own and lets it call `api`, `requests` times with the options `init`. Resolves to
 * what it saw. `cookie` (name=value) is set for `api` before.
 */
export async function visit(browser, server, api, { requests = 1, init = {}, cookie } = {}) {
  const context = await browser.newContext();
  const tab = await context.newPage();
  tab.setDefaultTimeout(VISIT_MS);
  const late = setTimeout(() => context.close(), VISIT_MS);
  const errors = [];
  const logged = [];
  tab.on("pageerror", (error) => errors.push(String(error)));
  tab.on("console", (message) => logged.push(message.text()));
  try {
    if (cookie) {
      const [name, value] = cookie.split("=");
      await context.addCookies([{ name, value, url: api }]);
    }
    await tab.goto(`http://127.0.0.1:${server.address().port}/?api=${encodeURIComponent(api)}`);
    await tab.waitForFunction("window.start || window.loaded");
    const start = async ([target, calls, options]) => {
      if (window.start) return window.start(target, calls, options);
      await window.loaded;
      return { text: document.body.innerText.trim() };
    };
    const result = await tab.evaluate(start, [api, requests, init]);
    return { ...result, errors, console: logged };
  } finally {
    clearTimeout(late);
    await context.close();
  }
}
