/** Tests the backward pass: every operation on random tensors against autograd (`gradients.py`), and the arithmetic of each number. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { sliceTensor, type TensorValue } from "../src/tensors/tensor";
import { magnitude } from "../src/tensors/tensor";
import { BACKWARD } from "../src/trace/backward";
import { checkNode } from "../src/trace/check";
import { OPERATIONS } from "../src/trace/operations";
import type { Step } from "../src/trace/stepData";
import type { Manifest, Op, TraceNode } from "../src/types";

interface Stored {
  axes: string[];
  shape: number[];
  dtype: "f32" | "i32" | "u8";
  data: number[];
}

interface Case {
  op: keyof typeof BACKWARD;
  attrs: TraceNode["attrs"];
  axes: string[];
  shape: number[];
  inputs: Stored[];
  params: Record<string, Stored>;
  expected: number[];
}

const CASES = JSON.parse(readFileSync("test/gradients.json", "utf8")) as Case[];
const LETTERS = ["a", "b", "c", "d"];
const axesOf = ({ axes, shape }: Pick<Stored, "axes" | "shape">) =>
  axes.map((name, i) => ({ name, size: shape[i]!, ...(name === "token" || name === "key" ? { stream: "text" } : {}) })) as TraceNode["axes"];

function toValue({ shape, dtype, data }: Stored): TensorValue {
  return { shape, dtype, data: dtype === "i32" ? Int32Array.from(data) : dtype === "u8" ? Uint8Array.from(data) : Float32Array.from(data) };
}

/** A step whose inputs are x0, x1 … and whose result is x.grad. */
function stepOf(one: Case): Step {
  const nodeOf = (id: string, stored: Pick<Stored, "axes" | "shape" | "dtype">, more: Partial<TraceNode> = {}) =>
    ({ id, op: "linear", site: "other", inputs: [], params: {}, attrs: {}, axes: axesOf(stored), dtype: stored.dtype, layer: null, block: null, stack: "head", ...more }) as unknown as TraceNode;
  const inputs = one.inputs.map((stored, i) => nodeOf(`x${i}`, stored));
  const params = Object.fromEntries(Object.keys(one.params).map((role) => [role, role]));
  const node = nodeOf("x.grad", { ...one, dtype: "f32" }, { op: one.op as Op, inputs: inputs.map(({ id }) => id), params, attrs: one.attrs });
  const trace = {
    id: "t1", nodes: inputs, gradients: [node], params: Object.fromEntries(Object.entries(one.params).map(([role, stored]) => [role, { axes: axesOf(stored) }])),
    streams: [{ name: "text", pieces: LETTERS, ids: [0, 1, 2, 3] }], predictions: [], learning: { labels: [2, null, 5, 0], answer: "" }, generation: { masked: null }, model: { label_names: null },
  } as unknown as Manifest;
  const stored: Record<string, Stored> = { ...Object.fromEntries(one.inputs.map((input, i) => [`x${i}`, input])), ...one.params, "x.grad": { ...one, dtype: "f32", data: one.expected } };
  const get: Step["get"] = async (id, slice = "") => sliceTensor(toValue(stored[id]!), stored[id]!.axes, slice);
  return { trace, node, get };
}

test("there is a case of every operation that has a derivative of its own", () => {
  const covered = new Set(CASES.map(({ op }) => op));
  const loss = ["targets", "cross_entropy", "mean_loss", "error", "square", "one", "sum"]; // of the loss, and without a formula
  assert.deepEqual(Object.keys(BACKWARD).filter((op) => !covered.has(op as Case["op"]) && !loss.includes(op)), []);
});

