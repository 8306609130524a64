// Builds the page: src/app.tsx into app.js and the scripts it loads, src/styles/app.css into app.css, whole.js for saved
// pages, and index.html beside them.
// Nothing in the output depends on the machine or the time, so the same sources give the same bytes.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

const here = dirname(fileURLToPath(import.meta.url));
const chosen = process.argv.find((argument) => argument.startsWith("--outdir="));
const outdir = chosen
  ? resolve(chosen.slice("--outdir=".length))
  : join(here, "..", "src", "glassformer", "explain", "page", "static");
/** Bytes, gzipped: what the page needs to stand, and all there is. */
const FIRST_VIEW = 40_000, EVERYTHING = 120_000;

mkdirSync(outdir, { recursive: true });
const common = {
  absWorkingDir: here,
  outdir,
  bundle: true,
  minify: true,
  // Calls of preact.h are shorter than the automatic runtime's; for the type checker tsconfig.json says the same of JSX.
  tsconfigRaw: {},
  jsx: "transform",
  jsxFactory: "jsxElement",
  jsxFragment: "JsxFragment",
  inject: ["jsx.ts"],
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};
// For saved pages `import()` becomes `import`: a module that is evaluated later takes more bytes, 2 KB in all.
const inOnePiece = {
  name: "in-one-piece",
  setup: (build) => build.onLoad({ filter: /src.app\.tsx$/ }, ({ path }) => {
    const imports = [];
    const source = readFileSync(path, "utf8").replace(/import\(("[^"]+")\)/g, (_, from) => {
      imports.push(`import * as later${imports.length} from ${from};`);
      return `Promise.resolve(later${imports.length - 1})`;
    });
    return { contents: imports.join("") + source, loader: "tsx" };
  }),
};
// For the server: app.js and shared.js make the first view, later.js all else. A saved page has no server to ask for more, so
// it gets the same sources in one piece, whole.js. Each leaves out the source of the other's data.
const served = { SAVED: "false" }, saved = { SAVED: "true" };
const { metafile: { outputs } } = await build({
  ...common, define: served, entryPoints: { app: "src/app.tsx" }, format: "esm", splitting: true, chunkNames: "[name]-[hash]", metafile: true,
});
await build({ ...common, entryPoints: { app: "src/styles/app.css" } });
await build({ ...common, plugins: [inOnePiece], define: saved, entryPoints: { whole: "src/app.tsx" }, format: "iife" });

// The files have names without hashes, since those are listed in explain/page/responses.py.
const paths = Object.keys(outputs);
const nameOf = (path) => {
  const entry = outputs[path].entryPoint;
  return entry ? basename(entry).replace(/\.tsx?$/, "") : "shared";
};
const names = new Map(paths.map((path) => [basename(path), `${nameOf(path)}.js`]));
if (new Set(names.values()).size < names.size) throw new Error(`two scripts of one name: ${[...names].join("; ")}`);
for (const [made, name] of names) {
  const script = readFileSync(join(outdir, made), "utf8");
  if (made !== name) rmSync(join(outdir, made));
  writeFileSync(join(outdir, name), [...names].reduce((text, [from, to]) => text.replaceAll(`./${from}`, `./${to}`), script));
}

// A second minifier: what esbuild leaves can be shortened by about 3%.
for (const name of ["app", "shared", "later", "whole"]) {
  const script = join(outdir, `${name}.js`);
  const { code } = await minify(readFileSync(script, "utf8"), {
    ecma: 2022,
    module: name !== "whole",
    compress: {
      passes: 2, unsafe: true, unsafe_arrows: true, // nothing here redefines String, or calls `new` on an arrow
      pure_getters: false, // reading a signal has an effect: it subscribes
      inline: 1, lhs_constants: false, // fewer characters otherwise, but more after gzip
    },
    format: { comments: false, ascii_only: true }, // shorter after gzip
  });
  writeFileSync(script, `${code}\n`);
}
copyFileSync(join(here, "index.html"), join(outdir, "index.html"));

const size = (...names) =>
  names.map((name) => gzipSync(readFileSync(join(outdir, name)), { level: 9 }).length).reduce((a, b) => a + b, 0);
const [view, whole] = [size("app.js", "shared.js", "app.css"), size("whole.js", "app.css")];
console.log(`the first view ${view} bytes gzipped, of ${FIRST_VIEW}; everything ${whole}, of ${EVERYTHING}`);
if (view > FIRST_VIEW || whole > EVERYTHING) process.exitCode = 1;
