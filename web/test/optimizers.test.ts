/** Tests one step of each optimizer against PyTorch's and the package's (`updates.py`), within the bounds that the page shows. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { adamStep, muonStep, orthogonalise, productsOf, sgdStep, toBfloat16 } from "../src/tensors/optimizers";

interface Case extends Record<string, unknown> {
  optimizer: string;
  dtype: "float32" | "bfloat16";
  constants: Record<string, number>;
  step: number;
  shape: number[];
}

const CASES = JSON.parse(readFileSync("test/updates.json", "utf8")) as Case[];
const numbers = (one: Case, name: string) => one[name] as number[];

/** What a case gives for each number: recomputed, with its bound, and the optimizer's. */
function recomputed(one: Case): [value: number, bound: number, actual: number][] {
  const [before, g, after] = [numbers(one, "before"), numbers(one, "clipped_grad"), numbers(one, "after")];
  if (one.optimizer === "muon") {
    const [rows, cols] = one.shape as [number, number];
    const found = muonStep(before, g, numbers(one, "momentum_buffer_before"), rows, cols, one.constants, one.dtype);
    const bound = one.constants.lr! * found.factor * found.bound;
    return before.flatMap((x, i) => [[found.after[i]!, bound + 4 * 2 ** -24 * Math.abs(x), after[i]!], [found.momentum[i]!, 1e-6, numbers(one, "momentum_buffer")[i]!]]);
  }
  return before.flatMap((x, i): [number, number, number][] => {
    if (one.optimizer === "sgd") {
      const found = sgdStep(x, g[i]!, one.momentum_buffer_before ? numbers(one, "momentum_buffer_before")[i]! : 0, one.constants);
      const momentum = one.momentum_buffer ? [[found.momentum.value, found.momentum.bound, numbers(one, "momentum_buffer")[i]!] as [number, number, number]] : [];
      return [[found.after.value, found.after.bound, after[i]!], ...momentum];
    }
    const found = adamStep(x, g[i]!, numbers(one, "exp_avg_before")[i]!, numbers(one, "exp_avg_sq_before")[i]!, one.step, one.constants);
    return [
      [found.after.value, found.after.bound, after[i]!], [found.mean.value, found.mean.bound, numbers(one, "exp_avg")[i]!], [found.square.value, found.square.bound, numbers(one, "exp_avg_sq")[i]!],
    ];
  });
}

for (const one of CASES) {
  test(`step ${one.step} of ${one.optimizer} in ${one.dtype} on ${one.shape.join(" × ")} is recomputed within rounding`, () => {
    for (const [value, bound, actual] of recomputed(one)) {
      assert.ok(Math.abs(value - actual) <= bound, `${value} instead of ${actual}, bound ${bound}`);
      assert.ok(bound < (one.dtype === "bfloat16" ? 5e-4 : 1e-5) * Math.max(1, Math.abs(actual)), `the bound ${bound} is loose`);
    }
  });
}

test("bfloat16 has 8 bits of a fraction, and ties are even", () => {
  assert.deepEqual([1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, -3.14159, 0, 1e-40].map(toBfloat16).slice(0, 5), [1, 1, 1 + 2 ** -6, -3.140625, 0]);
});

test("a wrong constant is found out", () => {
  for (const one of CASES) {
    const wrong = { ...one, constants: { ...one.constants, lr: one.constants.lr! * (one.dtype === "bfloat16" ? 1.1 : 1.001) } };
    assert.ok(recomputed(wrong).some(([value, bound, actual]) => Math.abs(value - actual) > bound), one.optimizer);
  }
});

test("Newton–Schulz brings singular values near 1 and keeps the directions", () => {
  const found = orthogonalise([3, 0, 0, 0, 0.5, 0], 2, 3);
  assert.ok(Math.abs(found[0]!) > 0.6 && Math.abs(found[0]!) < 1.3 && Math.abs(found[4]!) > 0.6 && Math.abs(found[4]!) < 1.3);
  for (const i of [1, 2, 3, 5]) assert.ok(Math.abs(found[i]!) < 1e-12);
  assert.equal(productsOf(2, 3), productsOf(3, 2));
});
