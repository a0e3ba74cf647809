// A page in Chromium calls GATEWAY_URL, another origin, through the built bundle: a preflighted request that meets
// a 429, reads Retry-After, RateLimit and RateLimit-Policy from it, and retries to success. Prints one line of JSON:
// the calls' statuses (or errors), attempts and reasons, and what the page saw of its first response that was not 2xx.
//
// INIT is JSON, the options of each call beside its header, such as {"credentials":"include"}. COOKIE (name=value) is
// set for GATEWAY_URL before the page calls it. An origin that is not allowed shows as statuses of "TypeError: …", and
// what Chromium logs about it as `console`.
// PAGE_DIR serves PAGE (index.html) of a folder instead of the page below, with ?api=GATEWAY_URL; it must set the
// promise `window.loaded`, and its text is printed.
// PORT is the page's own, and so its origin; default: a free one. CHROMIUM names the browser; default: /usr/bin/chromium.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const {
  GATEWAY_URL,
  PAGE_DIR,
  PAGE = "index.html",
  PATHNAME = "/",
  REQUESTS = "1",
  INIT = "{}",
  COOKIE,
  PORT = "0",
  CHROMIUM = "/usr/bin/chromium",
} = process.env;
if (!GATEWAY_URL) {
  console.error("GATEWAY_URL is missing; set it to the URL of a server on another origin");
  process.exit(2);
}

const { outputFiles } = await build({
  entryPoints: [fileURLToPath(new URL("../../dist/index.js", import.meta.url))],
  bundle: true,
  minify: true,
  format: "esm",
  write: false,
});

const page = `<!doctype html><meta charset="utf-8"><title>retry</title><script type="module">
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
  const api = withRetry(noting, { on: (event) => event.type === "waiting" && waits.push(event.cause) });
  const call = async () => {
    const headers = { "X-Api-Client": "page" };
    const result = await api(url, { ...init, headers: { ...init.headers, ...headers } }).catch((error) => error);
    return { status: result.status ?? String(result), ...api.summary(result) };
  };
  const calls = await Promise.all(Array.from({ length: requests }, call));
  const first = seen.find((one) => one.status > 299);
  return {
    statuses: calls.map((one) => one.status), attempts: calls.map((one) => one.attempts),
    whys: calls.map((one) => one.why), sends: seen.length, waits, failedStatus: first?.status ?? null,
    retryAfter: first?.retryAfter ?? null, rateLimit: first?.rateLimit ?? null,
    rateLimitPolicy: first?.rateLimitPolicy ?? null,
    waitedMs: first ? Math.round(seen.at(-1).at - first.at) : 0,
  };
};
</script>`;

const types = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript" };
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, "http://page");
  const send = (type, content) => response.writeHead(200, { "content-type": type }).end(content);
  if (pathname === "/ratewright.js") return send(types[".js"], outputFiles[0].contents);
  if (pathname === "/" && !PAGE_DIR) return send(types[".html"], page);
  try {
    const file = normalize(pathname === "/" ? PAGE : pathname);
    send(types[extname(file)] ?? "text/plain", readFileSync(join(PAGE_DIR, file)));
  } catch {
    response.writeHead(404).end();
  }
}).listen(Number(PORT), "127.0.0.1");
await once(server, "listening");

const flags = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking";
const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: [...flags.split(" "), "--disable-component-update", "--disable-sync"],
});
try {
  const tab = await browser.newPage();
  const errors = [];
  const logged = [];
  tab.on("pageerror", (error) => errors.push(String(error)));
  tab.on("console", (message) => logged.push(message.text()));
  const url = new URL(PATHNAME, GATEWAY_URL).href;
  if (COOKIE) {
    const [name, value] = COOKIE.split("=");
    await tab.context().addCookies([{ name, value, url }]);
  }
  await tab.goto(`http://127.0.0.1:${server.address().port}/?api=${encodeURIComponent(url)}`);
  await tab.waitForFunction("window.start || window.loaded");
  const start = async ([target, requests, init]) => {
    if (window.start) return window.start(target, requests, init);
    await window.loaded;
    return { text: document.body.innerText.trim() };
  };
  const result = await tab.evaluate(start, [url, Number(REQUESTS), JSON.parse(INIT)]);
  console.log(JSON.stringify({ ...result, errors, console: logged }));
} finally {
  await browser.close();
  server.close();
}
