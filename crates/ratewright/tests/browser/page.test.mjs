// The live page in Chromium, against the real program: every view, live updates, hostile names, login and revocation, a lost
// connection, accessibility, narrow screens.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { describe, it } from "../../../../clients/typescript/tests/harness.mjs";
import { openTab, Ratewright, startFront, startRedis, until, view, violations } from "./tools.mjs";

const HOSTILE = "/<script>alert(1)</script>\u202egnp.exe";
const POLICIES = `
policies:
  - {name: logins, by: ip, when: {path: /login}, quota: {rate: 2/h}}
  - {name: trial, by: ip, mode: shadow, when: {path: /trial}, quota: {rate: 1/h}}
  - {name: pairs, by: [user, ip], missing: skip, quota: {rate: 3/h}}
  - {name: by-key, by: 'header:X-Api-Key', missing: skip, quota: {rate: 20/h}}
  - {name: shared, when: {path: /shared}, quota: {rate: 2/h, algorithm: sliding_window}}
  - {name: users-only, by: user, missing: deny, when: {path: /account}, quota: {rate: 5/h}}
`;
const CLIENT = { ip: "203.0.113.7", method: "POST", path: "/login" };

const text = (tab) => tab.locator("main").innerText();
const shows = (tab, pattern) => until(`the page shows ${pattern}`, async () => pattern.test(await text(tab)));
const titled = (tab, start) => until(`the title is ${start}`, async () => (await tab.title()).startsWith(start));
const noProblems = (tab) => assert.deepEqual(tab.problems, []);

