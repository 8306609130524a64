/** Tests what the tour chooses to ask about. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { largestColumn, largestRow, leastCertain, optionsOf, strongestKeys, tokenNames, twice } from "../src/screens/tour";
import type { Prediction, Sweep, SweepRow } from "../src/types";

const row = (name: string, head: number, key: number, change: number, n_changed: number): SweepRow => ({
  name, edits: [`${name}.scores[head:${head};key:${key}]=blocked`], value_before: -1, value_after: -1 + change, before: "a", after: "b", n_changed, position: 0,
  effects: [], alone: null, back: null, direct: null,
});

test("strongestKeys puts what changes a prediction first, then the largest fall", () => {
  const rows = [row("encoder.0.self", 0, 0, -0.1, 0), row("encoder.0.self", 0, 1, -3, 0), row("encoder.0.self", 1, 0, -0.5, 1), row("encoder.0.self", 1, 1, -2, 2), row("decoder.0.cross", 0, 0, -9, 3)];
  const sweep: Sweep = { rows, target: "a", contrast: "", position: 0, value: -1, untrained: null, error: null };
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
