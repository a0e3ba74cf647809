// React Native: the bundle in Hermes, its JavaScript engine, with only the globals that React Native has.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import ts from "typescript-es5";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const hermes = at("../node_modules/hermes-engine-cli/linux64-bin/hermes");
const skip = !existsSync(hermes) || process.platform !== "linux" || process.arch !== "x64";

test("the bundle runs in Hermes", { skip: skip && "Hermes has no binary for this platform" }, async () => {
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
  mkdirSync(at("../build"), { recursive: true });
  const program = at("../build/hermes.js");
  writeFileSync(program, `var VECTORS = ${JSON.stringify(vectors)};\n${outputText}`);
  chmodSync(hermes, 0o755);
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
