// Prints how much a page downloads that calls withRetry, bundled, minified and gzipped; and as much with all exports.
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const bytesMax = 6_000;

/** The bytes of a program, minified and gzipped. */
async function sizeOf(contents) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: fileURLToPath(new URL("../dist", import.meta.url)) },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    write: false,
  });
  const minified = outputFiles[0].contents;
  return [minified.length, gzipSync(minified, { level: 9 }).length];
}

const [minified, gzipped] = await sizeOf('import { withRetry } from "./index.js"; globalThis.api = withRetry();');
const [, all] = await sizeOf('export * from "./index.js";');
console.log(`size minified=${minified} gzipped=${gzipped} max=${bytesMax} all-exports=${all}`);
if (gzipped >= bytesMax) process.exit(1);
