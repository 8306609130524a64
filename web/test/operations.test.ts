/** Tests the table of operations on random tensors: what torch and autograd compute (`operation_cases.py`), number by number. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { magnitude, sliceTensor, type TensorValue } from "../src/tensors/tensor";
import { arithmetic, checkNode, recompute } from "../src/trace/operations";
import { type Step, table } from "../src/trace/steps";
import type { Manifest, Row, TraceNode } from "../src/types";

interface Stored {
  shape: number[];
  dtype: "f32" | "i32" | "u8";
  data: number[];
}

interface Case {
  op: string;
  attrs: TraceNode["attrs"];
  arguments: Record<string, Stored>;
  expected: Stored;
}

const { rows, cases: CASES } = JSON.parse(readFileSync("test/operations.json", "utf8")) as { rows: Record<string, Row>; cases: Case[] };
table.rows = rows;
const AXES = ["head", "token", "feature"];
const axesOf = ({ shape }: Stored) => shape.map((size, i) => ({ name: AXES.slice(-shape.length)[i]!, size })) as TraceNode["axes"];
const toValue = ({ shape, dtype, data }: Stored): TensorValue =>
  ({ shape, dtype, data: dtype === "i32" ? Int32Array.from(data) : dtype === "u8" ? Uint8Array.from(data) : Float32Array.from(data) });

/** A step whose inputs and parameters have the names of its arguments. */
function stepOf({ op, attrs, arguments: given, expected }: Case): Step {
  const { arguments: takes } = rows[op]!;
  const used = takes.filter((name) => name in given);
  const params = used.filter((name) => name === "weight" || name === "bias").filter((name) => op.split(":")[0] !== "mix" && op !== "mix.v");
  const nodeOf = (id: string, stored: Stored, more: Partial<TraceNode> = {}) =>
    ({ id, op: "linear", site: "other", inputs: [], params: {}, attrs: {}, axes: axesOf(stored), dtype: stored.dtype, layer: null, block: null, stack: "head", ...more }) as unknown as TraceNode;
  const inputs = used.filter((name) => !params.includes(name)).map((name) => nodeOf(name, given[name]!));
  const node = nodeOf("result", expected, { op, attrs, inputs: inputs.map(({ id }) => id), params: Object.fromEntries(params.map((name) => [name, name])) });
  const trace = {
    id: "t1", nodes: [...inputs, node], gradients: [], params: Object.fromEntries(params.map((name) => [name, { axes: axesOf(given[name]!) }])),
    streams: [{ name: "text", pieces: ["a", "b", "c", "d"], ids: [0, 1, 2, 3], ngrams: [["p", "q"], ["p", "p"], [], ["s", "t", "u"]] }], predictions: [], generation: { masked: null }, model: { label_names: null },
  } as unknown as Manifest;
  const stored: Record<string, Stored> = { ...given, result: expected };
  return { trace, node, get: async (id, slice = "") => sliceTensor(toValue(stored[id]!), axesOf(stored[id]!).map(({ name }) => name), slice) };
}

test("there is a case of every operation and gradient", () => {
  const covered = new Set(CASES.map(({ op }) => op));
  assert.deepEqual(Object.keys(rows).filter((op) => rows[op]!.gives && !covered.has(op)), []);
});

for (const one of CASES) {
  test(`${one.op} ${JSON.stringify(one.attrs)} of ${Object.keys(one.arguments)} is what torch computes, as a whole and number by number`, async () => {
    const step = stepOf(one), { data: expected, shape } = one.expected;
    const found = Array.from(await recompute(step));
    assert.equal(found.length, expected.length);
    const allowed = 1e-6 * Math.max(1, magnitude(expected));
    found.forEach((x, i) => assert.ok(Math.abs(x - expected[i]!) < allowed, `${i}: ${x} instead of ${expected[i]}`));
    const [cols, rows] = [shape.at(-1)!, shape.at(-2) ?? 1];
    for (let i = 0; i < expected.length; i++) {
      const { lines, terms, extra } = await arithmetic(step, { head: Math.floor(i / cols / rows), row: Math.floor(i / cols) % rows, col: i % cols, position: 0 });
      const last = lines.at(-1)?.match(/(−?[\d.]+(?:e−?\d+)?)\.?$/)?.[1]?.replaceAll("−", "-");
      const value = last === undefined ? terms.reduce((sum, term) => sum + term.value, extra?.value ?? 0) : Number(last);
      assert.ok(Math.abs(value - expected[i]!) < (last === undefined ? allowed : 2e-3 * Math.max(0.1, Math.abs(expected[i]!))), `${i}: ${lines.join(" | ")} ${value} instead of ${expected[i]}`);
    }
  });
}

test("the check of a step is green, and red where one number is wrong", async () => {
  for (const one of CASES) {
    const { trace, node, get } = stepOf(one);
    const source = (wrong: number) => ({
      live: true,
      tensor: async (_: string, id: string, slice?: string) => {
        const value = await get(id, slice);
        if (id !== node.id || !wrong) return value;
        const data = Float32Array.from(value.data);
        data[data.length - 1]! += wrong;
        return { ...value, data };
      },
    });
    assert.equal((await checkNode(trace, node, 0, source(0))).state, "ok", one.op);
    assert.equal((await checkNode(trace, node, 0, source(1e-3 * Math.max(1e-3, magnitude(one.expected.data))))).state, "bad", one.op);
  }
});
