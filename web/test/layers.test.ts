/** Tests the import rules: the folders of src/ are layers, screens do not import each other, and no file depends on the task of a model. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";

/** A folder may import those before it, and the generated files. The frame around the screens is last. */
const LAYERS = ["", "tensors", "trace", "sources", "engine", "state", "views", "screens"];
const GENERATED = ["types.ts", "terms.ts"];
const FRAME = ["app.tsx"];

const FILES = readdirSync("src", { recursive: true, encoding: "utf8" }).map((name) => normalize(name)).filter((name) => /(?<!\.d)\.tsx?$/.test(name));
const TEXTS = new Map(FILES.map((name) => [name, readFileSync(join("src", name), "utf8")]));

function importsOf(name: string): string[] {
  const found = [...TEXTS.get(name)!.matchAll(/(?:from |import\()"(\.[^"]+(?<!\.css))"/g)].map(([, path]) => join(dirname(name), path!));
  return found.map((path) => FILES.find((file) => file.replace(/\.tsx?$/, "") === path) ?? assert.fail(`${name} imports ${path}`));
}

const layer = (name: string) => (FRAME.includes(name) ? LAYERS.length : LAYERS.indexOf(GENERATED.includes(name) ? "" : name.split("/")[0]!));
const screen = (name: string) => (name.startsWith("screens/") && name !== "screens/later.ts" ? name : null);

test("every file is in a layer", () => {
  assert.ok(FILES.length > 25);
  assert.deepEqual(FILES.filter((name) => layer(name) < 0), []);
});

test("imports follow the layers and never cross screens", () => {
  const wrong = FILES.flatMap((name) => importsOf(name).filter((other) =>
    layer(other) > layer(name) || (screen(name) && screen(other) && screen(name) !== screen(other))).map((other) => `${name} imports ${other}`));
  assert.deepEqual(wrong, []);
});

test("imports have no cycles", () => {
  const done = new Set<string>();
  const visit = (name: string, way: string[]): void => {
    assert.ok(!way.includes(name), [...way, name].join(" → "));
    if (done.has(name)) return;
    for (const other of importsOf(name)) visit(other, [...way, name]);
    done.add(name);
  };
  for (const name of FILES) visit(name, []);
});

test("no file depends on the task of a model", () => {
  const asks = /\.task\b|["'](classify|translate|lm|pretrain|language)["']/;
  const computes = (name: string) => GENERATED.includes(name) || name.startsWith("engine/"); // which runs models of all tasks
  assert.deepEqual(FILES.filter((name) => !computes(name) && asks.test(TEXTS.get(name)!)), []);
});
