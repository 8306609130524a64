/** Tests the pure functions of the Training screen. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { extended, type History, MOST_POINTS, nothing } from "../src/screens/training";
import type { TrainingNow } from "../src/types";
import { duration, nearestIndex, pathThrough, pointsOf, scaleOf, tickText } from "../src/views/Chart";

const part = (steps: number[], generation = 0) =>
  ({
    generation, validations: steps.slice(-1).map((step) => ({ step, seconds: step, scores: { loss: 1 }, best: true })), updates: [],
    curve: { step: steps, seconds: steps, loss: steps.map((step) => 1 / step), lr: steps, grad_norm: steps },
  }) as unknown as TrainingNow;
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

test("parts of the log are put together, and another log is asked for again", () => {
  const first = extended(nothing(), part([1, 2]))!;
  const both = extended(first, part([3]))!;
  assert.deepEqual(both.curve.step, [1, 2, 3]);
  assert.deepEqual(both.curve.loss, [1, 1 / 2, 1 / 3]);
  assert.deepEqual(both.validations.map(({ step }) => step), [2, 3]);
  assert.equal(extended(both, part([4], 1)), null);
  assert.deepEqual(extended(nothing(), part([1], 7))!.generation, 7);
  const full: History = extended(nothing(), part(range(1, MOST_POINTS + 1)))!;
  assert.equal(full.curve.step.length, MOST_POINTS);
  assert.equal(extended(full, part([MOST_POINTS + 1])), null);
});

test("points are those that can be drawn", () => {
  assert.deepEqual(pointsOf([1, 2, 3, null], [0, null, 5, 6]), [[1, 0], [3, 5]]);
  assert.deepEqual(pointsOf([1, 2, 3], [0, undefined, 5], true), [[3, 5]]);
});

test("scales have round ticks inside, and one value is no division by zero", () => {
  const linear = scaleOf([0.2, 6.1], [100, 0]);
  assert.deepEqual(linear.ticks, [2, 4, 6]);
  assert.equal(linear(0.2), 100);
  assert.equal(linear(6.1), 0);
  assert.deepEqual(scaleOf([1e-5, 2e-3], [0, 100], { log: true }).ticks, [1e-5, 1e-4, 1e-3]);
  assert.deepEqual(scaleOf([0.21, 6.1], [0, 100], { log: true }).ticks, [0.5, 1, 2, 5]);
  assert.deepEqual(scaleOf([1, 1], [0, 100]).ticks, [0, 0.5, 1]); // of accuracies none beyond 1
  assert.equal(scaleOf([1e-5, 1e-3], [0, 100], { log: true })(1e-4), 50);
  for (const values of [[], [3], [0], [-2]]) assert.ok(Number.isFinite(scaleOf(values, [0, 100])(values[0] ?? 0)));
  assert.equal(scaleOf([0.5, 1], [100, 0], { zero: true })(0), 100);
  assert.equal(pathThrough([[0.2, 0.2], [6.1, 6.1]], linear, linear), "M100.0 100.0L0.0 0.0");
});

test("the nearest step is found", () => {
  const values = [1, 2, 4, 8, 16];
  assert.deepEqual([-5, 1, 2.9, 3, 6.1, 99].map((wanted) => nearestIndex(values, wanted)), [0, 0, 1, 1, 3, 4]);
});

test("ticks and times are short", () => {
  assert.deepEqual([0, 0.08, 6, 1e-4, -2e-5, 200000].map(tickText), ["0", "0.08", "6", "1e−4", "−2e−5", "2e5"]);
  assert.deepEqual([4.4, 200, 7500].map(duration), ["4 s", "3 min 20 s", "2 h 5 min"]);
});
