// Compiles src to dist, and copies the licences, which npm takes from the package's own folder. A file of dist is
// replaced only if it changes, and in one step: tests may be using it.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
for (const folder of ["build", "dist"]) mkdirSync(folder, { recursive: true });
const folder = mkdtempSync("build/dist-");
try {
  const args = ["node_modules/typescript/bin/tsc", "--project", ".", "--outDir", folder];
  execFileSync(process.execPath, args, { stdio: "inherit", timeout: 60_000, killSignal: "SIGKILL" });
  const names = readdirSync(folder);
  const old = new Map(readdirSync("dist").map((name) => [name, readFileSync(`dist/${name}`, "utf8")]));
  for (const name of names) {
    if (old.get(name) !== readFileSync(`${folder}/${name}`, "utf8")) renameSync(`${folder}/${name}`, `dist/${name}`);
  }
  for (const name of old.keys()) if (!names.includes(name)) rmSync(`dist/${name}`);
} finally {
  rmSync(folder, { recursive: true });
}
for (const name of ["LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(`../../${name}`, name);
