// React Native: the bundle in Hermes, its JavaScript engine, with only the globals that React Native has.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { test } from "./harness.mjs";

const ts = createRequire(import.meta.url)("typescript-es5"); // by `import` it takes half a second longer
const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const hermes = at("../node_modules/hermes-engine-cli/linux64-bin/hermes");
const skip = `${process.platform} ${process.arch}` !== "linux x64" && "Hermes has no binary for this platform";

test("the bundle runs in Hermes", { skip }, async (t) => {
  const folder = at("../../vectors/");
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  const vectors = files.flatMap((name) => JSON.parse(readFileSync(folder + name, "utf8")).cases);

  const { outputFiles } = await build({
    entryPoints: [at("hermes/program.js")],
    bundle: true,
    format: "iife",
    target: "es2015",
    ignoreAnnotations: true, // the package has no side effects, but globals.js has
    write: false,
  });
  // React Native compiles classes away, since Hermes has none; so do we.
  const { outputText } = ts.transpileModule(outputFiles[0].text, {
    compilerOptions: { target: ts.ScriptTarget.ES5, downlevelIteration: true, module: ts.ModuleKind.None },
  });
  const own = mkdtempSync(join(tmpdir(), "ratewright-hermes-"));
  t.after(() => rmSync(own, { recursive: true }));
  const program = join(own, "program.js");
  writeFileSync(program, `var VECTORS = ${JSON.stringify(vectors)};\n${outputText}`);
  if (!(statSync(hermes).mode & 0o001)) chmodSync(hermes, 0o755);
  const lines = execFileSync(hermes, [program], { encoding: "utf8", timeout: 60_000 }).trim().split("\n");
  const results = Object.fromEntries(lines.map((line) => JSON.parse(line)).map(({ name, value }) => [name, value]));

  assert.equal(results.error, undefined);
  assert.deepEqual(results.vectors, { passed: vectors.length, failed: [], total: vectors.length });
  assert.deepEqual(results.retry, { sends: 2, text: "content", init: { headers: { map: {} } } });
  assert.deepEqual(results.abort, { name: "AbortError", timers: 0, listeners: 0 });
  for (const kind of ["string", "form", "request"])
    assert.deepEqual(results[`body: ${kind}`], { sends: 2, same: true });
  assert.deepEqual(results.redirect, { sends: 1, status: 429 });
  assert.deepEqual(results["system clock"], { early: false, sends: 2 });
});
