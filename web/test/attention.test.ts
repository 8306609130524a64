/** Tests the pure functions of the Attention and Compare screens. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { alignedPositions, differingTokens, filmSlice, nearestText, pairRows, smallestProbability, teacherForcedRequest } from "../src/screens/compare";
import { difference, type Grid, headOf, maskOfRows } from "../src/tensors/tensor";
import { sentence } from "../src/trace/descriptions";
import { diagonality, entropy, measure, measuresOf, previousTokenShare } from "../src/trace/heads";
import type { Manifest, Prediction, TraceNode } from "../src/types";

function grid(rows: number[][]): Grid {
  return { rows: rows.length, cols: rows[0]!.length, data: Float64Array.from(rows.flat()) };
}

function near(actual: number | null, expected: number): void {
  assert.ok(actual !== null && Math.abs(actual - expected) < 1e-12, `${actual} is not ${expected}`);
}

const CAUSAL = grid([[1, 0, 0], [1, 1, 0], [1, 1, 1]]);

test("headOf returns one head", () => {
  const tensor = { shape: [2, 2, 3], data: Float32Array.from([1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8]) };
  assert.deepEqual([...Array.from(headOf(tensor, 1).data)], [3, 4, 5, 6, 7, 8]);
  assert.throws(() => headOf(tensor, 2), /no head 2/);
});

test("a mask of one row holds for every row", () => {
  assert.deepEqual([...Array.from(maskOfRows(grid([[1, 0]]), 2)!.data)], [1, 0, 1, 0]);
  assert.equal(maskOfRows(null, 2), null);
});

test("a difference of heads is B minus A, and there is none of other shapes", () => {
  assert.deepEqual([...Array.from(difference(grid([[1, 2]]), grid([[3, 1]]))!.data)], [2, -1]);
  assert.equal(difference(grid([[1, 2]]), grid([[1], [2]])), null);
});

test("entropy is 1 for uniform and 0 for one-hot weights over unmasked keys", () => {
  near(entropy(grid([[1 / 3, 1 / 3, 1 / 3]]), null, [0]), 1);
  near(entropy(grid([[0, 1, 0]]), null, [0]), 0);
  // Row 0 of a causal mask has one key and no choice; rows 1 and 2 are even over what they may see.
  near(entropy(grid([[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]), CAUSAL, [0, 1, 2]), 1);
  assert.equal(entropy(grid([[1, 0, 0]]), CAUSAL, [0]), null);
});

test("previousTokenShare and diagonality", () => {
  const previous = grid([[1, 0, 0], [1, 0, 0], [0, 0.75, 0.25]]);
  near(previousTokenShare(previous, [0, 1, 2]), (1 + 0.75) / 2);
  near(diagonality(previous, [0, 1, 2], 0), (1 + 0 + 0.25) / 3);
  assert.equal(previousTokenShare(previous, [0]), null);
  assert.deepEqual(measuresOf(true).map(([name]) => name), ["entropy", "diagonal"]);
  near(measure("diagonal", previous, null, [2], true), 1);
  // 2 queries over 5 keys: the diagonal runs from key 0 to key 4.
  near(diagonality(grid([[0.5, 0.25, 0.25, 0, 0], [0, 0, 0, 0.1, 0.9]]), [0, 1], 1), (0.75 + 1) / 2);
});

test("nearestText takes the example that differs in one place, and never the text itself", () => {
  const examples = ["[de] 1. Mai", "[us] 03/04", "[us] 03/05", "other"];
  assert.equal(nearestText("[us] 03/05", examples), "[us] 03/04");
  assert.equal(nearestText("only", ["only"]), undefined);
});

test("differingTokens marks tokens outside the longest common subsequence", () => {
  assert.deepEqual(differingTokens([1, 2, 3], [1, 9, 3, 4]), [false, true, false]);
  assert.deepEqual(differingTokens([1, 9, 3, 4], [1, 2, 3]), [false, true, false, true]);
  assert.deepEqual(differingTokens([], [5]), []);
  assert.deepEqual(differingTokens([5, 6], []), [true, true]);
  assert.deepEqual(differingTokens([1, 2, 3, 4], [3, 4, 1, 2, 9]).filter(Boolean).length, 2);
});

test("pairRows lists the most probable of either side", () => {
  const prediction = (...top: [number, number][]): Prediction =>
    ({ position: 0, logsumexp: 0, actual: null, top: top.map(([id, p]) => ({ id, piece: `t${id}`, logit: 0, log_prob: Math.log(p) })) });
  const rows = pairRows(prediction([1, 0.7], [2, 0.2]), prediction([3, 0.6], [1, 0.3]), 2);
  assert.deepEqual(rows.map((row) => row.id), [1, 3]);
  near(rows[0]!.b, 0.3);
  assert.equal(rows[1]!.a, null);
  near(smallestProbability(prediction([1, 0.7], [2, 0.2])), 0.2);
});

test("alignedPositions aligns the first generated tokens", () => {
  const manifest = (first: number, length: number) =>
    ({ predictions: Array.from({ length }, (_, position) => ({ position })), decode: { first } }) as unknown as Manifest;
  assert.deepEqual(alignedPositions(manifest(6, 46), manifest(7, 47), 6), { from: 0, to: 45, at: 6, other: 7 });
  assert.deepEqual(alignedPositions(manifest(7, 47), manifest(6, 40), 0), { from: 1, to: 40, at: 1, other: 0 });
  assert.deepEqual(alignedPositions(manifest(0, 5), manifest(0, 3), 4), { from: 0, to: 2, at: 2, other: 2 });
});

test("teacherForcedRequest asks for the same tokens", () => {
  const text = { ids: [5, 6, 7, 8, 9], special: [false, false, false, false, false], n_given: 2, text: "abcde" };
  const decode = { masked: null };
  const lm = { decode, predictions: [{ position: 0 }], request: { text: "ab", decode: { temperature: 0.5 } }, streams: [text] } as unknown as Manifest;
  assert.deepEqual(teacherForcedRequest(lm, "step-00000002"), {
    text: "ab", checkpoint: "step-00000002", prefix: [7, 8], decode: { temperature: 0.5, max_new_tokens: 1 },
  });
  const translate = { decode, predictions: [{ position: 0 }], request: { text: "ab" }, streams: [text, { ...text, text: "xyz" }] } as unknown as Manifest;
  assert.deepEqual(teacherForcedRequest(translate, "model"), { text: "ab", target: "xyz" });
  const classify = { decode, predictions: [{ position: null }], request: { text: "ab" }, streams: [text] } as unknown as Manifest;
  assert.deepEqual(teacherForcedRequest(classify, "step-00000002"), { text: "ab", checkpoint: "step-00000002" });
  const masked = { ...lm, decode: { masked: [1] }, request: { text: "ab" } } as unknown as Manifest;
  assert.deepEqual(teacherForcedRequest(masked, "model"), { text: "ab" });
});

test("a difference has no measures of distributions, and its texts make no claim about them", () => {
  assert.deepEqual(measuresOf(false).map(([name]) => name), ["entropy", "previous", "diagonal"]);
  assert.deepEqual([measuresOf(false, true), measuresOf(true, true)].map((all) => all.map(([name]) => name)), [["change"], ["change"]]);
  near(measure("change", grid([[0.2, -0.6], [0, 0.4]]), null, [0, 1], false)!, 0.6);
  const node = {
    id: "encoder.0.self.weights", site: "weights", op: "softmax", layer: 0, block: "self", stack: "encoder", inputs: [], params: {}, attrs: {},
    axes: [{ name: "head", size: 2 }, { name: "token", size: 3, stream: "text" }, { name: "key", size: 3, stream: "text" }],
  } as unknown as TraceNode;
  const says = [{}, { difference: true }].map((attrs) => sentence({ ...node, attrs }, { model: {} as Manifest["model"] }));
  assert.deepEqual(says.map((one) => /sums? to 1/.test(one)), [true, false]);
});

test("filmSlice fetches one head to limit memory", () => {
  const view = { layer: { nHeads: 8 }, head: 5 };
  assert.equal(filmSlice(view, 128 * 128, 30), "");
  assert.equal(filmSlice(view, 512 * 512, 30), "head:5");
});
