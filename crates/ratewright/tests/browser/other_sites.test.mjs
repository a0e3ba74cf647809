// Pages of other sites in Chromium on this machine: whatever they load, and however they write the address, they spend no units
// of a client. A program on this machine needs no header.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { launchChromium } from "../../../../clients/typescript/tests/chromium.mjs";
import { it } from "../../../../clients/typescript/tests/harness.mjs";
import { Ratewright, startRecorder } from "./tools.mjs";

// Names and spellings of this machine. Chromium turns some into others, and connects to most.
const HOSTS =
  `127.0.0.1 localhost LOCALHOST localhost. a.localhost rebound.example 0.0.0.0 0 0x0 00.0 127.1 127.0.1 127.0.0.01
  127.000.000.001 127.0.0.2 127.255.255.254 2130706433 017700000001 0177.0.0.1 0x7f000001 0x7F.1 127.0.0.1. １２７.０.０.１ 127。0。0。1
  [::1] [0:0:0:0:0:0:0:1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:7F00:0001] [0:0:0:0:0:ffff:127.0.0.1] [::ffff:0.0.0.0]
  [::ffff:0:0]`.split(/\s+/);

// What a page can load without being allowed to. Runs in the page.
async function loadAll(urls) {
  const settled = (target, ...events) =>
    new Promise((done) => {
      for (const event of events) target.addEventListener(event, done);
    });
  const element = (name, url) => {
    const added = Object.assign(document.createElement(name), { src: url });
    const loaded = settled(added, "load", "error");
    document.body.append(added);
    return loaded;
  };
  const made = (make, ...events) => {
    try {
      return settled(make(), ...events);
    } catch {} // not a URL of that kind
  };
  const ways = [
    (url) => element("img", url),
    (url) => element("script", url),
    (url) => element("iframe", url),
    (url) => fetch(url, { mode: "no-cors" }).catch(() => {}),
    (url) => fetch(url, { mode: "no-cors", method: "POST", referrerPolicy: "no-referrer" }).catch(() => {}),
    (url) => made(() => new EventSource(url), "open", "error"),
    (url) => made(() => new WebSocket(url.replace("http", "ws")), "open", "error"),
  ];
  await Promise.all(urls.flatMap((url) => ways.map((way) => way(url))));
}

it("pages of other sites spend no units of a client", async (t) => {
  const program = await Ratewright.start(t, "policies: [{name: login, by: ip, quota: {rate: 3/h}}]\n");
  const recorders = [await startRecorder(t, program.api), await startRecorder(t, program.admin)];
  const site = createServer(({ url }, response) => {
    const to = new URL(url, "http://a").searchParams.get("to");
    if (to) response.writeHead(302, { Location: to }).end();
    else response.setHeader("Content-Type", "text/html").end("<body>");
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  t.after(() => site.close());
  const rules = ["evil.example", "rebound.example"].map((name) => `MAP ${name} 127.0.0.1`);
  const browser = await launchChromium(`--host-resolver-rules=${rules}`);
  t.after(() => browser.close());
  const tab = await browser.newPage();
  const paths = ["/api/v1/rate-limit/check?policy=login&key=198.51.100.9", "/api/v1/admin/top"];
  for (const origin of ["evil.example", "localhost"]) {
    await tab.goto(`http://${origin}:${site.address().port}/`);
    const urls = HOSTS.flatMap((host) => recorders.map(({ port }, i) => `http://${host}:${port}${paths[i]}`));
    await tab.evaluate(loadAll, urls);
  }
  // A link in a mail, or a typed address, that leads here: the browser says that no site is behind it.
  const led = `http://evil.example:${site.address().port}/?to=${encodeURIComponent(`http://127.0.0.1:${recorders[0].port}${paths[0]}`)}`;
  await tab.goto(led);
  const answers = recorders.flatMap(({ answers }) => answers);
  const hosts = new Set(answers.map(({ host }) => host.replace(/:\d+$/, "")));
  for (const host of ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:7f00:1]", "rebound.example"]) {
    assert.ok(hosts.has(host), `${host} is reached; reached are ${[...hosts]}`);
  }
  const allowed = answers.filter(({ path, status }) => status !== 403 && path !== "/favicon.ico");
  assert.deepEqual(allowed, []);
  // The client has all its units, and programs need no header.
  const statuses = [];
  for (let i = 0; i < 4; i++) statuses.push(await program.send(paths[0]));
  assert.deepEqual(statuses, [200, 200, 200, 429]);
});
