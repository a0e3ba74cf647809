// The JavaScript and TypeScript on the pages passes the type checker.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "./harness.mjs";

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

/** What the type checker says about blocks of code, each by its name. */
function check(codes) {
  mkdirSync(join(FOLDER, "build"), { recursive: true });
  const folder = mkdtempSync(join(FOLDER, "build/pages-"));
  try {
    for (const [name, code] of Object.entries(codes)) writeFileSync(join(folder, `${name}.ts`), program(code));
    const options = { noEmit: true, rootDir: "../..", noUnusedLocals: false, skipLibCheck: true, types: ["node"] };
    const config = { extends: "../../tsconfig.json", compilerOptions: options, include: ["*.ts"] };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    const args = [join(FOLDER, "node_modules/.bin/tsc"), "--pretty", "false", "--project", folder];
    const { stdout, error } = spawnSync(process.execPath, args, { cwd: folder, encoding: "utf8", timeout: 60_000 });
    assert.ifError(error);
    return stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("the code on the pages passes the type checker, and code with a mistake does not", () => {
  const codes = ["README.md", "../../docs/guides/clients.md"].flatMap(blocks);
  assert.ok(codes.length > 6, `${codes.length} blocks`);
  const mistake = "const response = await api(url);\nresponse.stats;\n";
  const found = check({ ...codes, mistake });
  assert.match(found, /^mistake\.ts\(\d+,\d+\): error \w+: Property 'stats' does not exist[^\n]*\n$/);
});
