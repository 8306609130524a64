/** Tests one step of each optimizer against PyTorch's and the package's (`updates.py`), within the bounds that the page shows. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type Line, orthogonalise, productsOf, toBfloat16, updateLines } from "../src/screens/learn";
import { sliceTensor, type TensorValue } from "../src/tensors/tensor";
import type { Manifest } from "../src/types";

interface Case extends Record<string, unknown> {
  optimizer: string;
  dtype: "float32" | "bfloat16";
  constants: Record<string, number>;
  step: number;
  shape: number[];
}

const CASES = JSON.parse(readFileSync("test/updates.json", "utf8")) as Case[];
/** The lines that the page shows of a number of a case, from the tensors that the optimizer keeps. */
function linesOf({ optimizer, constants, dtype, step, shape, ...kept }: Case, row: number, col: number): Promise<Line[]> {
  const axes = ["out", "in"].slice(-shape.length).map((name, i) => ({ name, size: shape[i]! }));
  const trace = { params: { w: { axes } } } as unknown as Manifest;
  const read = async (id: string, slice = "") => {
    const value: TensorValue = { shape, dtype: "f32", data: (kept[id === "w" ? "after" : id.slice(2)] ?? []) as unknown as Float32Array };
    return slice ? sliceTensor({ ...value, data: Float64Array.from(value.data) as unknown as Float32Array }, axes.map(({ name }) => name), slice) : value;
  };
  return updateLines(trace, { optimizer, constants, dtype, params: ["w"] }, { parameter: "w", row, col }, step, read);
}

const places = ({ shape }: Case) => Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => [Math.floor(i / shape.at(-1)!), i % shape.at(-1)!] as const);

for (const one of CASES) {
  test(`step ${one.step} of ${one.optimizer} in ${one.dtype} on ${one.shape.join(" × ")} is recomputed within rounding`, async () => {
    for (const [row, col] of places(one)) {
      const checks = (await linesOf(one, row, col)).flatMap(({ check }) => check ?? []);
      assert.ok(checks.length >= (one.optimizer === "sgd" && !one.constants.momentum ? 1 : 2));
      for (const { delta, bound } of checks) {
        assert.ok(delta <= bound, `off by ${delta}, bound ${bound}`);
        assert.ok(bound < (one.dtype === "bfloat16" ? 5e-4 : 1e-5) * 4, `the bound ${bound} is loose`);
      }
    }
  });
}

test("bfloat16 has 8 bits of a fraction, and ties are even", () => {
  assert.deepEqual([1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, -3.14159, 0, 1e-40].map(toBfloat16).slice(0, 5), [1, 1, 1 + 2 ** -6, -3.140625, 0]);
});

test("a wrong constant is found out", async () => {
  for (const one of CASES) {
    const wrong = { ...one, constants: { ...one.constants, lr: one.constants.lr! * (one.dtype === "bfloat16" ? 1.1 : 1.001) } };
    const all = await Promise.all(places(one).map(([row, col]) => linesOf(wrong, row, col)));
    assert.ok(all.flat().some(({ check }) => check && check.delta > check.bound), one.optimizer);
  }
});

test("Newton–Schulz brings singular values near 1 and keeps the directions", () => {
  const found = orthogonalise([3, 0, 0, 0, 0.5, 0], 2, 3);
  assert.ok(Math.abs(found[0]!) > 0.6 && Math.abs(found[0]!) < 1.3 && Math.abs(found[4]!) > 0.6 && Math.abs(found[4]!) < 1.3);
  for (const i of [1, 2, 3, 5]) assert.ok(Math.abs(found[i]!) < 1e-12);
  assert.equal(productsOf(2, 3), productsOf(3, 2));
});
