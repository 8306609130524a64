// Runs test/*.test.ts: each is bundled into a folder that is removed afterwards, then given to Node's test runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** What modules of the page ask of a browser when they are loaded. */
const BROWSER = `
  globalThis.location = { hash: "" };
  globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
  globalThis.document = { documentElement: { dataset: {} }, createElement: () => ({ getContext: () => null }) };
`;

const here = dirname(fileURLToPath(import.meta.url));
const names = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts")).sort();
const outdir = mkdtempSync(join(tmpdir(), "glassformer-web-"));
try {
  await build({
    absWorkingDir: here,
    entryPoints: names.map((name) => join("test", name)),
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    logLevel: "warning",
    define: { SAVED: "false" },
    banner: { js: BROWSER },
  });
  const files = names.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit", cwd: here }).status ?? 1;
} finally {
  rmSync(outdir, { recursive: true });
}
