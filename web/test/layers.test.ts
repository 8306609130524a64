/**
 * Who may import whom: the folders of src/ are layers, and a screen knows no other screen. And no file asks for which
 * task a model was made: what differs is told by the manifest (`trace/writing.ts`). Run by `npm test`, in web/.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";

/** A folder may import those before it, and what Python told (types.ts, sites.ts). The frame around the screens comes last. */
const LAYERS = ["", "tensors", "trace", "sources", "state", "views", "screens"];
const TOLD = ["types.ts", "sites.ts"];
const FRAME = ["app.tsx", "main.tsx"];

const FILES = readdirSync("src", { recursive: true, encoding: "utf8" }).map((name) => normalize(name)).filter((name) => /\.tsx?$/.test(name));
const TEXTS = new Map(FILES.map((name) => [name, readFileSync(join("src", name), "utf8")]));

function importsOf(name: string): string[] {
  const found = [...TEXTS.get(name)!.matchAll(/(?:from |import\()"(\.[^"]+)"/g)].map(([, path]) => join(dirname(name), path!));
  return found.map((path) => FILES.find((file) => file.replace(/\.tsx?$/, "") === path) ?? assert.fail(`${name} imports ${path}`));
}

const layer = (name: string) => (FRAME.includes(name) ? LAYERS.length : LAYERS.indexOf(TOLD.includes(name) ? "" : name.split("/")[0]!));
const screen = (name: string) => name.split("/").slice(0, -1)[1];

test("every file is in a folder that says what it is", () => {
  assert.ok(FILES.length > 50);
  assert.deepEqual(FILES.filter((name) => layer(name) < 0), []);
});

test("imports go one way, and no screen knows another", () => {
  const wrong = FILES.flatMap((name) => importsOf(name).filter((other) =>
    layer(other) > layer(name) || (screen(name) && screen(other) && screen(name) !== screen(other))).map((other) => `${name} imports ${other}`));
  assert.deepEqual(wrong, []);
});

test("nothing is imported in a circle", () => {
  const done = new Set<string>();
  const visit = (name: string, way: string[]): void => {
    assert.ok(!way.includes(name), [...way, name].join(" → "));
    if (done.has(name)) return;
    for (const other of importsOf(name)) visit(other, [...way, name]);
    done.add(name);
  };
  for (const name of FILES) visit(name, []);
});

test("no file asks for which task a model was made", () => {
  const asks = /\.task\b|["'](classify|translate|lm|pretrain|language)["']/;
  assert.deepEqual(FILES.filter((name) => !TOLD.includes(name) && asks.test(TEXTS.get(name)!)), []);
});

test("no fragments: what is a few lines stands with what it belongs to", () => {
  const few = FILES.filter((name) => !FRAME.includes(name) && TEXTS.get(name)!.split("\n").length < 30);
  assert.deepEqual(few, ["screens/later.ts"]); // it is what a bundle of its own begins with
});
