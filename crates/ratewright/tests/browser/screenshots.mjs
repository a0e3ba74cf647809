// Takes the screenshots of docs/operations/live-page: a shop behind two instances of the gateway, with MINUTES (15) of traffic.

import { mkdirSync } from "node:fs";
import { Agent, createServer, request } from "node:http";
import { fileURLToPath } from "node:url";
import { test } from "../../../../clients/typescript/tests/harness.mjs";
import { openTab, Ratewright, startRedis, until, view } from "./tools.mjs";

const MINUTES = Number(process.env.MINUTES ?? 15);
const FOLDER = fileURLToPath(new URL("../../../../docs/operations/live-page/", import.meta.url));

const policies = `
policies:
  - name: logins
    by: ip
    when: { path: /api/login }
    quota: { rate: 5/min }
  - name: search
    by: ip
    when: { path: /api/search }
    quota: { rate: 30/min, burst: 15 }
  - name: per-key
    by: header:X-Api-Key
    missing: skip
    quota: { rate: 600/min, burst: 100 }
  - name: reports
    mode: shadow
    when: { path: "/reports/**" }
    quota: { rate: 2/s }
  - name: everything
    quota: { rate: 400/s }
`;

const agent = new Agent({ keepAlive: true, maxSockets: 32 });
const pick = (list) => list[Math.floor(Math.random() * list.length)];

// Sends a request through a gateway, as a client behind a trusted proxy.
function send(port, method, path, ip, headers = {}) {
  const sent = request({
    port,
    method,
    path,
    agent,
    headers: { ...headers, "X-Forwarded-For": ip, Host: "shop.example" },
  });
  sent.on("response", (response) => response.resume());
  sent.on("error", () => {});
  sent.end();
}

// A day of a shop in 15 minutes: visitors come and go, and now and then somebody guesses passwords.
function traffic(port, begun) {
  const visitors = Array.from({ length: 200 }, (_, n) => `198.51.100.${n + 1}`);
  const paths = ["/", "/products/17", "/products/42", "/cart", "/api/search?q=lamp", "/reports/2026-11"];
  return setInterval(() => {
    const seconds = (Date.now() - begun) / 1000;
    const wave = 60 + 35 * Math.sin(seconds / 70) + 20 * Math.sin(seconds / 23) + 12 * Math.random();
    for (let n = 0; n < wave / 10; n++) {
      const path = Math.random() < 0.06 ? paths[5] : pick(paths.slice(0, 5));
      send(port, "GET", path, pick(visitors), Math.random() < 0.2 ? { "X-Api-Key": pick(["k1", "k2"]) } : {});
    }
    const isAttacked = Math.sin(seconds / 110) > 0.55;
    if (isAttacked) for (let n = 0; n < 2; n++) send(port, "POST", "/api/login", "203.0.113.7");
    if (Math.random() < 0.15) send(port, "POST", "/api/login", pick(["203.0.113.7", "203.0.113.90", "192.0.2.44"]));
    if (Math.random() < 0.3) send(port, "GET", "/api/search?q=*", "192.0.2.44");
  }, 100);
}

test("screenshots", { timeout: (MINUTES + 3) * 60_000 }, async (t) => {
  const redis = startRedis(t);
  const servers = [0, 1].map(() => createServer((_, response) => response.end("ok")).listen(0, "127.0.0.1"));
  t.after(() => {
    for (const server of servers) server.close();
  });
  await until("the applications listen", async () => servers.every((server) => server.address()));
  const upstreams = servers.map((server) => `http://127.0.0.1:${server.address().port}`);
  const config = `
store: {redis: {url: '${redis.url}'}, local: {share: auto}}
clients: {trusted_proxies: [127.0.0.1]}
routes: [{id: shop, match: {path: /**}, upstream: {servers: ['${upstreams.join("', '")}']}}]
${policies}`;
  const instances = [await Ratewright.start(t, config), await Ratewright.start(t, config)];
  const begun = Date.now();
  const timers = instances.map(({ gateway }) => traffic(new URL(gateway).port, begun));
  t.after(() => {
    for (const timer of timers) clearInterval(timer);
  });
  const open = (colorScheme) =>
    openTab(t, instances[0].admin, {
      colorScheme,
      deviceScaleFactor: 1.5,
      viewport: { width: 1200, height: 800 },
    });
  const [light, dark] = [await open("light"), await open("dark")];
  await new Promise((resolve) => setTimeout(resolve, MINUTES * 60_000));

  mkdirSync(FOLDER, { recursive: true });
  const shoot = (tab, name, options = {}) => tab.screenshot({ path: `${FOLDER}${name}.png`, ...options });
  await shoot(light, "now");
  await shoot(dark, "now-dark");
  await view(light, "Policies");
  await light.getByRole("button", { name: /Denied clients of policy logins/ }).click();
  await light.getByText("Last denials").waitFor();
  await shoot(light, "policies");
  await light.locator(".policy", { hasText: "logins" }).getByRole("link", { name: "203.0.113.7" }).first().click();
  await light
    .getByText(/Next request allowed/)
    .first()
    .waitFor();
  await shoot(light, "client");
  await view(light, "Why?");
  await light
    .getByLabel("Command")
    .fill("curl -X POST https://shop.example/api/login -H 'X-Forwarded-For: 203.0.113.7'");
  await light.getByRole("button", { name: "Read and explain" }).click();
  await light.getByRole("textbox", { name: "Client address" }).fill("203.0.113.7");
  await light.getByRole("button", { name: "Explain", exact: true }).click();
  await light
    .getByText(/denied by logins/i)
    .first()
    .waitFor();
  await shoot(light, "why");
  await view(light, "What if?");
  const editor = light.getByLabel("Policies to try");
  await until("the editor is filled", async () => (await editor.inputValue()).includes("logins"));
  await editor.fill((await editor.inputValue()).replace("30/min, burst: 15", "6/min, burst: 5"));
  await light.getByRole("button", { name: "Replay recent decisions" }).click();
  await light
    .getByText(/recent decisions/)
    .last()
    .waitFor();
  await light
    .getByText(/newly denied/i)
    .first()
    .waitFor();
  await light.evaluate(() => scrollTo(0, 0));
  await shoot(light, "what-if", { fullPage: true });
});
