// Prints how much a page downloads: everything that the package exports, bundled, minified and gzipped.
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const bytesMax = 6_000;

const { outputFiles } = await build({
  entryPoints: [new URL("../dist/index.js", import.meta.url).pathname],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  write: false,
});
const minified = outputFiles[0].contents;
const gzipped = gzipSync(minified, { level: 9 }).length;
console.log(`size minified=${minified.length} gzipped=${gzipped} max=${bytesMax}`);
if (gzipped >= bytesMax) process.exit(1);
