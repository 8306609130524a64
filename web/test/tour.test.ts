/** Tests what the tour chooses to ask about. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { largestColumn, largestRow, leastCertain, optionsOf, strongestKeys, tokenNames, twice } from "../src/screens/tour";
import type { KeysSweep, Prediction, VariantEffect } from "../src/types";

const effect = (change: number, n_changed: number): VariantEffect => ({ edits: [`e${change}`], change, n_changed, position: 0, before: "a", after: "b" });

test("strongestKeys puts what changes a prediction first, then the largest fall", () => {
  const sweep: KeysSweep = { grids: [
    { step: "encoder.0.self.weights", stream: "source", effects: [[effect(-0.1, 0), effect(-3, 0)], [effect(-0.5, 1), effect(-2, 2)]] },
    { step: "decoder.0.cross.weights", stream: "source", effects: [[effect(-9, 3)]] },
  ] };
  const found = strongestKeys(sweep, (step) => step.startsWith("encoder."));
  assert.deepEqual(found.map(({ head, key }) => [head, key]), [[1, 1], [1, 0], [0, 1], [0, 0]]);
  assert.equal(strongestKeys(sweep, () => true)[0]!.step, "decoder.0.cross.weights");
});

test("the largest column and row of a head", () => {
  const grid = { rows: 3, cols: 2, data: Float32Array.from([0.2, 0.8, 0.9, 0.1, 0.5, 0.5]) };
  assert.equal(largestColumn(grid, 0), 1);
  assert.equal(largestRow(grid, 0, [0, 1, 2]), 1);
  assert.equal(largestRow(grid, 0, [0, 2]), 2);
  assert.equal(largestRow(grid, 0, []), -1);
});

test("leastCertain asks about tokens that follow", () => {
  const prediction = (log_prob: number | null): Prediction =>
    ({ position: 0, logsumexp: 0, top: [], actual: log_prob === null ? null : { id: 0, piece: "a", logit: 0, log_prob, rank: 0 } });
  const all = [prediction(-1), prediction(-4), prediction(null), prediction(-2)];
  assert.equal(leastCertain(all, () => true), 1);
  assert.equal(leastCertain(all, (one) => one !== all[1]), 3);
  assert.equal(leastCertain([prediction(null)], () => true), -1);
});

test("optionsOf holds the right one and others, each once, in order", () => {
  for (const right of [0, 4, 9]) {
    const options = optionsOf(right, [...Array(10).keys()]);
    assert.equal(options.length, 4);
    assert.ok(options.includes(right));
    assert.deepEqual([...new Set(options)].sort((a, b) => a - b), options);
  }
  assert.deepEqual(optionsOf(1, [0, 1]), [0, 1]);
});

test("tokens that occur twice have a number", () => {
  assert.deepEqual(tokenNames(["0", "3", "0"], [0, 1]), ["0 (token 0)", "3"]);
});

test("twice a temperature is on a mark of the slider", () => {
  assert.deepEqual([0, 0.8, 1, 2.5, 0.33].map(twice), [1, 1.6, 2, 3, 0.65]);
});
