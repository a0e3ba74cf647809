// A page in Chromium calls GATEWAY_URL, another origin, through the built bundle: a preflighted request that meets
// a 429, reads Retry-After, RateLimit and RateLimit-Policy from it, and retries to success. Prints one line of JSON:
// the calls' statuses (or errors), attempts and reasons, and what the page saw of its first response that was not 2xx.
//
// INIT is JSON, the options of each call beside its header, such as {"credentials":"include"}. COOKIE (name=value) is
// set for GATEWAY_URL before the page calls it. An origin that is not allowed shows as statuses of "TypeError: …", and
// what Chromium logs about it as `console`.
// PAGE_DIR serves PAGE (index.html) of a folder instead of the page, with ?api=GATEWAY_URL; it must set the promise
// `window.loaded`, and its text is printed.
// PORT is the page's own, and so its origin; default: a free one. CHROMIUM names the browser; default: /usr/bin/chromium.
import { launchChromium } from "../chromium.mjs";
import { bundle, servePage, visit } from "./page.mjs";

const { GATEWAY_URL, PAGE_DIR, PAGE, PATHNAME = "/", REQUESTS = "1", INIT = "{}", COOKIE, PORT = "0" } = process.env;
if (!GATEWAY_URL) {
  console.error("GATEWAY_URL is missing; set it to the URL of a server on another origin");
  process.exit(2);
}

const server = await servePage(await bundle(), { port: Number(PORT), folder: PAGE_DIR, file: PAGE });
const browser = await launchChromium();
try {
  const url = new URL(PATHNAME, GATEWAY_URL).href;
  const options = { requests: Number(REQUESTS), init: JSON.parse(INIT), cookie: COOKIE };
  console.log(JSON.stringify(await visit(browser, server, url, options)));
} finally {
  await browser.close();
  server.close();
}