for (const one of CASES) {
  test(`${one.op} ${JSON.stringify(one.attrs)} is what autograd computes, as a whole and number by number`, async () => {
    const step = stepOf(one);
    const found = Array.from(await OPERATIONS[one.op].recompute(step));
    assert.equal(found.length, one.expected.length);
    const allowed = 1e-6 * Math.max(1, magnitude(one.expected));
    found.forEach((x, i) => assert.ok(Math.abs(x - one.expected[i]!) < allowed, `${i}: ${x} instead of ${one.expected[i]}`));
    const [cols, rows] = [one.shape.at(-1)!, one.shape.at(-2) ?? 1];
    for (let i = 0; i < one.expected.length; i++) {
      const cell = { head: Math.floor(i / cols / rows), row: Math.floor(i / cols) % rows, col: i % cols, position: 0 };
      const { lines, terms } = await OPERATIONS[one.op].cell(step, cell);
      const last = lines.at(-1)?.match(/(−?[\d.]+(?:e−?\d+)?)\.?$/)?.[1]?.replaceAll("−", "-");
      const value = last === undefined ? terms.reduce((sum, term) => sum + term.value, 0) : Number(last);
      assert.ok(Math.abs(value - one.expected[i]!) < (last === undefined ? allowed : 2e-3 * Math.max(0.1, Math.abs(one.expected[i]!))), `${i}: ${lines.join(" | ")} ${value} instead of ${one.expected[i]}`);
    }
  });
}

test("the check of a gradient is green, and red where one number is wrong", async () => {
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
    assert.equal((await checkNode(trace, node, 0, source(1e-3 * magnitude(one.expected)))).state, "bad", one.op);
  }
});

const axis = (name: string, size: number) => ({ axes: [name], shape: [size] });

test("the loss is spelled out: targets, cross-entropy of each row, their mean", async () => {
  const labels = [1, null];
  const shape = { axes: ["token", "vocab"], shape: [2, 4] };
  const z = { ...shape, dtype: "f32" as const, data: [0, 1, 2, 3, 1, 1, 1, 1] };
  const one = (op: string, inputs: Stored[], attrs: TraceNode["attrs"], result: Pick<Stored, "axes" | "shape">) =>
    stepOf({ op: op as Case["op"], attrs, inputs, params: {}, expected: [], ...result });
  const targets = one("targets", [], { labels, smoothing: 0.2 } as TraceNode["attrs"], shape);
  const q = Array.from(await OPERATIONS.targets.recompute(targets));
  [0.05, 0.85, 0.05, 0.05, 0, 0, 0, 0].forEach((x, i) => assert.ok(Math.abs(q[i]! - x) < 1e-12));
  assert.match((await OPERATIONS.targets.cell(targets, { head: 0, row: 0, col: 1, position: 0 })).lines[0]!, /= 0\.8500$/);
  const each = one("cross_entropy", [z, { ...shape, dtype: "f32", data: q }], {}, axis("token", 2));
  const losses = Array.from(await OPERATIONS.cross_entropy.recompute(each));
  const all = Math.log(1 + Math.E + Math.E ** 2 + Math.E ** 3);
  const expected = 0.05 * all + 0.85 * (all - 1) + 0.05 * (all - 2) + 0.05 * (all - 3);
  assert.ok(Math.abs(losses[0]! - expected) < 1e-6 && losses[1] === 0);
  const { terms } = await OPERATIONS.cross_entropy.cell(each, { head: 0, row: 0, col: 0, position: 0 });
  assert.ok(Math.abs(terms.reduce((sum, { value }) => sum + value, 0) - expected) < 1e-6 && terms.length === 4);
  const mean = one("mean_loss", [{ ...axis("token", 2), dtype: "f32", data: losses }], { labels } as TraceNode["attrs"], axis("loss", 1));
  assert.ok(Math.abs((await OPERATIONS.mean_loss.recompute(mean))[0]! - expected) < 1e-6);
});

test("the loss of a number is spelled out: the error of the output, and its square", async () => {
  const one = (op: string, x: number, attrs: TraceNode["attrs"]) =>
    stepOf({ op: op as Case["op"], attrs, inputs: [{ ...axis("loss", 1), dtype: "f32", data: [x] }], params: {}, expected: [x - 1.5], ...axis("loss", 1) });
  const cell = { head: 0, row: 0, col: 0, position: 0 };
  const error = one("error", 0.25, { number: 1.5 });
  assert.deepEqual([...(await OPERATIONS.error.recompute(error))], [-1.25]);
  assert.match((await OPERATIONS.error.cell(error, cell)).lines[0]!, /^0\.2500 − 1\.500 = −1\.250$/);
  const square = one("square", -1.25, {});
  assert.deepEqual([...(await OPERATIONS.square.recompute(square))], [1.5625]);
  assert.match((await OPERATIONS.square.cell(square, cell)).lines[0]!, /^\(−1\.250\)² = 1\.563$/);
});
