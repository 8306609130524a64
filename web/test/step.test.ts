/** Tests recomputation and descriptions of steps. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { paramsFromRequest, requestFromParams } from "../src/state/page";
import { formula, sentence } from "../src/trace/descriptions";
import { arithmetic, recompute } from "../src/trace/operations";
import { type Step, table, title } from "../src/trace/steps";
import type { Manifest, TraceNode } from "../src/types";

const { rows, sites: SITES } = JSON.parse(readFileSync("test/operations.json", "utf8")) as { rows: typeof table.rows; sites: Record<string, [string, ...string[]]> };
table.rows = rows;

const TABLE = [[9, 9], [1, 2], [3, 6], [5, 1]]; // row 0 stands for no n-gram, and never counts
const NUMBERS = [[1, 2], [3, 0], [0, 0]];
const NGRAMS = [["<ca", "car"], ["0xE2"], []];

function step(op: TraceNode["op"], attrs: TraceNode["attrs"], axes: [string, number][]): Step {
  const node = {
    id: `embedding.${{ embedding_bag: "ngrams" }[op as string] ?? op}`, op, inputs: ["embedding.ngram_ids"], params: op === "embedding_bag" ? { weight: "ngrams.weight" } : {}, attrs,
    axes: axes.map(([name, size]) => ({ name, size, stream: name === "token" ? "text" : undefined })), layer: null, block: null, stack: "text", dtype: "f32", site: op,
  } as unknown as TraceNode;
  const trace = {
    nodes: [node], gradients: [], params: { "ngrams.weight": { axes: [{ name: "ngram", size: 4 }, { name: "feature", size: 2 }] } },
    streams: [{ name: "text", pieces: ["car", "â", ""], ngrams: NGRAMS, ngram_ids: NUMBERS }],
  } as unknown as Manifest;
  const get: Step["get"] = async (id, slice = "") => {
    const [, picked = ""] = slice.split(":");
    if (id === "ngrams.weight") {
      const rows = (picked.includes("-") ? [picked.split("-")[0]!] : picked.split(".")).map((row) => TABLE[Number(row)]!);
      return { shape: [rows.length, 2], data: Float32Array.from(rows.flat()), dtype: "f32" };
    }
    const rows = picked ? [NUMBERS[Number(picked)]!] : NUMBERS;
    return { shape: picked ? [2] : [rows.length, 2], data: Int32Array.from(rows.flat()), dtype: "i32" };
  };
  return { trace, node, get };
}

const FACTS = { pre_norm: true, d_head: 4 } as Manifest["model"];

const cell = (row: number, col: number) => ({ head: 0, row, col, position: 0 });

test("ngram_ids recomputes n-gram ids", async () => {
  assert.deepEqual(Array.from(await recompute(step("ngram_ids", {}, [["token", 3], ["ngram", 2]]))), [1, 2, 3, 0, 0, 0]);
});

test("embedding_bag averages rows, ignoring padding", async () => {
  const bag = step("embedding_bag", { how: "mean" }, [["token", 3], ["feature", 2]]);
  assert.deepEqual(Array.from(await recompute(bag)), [2, 4, 5, 1, 0, 0]);
  const { terms } = await arithmetic(bag, cell(0, 1));
  assert.deepEqual(terms, [{ label: "<ca", a: 0.5, b: 2, value: 1 }, { label: "car", a: 0.5, b: 6, value: 3 }]);
  assert.deepEqual((await arithmetic(bag, cell(1, 0))).terms, [{ label: "0xE2", a: 1, b: 5, value: 5 }]);
  assert.deepEqual((await arithmetic(bag, cell(2, 0))).terms, []);
});

test("embedding_bag sums rows of hashed n-grams", async () => {
  const bag = step("embedding_bag", { how: "sum" }, [["token", 3], ["feature", 2]]);
  assert.deepEqual(Array.from(await recompute(bag)), [4, 8, 5, 1, 0, 0]);
  const { terms } = await arithmetic(bag, cell(0, 1));
  assert.deepEqual(terms, [{ label: "<ca", a: 1, b: 2, value: 2 }, { label: "car", a: 1, b: 6, value: 6 }]);
});

test("positions are multiplied by their amplitude, also in the formula", async () => {
  const placed = step("positions", { scheme: "sinusoidal", amplitude: 0.05 }, [["token", 2], ["feature", 2]]);
  const found = Array.from(await recompute(placed));
  const expected = [0, 0.05, 0.05 * Math.sin(1), 0.05 * Math.cos(1)];
  expected.forEach((x, i) => assert.ok(Math.abs(found[i]! - x) < 1e-12));
  assert.equal((await arithmetic(placed, cell(1, 0))).lines.join(" | "), "Position 1, feature 0: sin(1 / 10000^(0/2)) = sin 1.000 | 0.0500 · 0.8415 = 0.0421");
  assert.ok(formula(placed.node).startsWith("y = 0.050 · (sin, cos)~"));
});

test("steps of n-grams have a title and a description", () => {
  for (const id of ["ngram_ids", "ngrams", "with_ngrams"]) {
    const node = { ...step("embedding_bag", {}, [["token", 3], ["feature", 2]]).node, id: `embedding.${id}`, site: id };
    assert.ok(title(node) !== node.id && sentence(node, { model: FACTS }), id);
  }
});

test("address holds the ensemble member", () => {
  assert.deepEqual(requestFromParams({ text: "a", member: "2" }), { text: "a", member: 2 });
  assert.equal(paramsFromRequest({ text: "a", member: 2 })["member"], "2");
  assert.equal(paramsFromRequest({ text: "a" })["member"], null);
});

test("a formula is the expression that is computed, with the constants of the step", () => {
  const of = (op: string, more: Partial<TraceNode> = {}) => formula({ ...step("embedding_bag", {}, []).node, op, params: {}, ...more } as TraceNode);
  assert.equal(of("linear", { params: { weight: "w", bias: "b" } }), "y = x W^T + b");
  assert.equal(of("linear", { params: { weight: "w" } }), "y = x W^T");
  assert.equal(of("scale", { attrs: { factor: 0.3 } }), "y = x · 0.300");
  assert.equal(of("softmax", { inputs: ["s"] }).split("\n").at(-1), "y = \\frac{u}{∑ u}");
  assert.equal(of("softmax.scores", { id: "s.grad" }), "g_{S} = y · (g − ∑ g · y)");
  assert.equal(of("layer_norm.x", { id: "x.grad" }).split("\n").at(-1), "g_{x} = \\frac{1}{\\sqrt{σ^2 + ε}} · (ĝ − mean(ĝ) − x̂ · mean(ĝ · x̂))");
  assert.equal(of("mask", { attrs: { kind: "causal" } }), "M_{t,s} = [s ≤ t]");
  for (const op of Object.keys(rows).filter((op) => rows[op]!.gives)) assert.ok(!/undefined|_{?\w+_/.test(of(op)) && of(op).includes(" = "), of(op));
});

test("every site has a title, a description and an operation", () => {
  const model = { ...FACTS, d_ff: 8 } as Manifest["model"];
  for (const [key, [op, ...axes]] of Object.entries(SITES)) {
    assert.ok([op, `${op}:${key.split(":")[1] ?? ""}`, `${op}:mean`].some((one) => one in rows) || op === "positions", op);
    const [name, kind] = key.split(":");
    if (name === "linear" || kind === "other") continue; // parts of the reader's own, of which nothing is known
    const inLayer = /^(norm|[qkv](_\w+)?|products|scores|mask|weights|context|concat|out|residual|w_\w+|hidden)$/.test(name!);
    const attrs = { positions: { scheme: kind === "amplitude" ? "sinusoidal" : kind }, pooled: { how: kind }, mask: { kind } }[name!] ?? {};
    const node = {
      id: inLayer ? `encoder.0.self.${name}` : axes[0] === "token" && axes[1] !== "vocab" ? `embedding.${name}` : name, op, layer: inLayer ? 0 : null,
      block: inLayer ? "self" : null, stack: "encoder", inputs: [], params: {}, attrs, axes: axes.map((axis) => ({ name: axis, size: 2 })), dtype: "f32", site: key,
    } as unknown as TraceNode;
    assert.ok(title(node) !== node.id && sentence(node, { model }), key);
  }
});