describe("the live page", { concurrency: 3 }, () => {
  // It takes longest, so it comes first.
  it("a lost connection is shown and restored", async (t) => {
    const redis = startRedis(t);
    const program = await Ratewright.start(t, `store: {redis: {url: '${redis.url}'}}\n${POLICIES}`);
    const front = await startFront(t, () => new URL(program.admin).port);
    const tab = await openTab(t, front);
    await shows(tab, /Store\s*Shared/i);
    redis.process.kill("SIGKILL");
    await until("Redis is lost", async () => {
      await program.decide(CLIENT);
      return /Redis is unreachable/.test(await text(tab));
    });
    // The page sees a restart if the program has been up for longer than it will be when the page connects again.
    await until("it is up for 6 s", async () => (await program.uptimeSeconds()) >= 6);
    await program.kill();
    await shows(tab, /Connection lost/);
    assert.match(await tab.title(), /Not connected/);
    assert.match(await text(tab), /203\.0\.113\.7/, "the data stays");
    redis.run();
    await program.run();
    await until("it is connected", async () => !/Connection lost/.test(await text(tab)));
    await shows(tab, /Store\s*Shared/i);
    await program.decide({ ...CLIENT, ip: "203.0.113.99" });
    await shows(tab, /203\.0\.113\.99/);
    await shows(tab, /Ratewright restarted at/);
    noProblems(tab);
  });

  it("without a configuration, one request moves the page", async (t) => {
    const program = await Ratewright.start(t, "");
    const tab = await openTab(t, program.admin);
    await shows(tab, /curl http:\/\/127\.0\.0\.1:8080\/api\/v1\/rate-limit\/check/);
    assert.equal(await program.send("/api/v1/rate-limit/check"), 200);
    await shows(tab, /Allowed[\s\S]*policy token_bucket/);
    assert.doesNotMatch(await text(tab), /No request in the last 15 minutes/);
    assert.match(await tab.locator("[role=img]").first().getAttribute("aria-label"), /Highest: [\d.]+ allowed/);
    await view(tab, "Policies");
    await shows(tab, /token_bucket[\s\S]*100 at once, then 10 every second, for each key that callers name/);
    await view(tab, "Now");
    await titled(tab, "Now · Ratewright");
    noProblems(tab);
  });

  it("the page shows which client is denied most, why, and until when", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    const tab = await openTab(t, program.admin);
    const statuses = [];
    for (let i = 0; i < 5; i++) statuses.push(await program.decide(CLIENT));
    assert.deepEqual(statuses, [200, 200, 429, 429, 429]);
    assert.equal(await program.decide({ ip: "203.0.113.8", path: "/trial" }), 200);
    assert.equal(await program.decide({ ip: "203.0.113.8", path: "/trial" }), 200);
    await shows(tab, /Most denied clients[\s\S]*203\.0\.113\.7[\s\S]*logins[\s\S]*3/);
    await shows(tab, /Denied[\s\S]*POST \/login/);

    await view(tab, "Policies");
    await shows(tab, /2 at once, then 1 every 30 min, for each client address; on \/login/);
    await tab.getByRole("button", { name: /Denied clients of policy logins/ }).click();
    await shows(tab, /Last denials[\s\S]*POST \/login/);
    await shows(tab, /Would be denied\s*1/i);
    await tab.getByRole("button", { name: /Denied clients of policy trial/ }).click();

    await tab.locator(".policy", { hasText: "logins" }).getByRole("link", { name: "203.0.113.7" }).first().click();
    await shows(tab, /0 of 2 left/);
    await shows(tab, /Next request allowed: [\s\S]*(29|30) min/);
    await titled(tab, "Client · Ratewright");
    noProblems(tab);
  });

  it("a bucket is reset after a confirmation", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    for (let i = 0; i < 3; i++) await program.decide(CLIENT);
    const tab = await openTab(t, `${program.admin}/#client`);
    await tab.getByLabel("Address").fill("203.0.113.7");
    await tab.getByRole("button", { name: "Show the buckets" }).click();
    await shows(tab, /0 of 2 left/);
    assert.equal(await program.decide(CLIENT), 429);
    const logins = tab.locator(".policies > li", { hasText: "logins" });
    await logins.getByRole("button", { name: /^Reset/ }).click();
    await logins.getByRole("button", { name: "Cancel" }).click();
    assert.equal(await program.decide(CLIENT), 429, "it was cancelled");
    await logins.getByRole("button", { name: /^Reset/ }).click();
    await logins.getByRole("button", { name: "Yes, reset this client's bucket" }).click();
    await shows(tab, /The bucket was reset/);
    await shows(tab, /2 of 2 left/);
    assert.equal(await program.decide(CLIENT), 200);
    noProblems(tab);
  });

  it("a bucket that all clients share is reset, and a shadow policy says what it would do", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    for (let i = 0; i < 2; i++) await program.decide({ ip: "203.0.113.8", path: "/trial" });
    for (let i = 0; i < 2; i++) await program.decide({ ip: "203.0.113.8", path: "/shared" });
    assert.equal(await program.decide({ ip: "203.0.113.9", path: "/shared" }), 429);
    assert.equal(await program.decide({ ip: "203.0.113.9", path: "/account" }), 403);
    const tab = await openTab(t, `${program.admin}/#client`);
    await tab.getByLabel("Address").fill("203.0.113.8");
    await tab.getByRole("button", { name: "Show the buckets" }).click();
    const trial = tab.locator(".policies > li", { hasText: "trial" });
    await until("the shadow policy would deny", async () => /would be allowed now/.test(await trial.innerText()));
    assert.match(await trial.innerText(), /0 of 1 left/);
    const shared = tab.locator(".policies > li", { hasText: "shared" });
    assert.match(await shared.innerText(), /0 of 2 left[\s\S]*Each unit returns 1 h after it was spent/);
    await shared.getByRole("button", { name: /^Reset/ }).click();
    await shared.getByRole("button", { name: "Yes, reset the bucket that all clients share" }).click();
    await until("it is full", async () => /2 of 2 left/.test(await shared.innerText()));
    assert.equal(await program.decide({ ip: "203.0.113.9", path: "/shared" }), 200);

    // A request without a user is listed by its address.
    await view(tab, "Policies");
    await tab.getByRole("button", { name: /Denied clients of policy users-only/ }).click();
    await tab.getByRole("link", { name: "203.0.113.9" }).first().click();
    await until("the form is filled", async () => (await tab.getByLabel("Address").inputValue()) === "203.0.113.9");
    assert.equal(await tab.getByLabel("User").inputValue(), "");
    noProblems(tab);
  });

  it("composite keys need all parts, and links from denials fill them in", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    const anna = { ip: "2001:db8::7", path: "/", user: "an|na 100%" };
    for (let i = 0; i < 4; i++) await program.decide(anna);
    const tab = await openTab(t, `${program.admin}/#client`);
    await tab.getByLabel("User").fill(anna.user);
    await tab.getByRole("button", { name: "Show the buckets" }).click();
    await shows(tab, /pairs needs: Address/);
    await shows(tab, /by-key needs: Header x-api-key/);
    await tab.getByLabel("Address").fill(anna.ip);
    await tab.getByRole("button", { name: "Show the buckets" }).click();
    await shows(tab, /0 of 3 left/);
    await view(tab, "Now");
    await tab
      .getByRole("link", { name: /an%7Cna/ })
      .first()
      .click();
    await shows(tab, /0 of 3 left/);
    assert.equal(await tab.getByLabel("User").inputValue(), anna.user);
    assert.match(await tab.getByLabel("Address").inputValue(), /^2001:db8::/);

    await program.decide({ ip: "203.0.113.9", path: "/", headers: { "X-Api-Key": "k1" } });
    await tab.getByLabel(/Header x-api-key/i).fill("k1");
    await tab.getByRole("button", { name: "Show the buckets" }).click();
    await shows(tab, /19 of 20 left/);
    noProblems(tab);
  });

  it("an ad hoc key is found", async (t) => {
    const program = await Ratewright.start(t, "");
    await program.send("/api/v1/rate-limit/check?key=order-17");
    const tab = await openTab(t, `${program.admin}/#client`);
    await tab.getByLabel("Ad hoc key").fill("order-17");
    await tab.getByRole("button", { name: "Show the buckets" }).click();
    await shows(tab, /token_bucket[\s\S]*\b(9\d|100) of 100 left/);
    await tab
      .locator(".policies > li", { hasText: "token_bucket" })
      .getByRole("button", { name: /^Reset/ })
      .click();
    await tab.getByRole("button", { name: "Yes, reset this client's bucket" }).click();
    await shows(tab, /The bucket was reset/);
    noProblems(tab);
  });

  it("a request is explained, from a form and from a curl command", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    for (let i = 0; i < 3; i++) await program.decide(CLIENT);
    const tab = await openTab(t, `${program.admin}/#why`);
    await tab.getByLabel("Method").fill("POST");
    await tab.getByLabel("Path with query").fill("/login?x=1");
    await tab.getByRole("textbox", { name: "Client address" }).fill("203.0.113.7");
    await tab.getByRole("button", { name: "Explain", exact: true }).click();
    await shows(tab, /denied by logins: its bucket is empty: 0 of 2 left/i);
    await shows(tab, /path is \/login, which does not match \/trial/);
    const command = `curl -X POST 'https://shop.example/trial' \\\n  -H "X-Api-Key: k'1" --data '{"a": 1}' --compressed`;
    await tab.getByLabel("Command").fill(command);
    await tab.getByRole("button", { name: "Read and explain" }).click();
    await until("the form has it", async () => (await tab.getByLabel("Path with query").inputValue()) === "/trial");
    assert.equal(
      await tab.getByLabel("Headers").inputValue(),
      "X-Api-Key: k'1\nContent-Type: application/x-www-form-urlencoded",
    );
    await shows(tab, /path is \/trial, which does not match \/login/);
    for (let i = 0; i < 2; i++) await program.decide({ ip: "203.0.113.7", path: "/trial" });
    await tab.getByRole("button", { name: "Explain", exact: true }).click();
    await shows(tab, /If enforced, it would be denied by trial/);
    await tab.getByRole("textbox", { name: "Client address" }).fill("nobody");
    await tab.getByRole("button", { name: "Explain", exact: true }).click();
    await shows(tab, /The request could not be explained/);
    noProblems(tab);
  });

  it("edited policies are replayed against recent decisions and a log", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    const tab = await openTab(t, `${program.admin}/#what-if`);
    await until("the editor has the policies in force", async () =>
      (await tab.getByLabel("Policies to try").inputValue()).includes("logins"),
    );
    for (let i = 0; i < 5; i++) await program.decide(CLIENT);
    await shows(tab, /This page holds 5 decisions/);
    const editor = tab.getByLabel("Policies to try");
    await editor.fill((await editor.inputValue()).replace("2/h", "1/h"));
    await tab.getByRole("button", { name: "Replay recent decisions" }).click();
    await shows(tab, /5 recent decisions/);
    await shows(tab, /newly denied[\s\S]*203\.0\.113\.7/i);

    const line = (n) =>
      `203.0.113.${n % 3} - - [18/Nov/2026:12:00:${10 + n} +0000] "POST /login HTTP/1.1" 200 5 "-" "-"\n`;
    const log = join(program.file, "..", "access.log");
    writeFileSync(log, Array.from({ length: 30 }, (_, n) => line(n)).join(""));
    await tab.getByLabel(/File, or drop one here/).setInputFiles(log);
    await shows(tab, /access\.log/);
    await shows(tab, /Denied by your policies\s*27/i);
    await shows(tab, /Most denied clients[\s\S]*203\.0\.113\.[012]\s*logins\s*10\s*9/i);

    await editor.fill("policies: []\n");
    await tab.getByRole("button", { name: "Replay access.log again" }).click();
    await shows(tab, /Newly allowed\s*24/i);

    await editor.fill("policies:\n  - {name: logins, quoat: 1}\n");
    await tab.getByRole("button", { name: "Replay recent decisions" }).click();
    await shows(tab, /quoat/);
    await tab
      .getByRole("button", { name: /edited policies:2:/ })
      .first()
      .click();
    const line2 = await editor.evaluate((area) => area.value.slice(0, area.selectionStart).split("\n").length);
    assert.equal(line2, 2, "the cursor is in the line of the error");
    noProblems(tab);
  });

  it("hostile names are shown as text", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    const tab = await openTab(t, program.admin);
    const user = `<img src=x onerror=alert(1)>${"x".repeat(200)}`;
    for (let i = 0; i < 4; i++) await program.decide({ ip: "203.0.113.7", path: HOSTILE, method: "GET", user });
    for (const name of ["Now", "Policies", "Client", "Why?", "What if?"]) {
      await view(tab, name);
      await until("the view is drawn", async () => (await tab.locator("h1:visible").count()) === 1);
      assert.equal(await tab.locator("main script, main img").count(), 0);
    }
    await view(tab, "Now");
    await shows(tab, /<img src=x onerror=alert\(1\)>/);
    await shows(tab, /\\u\{202e\}/); // the direction of text is not changed
    const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${wide} px too wide`);
    noProblems(tab);
  });

  it("a token opens the page, stays in memory, and is forgotten when it is revoked", async (t) => {
    const config = (token) => `api: {tokens: [${token}]}\n${POLICIES}`;
    // Nobody on loopback needs a token.
    const admin = Object.values(networkInterfaces())
      .flat()
      .find(({ family, internal }) => family === "IPv4" && !internal);
    if (!admin) return t.skip("this machine has only loopback");
    const program = await Ratewright.start(t, config("first-token"), { admin: admin.address });
    const tab = await openTab(t, program.admin, { bypassCSP: true });
    await tab.getByLabel("Token").waitFor();
    assert.deepEqual(await violations(tab), []);
    const asked = [];
    tab.on("request", (request) => asked.push(request));
    await tab.getByLabel("Token").fill("wrong");
    await tab.getByRole("button", { name: "Log in" }).click();
    await shows(tab, /The token was not accepted/);
    await tab.getByLabel("Token").fill("first-token");
    await tab.getByRole("button", { name: "Log in" }).click();
    await shows(tab, /Memory/);
    assert.ok(
      asked.every((request) => !request.url().includes("first-token")),
      "never in a URL",
    );
    const kept = await tab.evaluate(() =>
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
    );
    assert.equal(kept, '[{},{},""]');

    program.write(config("second-token"));
    await tab.getByLabel("Token").waitFor();
    await shows(tab, /no longer valid/);
    await tab.getByLabel("Token").fill("second-token");
    await tab.getByRole("button", { name: "Log in" }).click();
    await shows(tab, /Memory/);
    await tab.getByRole("button", { name: "Log out" }).click();
    await tab.getByLabel("Token").waitFor();
    noProblems(tab);
  });

  for (const [colorScheme, width, height] of [
    ["light", 1280, 900],
    ["light", 375, 812],
    ["dark", 1280, 900],
    ["dark", 375, 812],
  ]) {
    it(`every view is accessible and fits: ${colorScheme}, ${width} px`, async (t) => {
      const program = await Ratewright.start(t, POLICIES);
      for (let i = 0; i < 4; i++) await program.decide({ ...CLIENT, user: "anna", path: i < 3 ? "/login" : "/trial" });
      const tab = await openTab(t, program.admin, { colorScheme, viewport: { width, height }, bypassCSP: true });
      const check = async (name) => {
        assert.deepEqual(await violations(tab), [], name);
        const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name}: ${wide} px too wide`);
      };
      await shows(tab, /203\.0\.113\.7/);
      await check("now");
      await view(tab, "Policies");
      await tab.getByRole("button", { name: /Denied clients of policy logins/ }).click();
      await shows(tab, /Last denials/);
      await check("policies");
      await tab.locator(".policy", { hasText: "logins" }).getByRole("link", { name: "203.0.113.7" }).first().click();
      await shows(tab, /0 of 2 left/);
      await check("client");
      await view(tab, "Why?");
      await tab.getByLabel("Path with query").fill("/login");
      await tab.getByRole("button", { name: "Explain", exact: true }).click();
      await shows(tab, /Response headers/i);
      await check("why");
      await view(tab, "What if?");
      await program.decide(CLIENT);
      const replay = tab.getByRole("button", { name: "Replay recent decisions" });
      await until("there are decisions", async () => replay.isEnabled());
      await replay.click();
      await shows(tab, /Denied by policies in force/i);
      await check("what if");
      noProblems(tab);
    });
  }

  it("the keyboard reaches every view and control", async (t) => {
    const program = await Ratewright.start(t, POLICIES);
    const tab = await openTab(t, program.admin);
    await shows(tab, /Memory/);
    const seen = new Set();
    for (let i = 0; i < 40; i++) {
      await tab.keyboard.press("Tab");
      const focused = await tab.evaluate(() => {
        const { activeElement: element } = document;
        const style = getComputedStyle(element);
        return { name: element.innerText || element.ariaLabel, outline: style.outlineStyle };
      });
      seen.add(focused.name);
      if (focused.name === "Why?") {
        assert.notEqual(focused.outline, "none", "the focus is visible");
        await tab.keyboard.press("Enter");
        break;
      }
    }
    assert.ok(seen.has("Policies") && seen.has("Why?"), [...seen].join(", "));
    await titled(tab, "Why?");
    noProblems(tab);
  });
});
