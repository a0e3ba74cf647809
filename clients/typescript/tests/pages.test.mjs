// The JavaScript and TypeScript on the pages passes the type checker.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("..", import.meta.url));

// What a reader has around a block, by the names that the block uses.
const AROUND = {
  withRetry: 'import { withRetry } from "@ratewright/fetch";',
  DeadlineError: 'import { DeadlineError } from "@ratewright/fetch";',
  api: 'declare const api: import("@ratewright/fetch").RetryFetch;',
  axios: 'import axios from "axios";',
  assert: 'import assert from "node:assert/strict";',
  url: "declare const url: string;",
  file: "declare const file: Blob;",
  order: "declare const order: unknown;",
  id: "declare const id: string;",
  metrics: "declare const metrics: { count(name: string, event: unknown): void };",
  fakeFetch: "declare const fakeFetch: typeof fetch;",
};

function blocks(page) {
  const text = readFileSync(join(FOLDER, page), "utf8");
  return [...text.matchAll(/^```(?:js|ts)\n(.*?)^```$/gms)].map((match) => match[1]);
}

function isDefined(name, code) {
  return new RegExp(`(const |import .*)\\b${name}\\b`).test(code);
}

function program(code) {
  const uses = (name) => new RegExp(`(?<![.\\w])${name}\\b`).test(code);
  const around = Object.keys(AROUND).filter((name) => uses(name) && !isDefined(name, code));
  return [...around.map((name) => AROUND[name]), code, "export {};"].join("\n");
}

function check(codes) {
  const folder = mkdtempSync(join(FOLDER, "tests/types/pages-"));
  try {
    codes.forEach((code, n) => {
      writeFileSync(join(folder, `block${n}.ts`), program(code));
    });
    const options = { noEmit: true, rootDir: "../../..", noUnusedLocals: false, skipLibCheck: true, types: ["node"] };
    const config = { extends: "../../../tsconfig.json", compilerOptions: options, include: ["*.ts"] };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    execFileSync("npx", ["tsc", "--project", folder], { cwd: FOLDER, encoding: "utf8", stdio: "pipe" });
    return "";
  } catch (error) {
    return error.stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("the code on the pages passes the type checker", () => {
  const codes = ["README.md", "../../docs/guides/clients.md"].flatMap(blocks);
  assert.ok(codes.length > 6, `${codes.length} blocks`);
  assert.equal(check(codes), "");
});

test("code with a mistake does not pass", () => {
  assert.match(check(["const response = await api(url);\nresponse.stats;\n"]), /'stats' does not exist/);
});
