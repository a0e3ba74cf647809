// Compiles src to dist, and copies the licences, which npm takes from the package's own folder.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";

process.chdir(new URL("..", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
execFileSync("node_modules/.bin/tsc", ["--project", "."], { stdio: "inherit" });
for (const name of ["LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(`../../${name}`, name);
