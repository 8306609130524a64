/**
 * The pure functions of the Attention and Compare screens, on matrices that can be checked by hand. Run by `npm test`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { alignment, alignmentLayer, bestKeys } from "../src/attention/alignment";
import { arcPath, heaviest } from "../src/attention/arcLayout";
import { decoderRollout, meanOfRows, rollout } from "../src/attention/rollout";
import { difference, headOf, meanOfHeads, pick, pickMask, type Grid } from "../src/attention/grid";
import { diagonality, entropy, measure, previousTokenShare } from "../src/attention/measures";

function grid(rows: number[][]): Grid {
  return { rows: rows.length, cols: rows[0]!.length, data: Float64Array.from(rows.flat()) };
}

function near(actual: number | null, expected: number): void {
  assert.ok(actual !== null && Math.abs(actual - expected) < 1e-12, `${actual} is not ${expected}`);
}

function rowSums(of: Grid): number[] {
  return Array.from({ length: of.rows }, (_, row) =>
    Array.from({ length: of.cols }, (_, col) => of.data[row * of.cols + col]!).reduce((a, b) => a + b, 0));
}

const CAUSAL = grid([[1, 0, 0], [1, 1, 0], [1, 1, 1]]);

test("one head of a tensor, and the mean of all", () => {
  const tensor = { shape: [2, 2, 3], data: Float32Array.from([1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8]) };
  assert.deepEqual([...Array.from(headOf(tensor, 1).data)], [3, 4, 5, 6, 7, 8]);
  assert.deepEqual([...Array.from(meanOfHeads(tensor).data)], [2, 3, 4, 5, 6, 7]);
  assert.throws(() => headOf(tensor, 2), /no head 3/);
});

test("picked cells keep their values and their mask", () => {
  const weights = grid([[1, 2, 3], [4, 5, 6], [7, 8, 9]]);
  assert.deepEqual([...Array.from(pick(weights, [2, 0], [1]).data)], [8, 2]);
  assert.deepEqual([...Array.from(pickMask(CAUSAL, [0, 2], [1, 2])!.data)], [0, 0, 1, 1]);
  assert.deepEqual([...Array.from(pickMask(grid([[1, 0]]), [0, 1], [0, 1])!.data)], [1, 0, 1, 0]);
  assert.equal(pickMask(null, [0], [0]), null);
  assert.deepEqual([...Array.from(difference(grid([[1, 2]]), grid([[3, 1]]))!.data)], [2, -1]);
  assert.equal(difference(grid([[1, 2]]), grid([[1], [2]])), null);
});

test("entropy is 1 when even and 0 when certain, over the keys a row may attend to", () => {
  near(entropy(grid([[1 / 3, 1 / 3, 1 / 3]]), null, [0]), 1);
  near(entropy(grid([[0, 1, 0]]), null, [0]), 0);
  // Row 0 of a causal mask has one key and no choice; rows 1 and 2 are even over what they may see.
  near(entropy(grid([[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]), CAUSAL, [0, 1, 2]), 1);
  assert.equal(entropy(grid([[1, 0, 0]]), CAUSAL, [0]), null);
});

test("previous token and diagonal", () => {
  const previous = grid([[1, 0, 0], [1, 0, 0], [0, 0.75, 0.25]]);
  near(previousTokenShare(previous, [0, 1, 2]), (1 + 0.75) / 2);
  near(diagonality(previous, [0, 1, 2], 0), (1 + 0 + 0.25) / 3);
  assert.equal(previousTokenShare(previous, [0]), null);
  assert.equal(measure("previous", previous, null, [0, 1, 2], true), null);
  // 2 queries over 5 keys: the diagonal runs from key 0 to key 4.
  near(diagonality(grid([[0.5, 0.25, 0.25, 0, 0], [0, 0, 0, 0.1, 0.9]]), [0, 1], 1), (0.75 + 1) / 2);
});

test("rollout mixes half and half with the residual", () => {
  const weights = grid([[0, 1], [1, 0]]);
  assert.deepEqual([...Array.from(rollout([weights]).data)], [0.5, 0.5, 0.5, 0.5]);
  const uneven = grid([[1, 0], [0.5, 0.5]]);
  // ½A + ½I = [[1, 0], [¼, ¾]], and twice that is [[1, 0], [7/16, 9/16]].
  assert.deepEqual([...Array.from(rollout([uneven, uneven]).data)], [1, 0, 7 / 16, 9 / 16]);
  rowSums(rollout([uneven, weights, uneven])).forEach((sum) => near(sum, 1));
  near(meanOfRows(uneven, [0, 1]).data[0]!, 0.75);
  assert.throws(() => rollout([]), /at least one layer/);
});

test("a decoder's rollout shares one whole between target and source", () => {
  const own = grid([[1, 0], [0.5, 0.5]]);
  const cross = grid([[1, 0, 0], [0, 0.5, 0.5]]);
  const encoder = rollout([grid([[1, 0, 0], [0, 1, 0], [0, 0, 1]])]);
  const one = decoderRollout([own], [cross], encoder);
  assert.deepEqual([...Array.from(one.target.data)], [0.5, 0, 0.125, 0.375]);
  assert.deepEqual([...Array.from(one.source.data)], [0.5, 0, 0, 0, 0.25, 0.25]);
  const two = decoderRollout([own, own], [cross, cross], encoder);
  rowSums(two.target).forEach((sum, row) => near(sum + rowSums(two.source)[row]!, 1));
});

test("alignment is read where the token is the decoder's input", () => {
  // Row t: BOS, a, b. The row of b looks at source 2; the row that predicted b looks at source 1.
  const cross = grid([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0, 0.2, 0.8]]);
  const shifted = alignment(cross, true);
  assert.deepEqual(shifted.tokens, [1, 2]);
  assert.deepEqual(bestKeys(shifted.weights, [0, 1, 2]), [1, 2]);
  assert.deepEqual(bestKeys(alignment(cross, false).weights, [0, 1, 2]), [0, 1]);
  assert.deepEqual(bestKeys(shifted.weights, [0]), [0, null]);
  assert.deepEqual([1, 2, 3, 6].map(alignmentLayer), [0, 0, 1, 2]);
});

test("arcs: the heaviest of each row, on top the heaviest of all, and what they carry", () => {
  const weights = grid([[0.6, 0.3, 0.1], [0.05, 0.9, 0.05]]);
  const { arcs, share } = heaviest(weights, null, 0.1, 2);
  assert.deepEqual(arcs.map(({ query, key }) => [query, key]), [[0, 1], [0, 0], [1, 1]]);
  near(share, (0.6 + 0.3 + 0.9) / 2);
  assert.deepEqual(heaviest(weights, grid([[0, 1, 1], [1, 1, 1]]), 0.5, 2).arcs.map((arc) => arc.key), [1]);
  const layout = { width: 300, rowHeight: 20, left: 100, right: 200 };
  assert.equal(arcPath({ query: 0, key: 2, weight: 1 }, layout), "M100,10C145,10 155,50 200,50");
});
