// Checks the package as npm would publish it: its files, its exports map (publint) and its types (are the types wrong).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const pkg = JSON.parse(readFileSync("package.json", "utf8"));
assert.equal(pkg.dependencies, undefined, "the package has runtime dependencies");

mkdirSync("build", { recursive: true });
const options = { encoding: "utf8", timeout: 60_000, killSignal: "SIGKILL" };
const run = (...args) => JSON.parse(execFileSync("npm", [...args, "--json", "--ignore-scripts"], options));
const [{ files, filename }] = run("pack", "--pack-destination", "build");
const allowed = /^(dist\/[\w-]+(\.d)?\.[jt]s|README\.md|LICENSE-(MIT|APACHE)|package\.json)$/;
for (const { path } of files) assert.match(path, allowed, `the package holds ${path}`);
for (const needed of ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "dist/index.js", "dist/testing.d.ts"]) {
  assert.ok(
    files.some(({ path }) => path === needed),
    `the package lacks ${needed}`,
  );
}

const tarball = `build/${filename.replace("@", "").replace("/", "-")}`;
const { messages } = await publint({ strict: true });
const problems = messages.map((message) => formatMessage(message, pkg));

const packed = createPackageFromTarballData(new Uint8Array(readFileSync(tarball)));
rmSync(tarball);
const { problems: wrong } = await checkPackage(packed);
// The package has ESM only, and old resolvers do not read an exports map.
const accepted = ({ kind, resolutionKind }) => kind === "CJSResolvesToESM" || resolutionKind === "node10";
problems.push(...wrong.filter((problem) => !accepted(problem)).map((problem) => JSON.stringify(problem)));

for (const problem of problems) console.error(problem);
console.log(`package files=${files.length} problems=${problems.length}`);
if (problems.length > 0) process.exit(1);
