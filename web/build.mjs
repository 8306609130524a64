// Builds the page: src/main.tsx with its styles into app.js and app.css, and index.html beside them.
// Nothing in the output depends on the machine or the time, so the same sources give the same bytes.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

const here = dirname(fileURLToPath(import.meta.url));
const chosen = process.argv.find((argument) => argument.startsWith("--outdir="));
const outdir = chosen
  ? resolve(chosen.slice("--outdir=".length))
  : join(here, "..", "src", "glassformer", "explain", "page", "static");
/**
 * Properties that get shorter names: the page's own, and those of Preact's that only class components have. None is in
 * the server's JSON (checked below), in the address, or an attribute of an element.
 */
const OWN = "again|bars|cellHeight|cellWidth|chosen|colLabels|colName|colours|cols|component|current|delta|erasedWith|exported|extra|fate|filtered|grid|halves|inTrace|layers|limit|marks|maskValue|mini|nErased|nHeads"
  + "|neutral|normFirst|onChoose|onCurrent|onForce|onHover|onPoint|onSelect|onStep|onTrace|partner|penalty|renewing|rowHeight|rowLabels|rowName|signs|sizes|strong|tall|term|terms|verb|wanted";
const CLASSES = "getDerivedStateFrom\\w+|component(?:Will|Did)\\w+|shouldComponentUpdate|getSnapshotBeforeUpdate|getChildContext|contextType|debounceRendering";
const sent = new RegExp(`\\b(?:${OWN})\\??:`).exec(readFileSync(join(here, "src", "types.ts"), "utf8"));
if (sent) throw new Error(`"${sent[0]}" is a field of types.ts, so it cannot be renamed in the page alone`);
const BUDGET = 60_000; // bytes of app.js and app.css together, gzipped

mkdirSync(outdir, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir,
  bundle: true,
  minify: true,
  format: "iife",
  // Calls of preact.h are shorter than the automatic runtime's; for the type checker tsconfig.json says the same of JSX.
  tsconfigRaw: {},
  mangleProps: new RegExp(`^(?:${OWN}|${CLASSES})$`),
  jsx: "transform",
  jsxFactory: "jsxElement",
  jsxFragment: "JsxFragment",
  inject: ["src/jsx.ts"],
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});

// A second minifier: what esbuild leaves can be shortened by about 3%.
const script = join(outdir, "app.js");
const { code } = await minify(readFileSync(script, "utf8"), {
  ecma: 2022,
  compress: {
    passes: 2, unsafe: true, unsafe_arrows: true, // nothing here redefines String, or calls `new` on an arrow
    pure_getters: false, // reading a signal has an effect: it subscribes
    inline: 1, lhs_constants: false, // fewer characters otherwise, but more after gzip
  },
  format: { comments: false, ascii_only: true }, // shorter after gzip
});
writeFileSync(script, `${code}\n`);
copyFileSync(join(here, "index.html"), join(outdir, "index.html"));

const sizes = ["app.js", "app.css"].map((name) => gzipSync(readFileSync(join(outdir, name)), { level: 9 }).length);
const total = sizes.reduce((a, b) => a + b, 0);
console.log(`app.js ${sizes[0]} + app.css ${sizes[1]} = ${total} bytes gzipped, of ${BUDGET}`);
if (total > BUDGET) process.exitCode = 1;
