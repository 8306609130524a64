/** Tests differences, refused edits, edits in words, blocked keys, the names of rows and words, and where formulas break. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { stepsOf } from "../src/screens/step";
import { differenceOf, passesOf, passOf, Problem, Source, subtract } from "../src/sources/source";
import { points } from "../src/tensors/format";
import type { TensorValue } from "../src/tensors/tensor";
import { piecesOf } from "../src/trace/descriptions";
import { describeEdit, keptEdits, maskOfHead } from "../src/trace/edits";
import { changesOf, rowTexts, rowTextsOf } from "../src/trace/generation";
import { scaleOfNode } from "../src/trace/steps";
import { nameOf, wordsOf } from "../src/trace/words";
import type { Manifest, Prediction, Stream, TraceNode } from "../src/types";

const value = (data: number[], dtype: TensorValue["dtype"] = "f32"): TensorValue =>
  ({ shape: [data.length], dtype, data: dtype === "u8" ? Uint8Array.from(data) : dtype === "i32" ? Int32Array.from(data) : Float32Array.from(data) });

const axis = (name: string, size: number, stream?: string) => ({ name, size, stream });

function node(id: string, axes: ReturnType<typeof axis>[], more: Partial<TraceNode> = {}): TraceNode {
  const [stack, layer, block] = id.split(".");
  return {
    id, site: id.split(".").at(-1)!, op: "linear", stack: /coder$/.test(stack!) ? stack : "target", layer: layer && /\d/.test(layer) ? Number(layer) : null,
    block: /^(self|cross|ff)$/.test(block ?? "") ? block : null, inputs: [], params: {}, attrs: {}, dtype: "f32", axes, ...more,
  } as unknown as TraceNode;
}

const stream = (name: string, pieces: string[]) =>
  ({ name, pieces, ids: pieces.map((_, i) => i), padding: pieces.map(() => false), special: pieces.map(() => false), n_given: 0 }) as unknown as Stream;

const HEADS = [axis("head", 2), axis("token", 3, "target"), axis("key", 4, "source")];
const TRACE = {
  id: "t2", model: { pre_norm: true }, streams: [stream("source", ["a", "b", "c", "d"]), stream("target", ["[BOS]", "-", "0"])], decode: { masked: null },
  gradients: [], learning: null,
  predictions: ["-", "0", "[EOS]"].map((piece, position) => ({ position, top: [{ id: 9, piece: "?" }], actual: position < 2 ? { id: 1, piece } : null })),
  nodes: [
    node("decoder.0.cross.scores", HEADS), node("decoder.0.cross.weights", HEADS), node("decoder.0.cross.out", [axis("token", 3, "target"), axis("feature", 8)]),
    node("encoder.0.ff.residual", [axis("token", 4, "source"), axis("feature", 8)]), node("decoder.0.cross.context", [axis("head", 2), axis("token", 3, "target"), axis("head_feature", 4)]), node("decoder.0.ff.hidden", [axis("token", 3, "target"), axis("hidden", 8)]),
    node("embedding.rows", [axis("token", 3, "target"), axis("feature", 8)]),
  ],
} as unknown as Manifest;

test("the difference of what is the same is 0, for every kind of value and for one and the same object", async () => {
  for (const dtype of ["f32", "f16", "i32", "u8"] as const) {
    const [a, b] = [value([1, 2, 3], dtype), value([1, 2, 3], dtype)];
    for (const partner of [a, b]) assert.deepEqual([...subtract(a, partner).data], [0, 0, 0], dtype);
  }
  assert.deepEqual([...subtract(value([Infinity, -Infinity, 2]), value([Infinity, 1, 0.5])).data], [0, -Infinity, 1.5]);
  assert.deepEqual([...subtract(value([0, 1], "u8"), value([1, 0], "u8")).data], [-1, 1]);
  assert.throws(() => subtract(value([1]), value([1, 2])), /no difference/);
  const shared = value([5, -5]);
  const tensors: Record<string, TensorValue> = { "t1/x": shared, "t2/x": shared, "t1/y": value([1, 1]), "t2/y": value([1, 3]) };
  class Stored extends Source {
    live = true;
    ask = async (): Promise<never> => assert.fail();
    trace = this.ask;
    load = this.ask;
    own = (trace: string, id: string) => tensors[`${trace}/${id}`] ?? null;
  }
  const source = new Stored();
  for (const [id, expected] of [["x", [0, 0]], ["y", [0, 2]]] as const) {
    assert.deepEqual([...source.peek("t2~t1", id)!.data], expected);
    assert.deepEqual([...(await source.tensor("t2~t1", id)).data], expected);
  }
  assert.equal(await source.tensor("t2", "x"), shared);
});

test("a difference knows its two passes and shows all of its steps on a signed scale", () => {
  const before = { ...TRACE, id: "t1" };
  const both = differenceOf(TRACE, before);
  assert.deepEqual([both.id, passesOf(both), passesOf(TRACE), passOf(both), passOf(TRACE)], ["t2~t1", { before, after: TRACE }, null, TRACE, TRACE]);
  const softmax = differenceOf({ ...TRACE, nodes: [node("decoder.0.cross.weights", HEADS, { op: "softmax" }), node("logits", [axis("vocab", 2)])] }, before);
  assert.deepEqual(stepsOf(softmax).map(scaleOfNode), ["signed", "signed", "signed"], "the probabilities among them");
});

test("changes are of the candidates that both passes list", () => {
  const prediction = (...top: [number, number][]) => ({ position: 0, actual: null, top: top.map(([id, p]) => ({ id, piece: `t${id}`, logit: 10 * p, log_prob: Math.log(p) })) }) as unknown as Prediction;
  const [before, after] = [prediction([1, 0.75], [2, 0.25]), prediction([3, 0.5], [1, 0.25], [2, 0.25])];
  assert.deepEqual(changesOf(before, after, "probability").map(({ id, change }) => [id, change]), [[1, -0.5], [2, 0]]);
  assert.deepEqual(changesOf(before, after, "logit").map(({ change }) => change), [-5, 0]);
  assert.deepEqual(changesOf(before, before, "probability").map(({ change }) => change), [0, 0]);
  assert.deepEqual([0.201, -0.0003, 0, 1e-9, -3e-7].map(points), ["+20.1 pp", "−0.03 pp", "0 pp", "+1e−7 pp", "−3e−5 pp"]);
});

test("edits that the page opened with end with their text, and others stay", () => {
  const opened = { text: "a", edits: ["x=0", "y=0"] };
  assert.deepEqual(keptEdits(opened.edits, "a", "b", opened), []);
  assert.deepEqual(keptEdits(opened.edits, "a", "a", opened), opened.edits, "the same text with other settings");
  assert.deepEqual(keptEdits(["y=0", "z=0"], "a", "b", opened), ["z=0"], "z=0 is the reader's");
  assert.deepEqual(keptEdits(["x=0"], "b", "c", opened), ["x=0"], "made again for another text");
  assert.deepEqual(keptEdits(["x=0"], "a", "b", undefined), ["x=0"], "in an address that named it");
  assert.deepEqual(keptEdits(["x=0"], "a", "b", { text: "a" }), ["x=0"], "the page opened without edits");
});

test("an edit in words", () => {
  for (const [edit, words] of [
    ["decoder.0.cross.scores[head:1;token:1;key:2]=blocked", "Decoder layer 0, cross-attention, head 1, query - → 0 (row 1), key c (token 2): blocked"],
    ["encoder.0.state[token:1]=B[token:3]", "Encoder layer 0, feed-forward, Residual sum, b (token 1): from token 3 of the second text"],
    ["encoder.0.state[token:0-3]=B", "Encoder layer 0, feed-forward, Residual sum, token 0 to 2: from the second text"],
    ["encoder.0.state[token:2-3;feature:1.5]=mean", "Encoder layer 0, feed-forward, Residual sum, token 2, feature 1, 5: set to its mean over reference texts"],
    ["decoder.0.cross.head1=0", "Decoder layer 0, cross-attention, head 1: switched off"],
    ["decoder.0.ff.neuron7=mean", "Decoder layer 0, feed-forward, Activation, feature 7: set to its mean over reference texts"],
    ["decoder.0.cross.branch=0", "Decoder layer 0, cross-attention: switched off"],
    ["encoder.*.ff.out=0", "encoder.*.ff.out=0"],
    ["decoder.0.cross.out=0", "Decoder layer 0, cross-attention: switched off"],
    ["decoder.0.ff.hidden[token:0;hidden:7]*0.5", "Decoder layer 0, feed-forward, Activation, [BOS] → - (row 0), feature 7: times 0.5"],
    ["encoder.0.state=skip", "Encoder layer 0: skipped"],
    ["nothing.at.all=1", "nothing.at.all=1"],
  ] as const) assert.equal(describeEdit(edit, { ...TRACE, nodes: TRACE.nodes.map((one) => (one.id.endsWith("hidden") ? { ...one, op: "relu" as const } : one)) }), words);
});

test("keys that edits block are masked in their head alone, and in no difference", () => {
  const applied = [{ edit: 0, step: "decoder.0.cross.scores", slice: "head:1;key:0", kind: "blocked" }, { edit: 1, step: "decoder.0.cross.scores", slice: "head:1;token:2;key:3", kind: "blocked" }];
  const trace = { ...TRACE, edited: { applied, edits: [], same: [] } } as unknown as Manifest;
  const layer = { rows: 1, cols: 4, data: [1, 1, 0, 1] };
  assert.equal(maskOfHead(TRACE, "decoder.0.cross.weights", 1, layer), layer);
  assert.deepEqual([...maskOfHead(trace, "decoder.0.cross.weights", 1, layer)!.data], [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]);
  assert.deepEqual([...maskOfHead(trace, "decoder.0.cross.weights", 0, null)!.data], Array(12).fill(1));
  assert.deepEqual([...maskOfHead(trace, "decoder.0.cross.weights", 1, null)!.data], [0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 0]);
  assert.equal(maskOfHead(differenceOf(trace, TRACE), "decoder.0.cross.weights", 1, layer), layer);
});

test("a row that computes the next token is named by both", () => {
  assert.deepEqual(rowTexts(TRACE, "target"), ["[BOS] → -", "- → 0", "0 → ?"]);
  assert.deepEqual(rowTexts(TRACE, "source"), ["a", "b", "c", "d"]);
  assert.deepEqual(rowTextsOf(TRACE, TRACE.nodes.at(-1)!), ["[BOS]", "-", "0"], "an embedding is of the token that is read");
  for (const other of [{ decode: { masked: [1] } }, { predictions: [{ position: null }] }]) {
    assert.deepEqual(rowTexts({ ...TRACE, ...other } as unknown as Manifest, "target"), ["[BOS]", "-", "0"]);
  }
});

test("words are named by their stream, and hold nothing of what follows the explained position", () => {
  const target = { ...stream("target", ["[BOS]", "20", "26", "-", "0", "3"]), words: [-1, 0, 0, 1, 2, 2], word_texts: ["2026", "-", "03"], spans: [null, [0, 2], [2, 4], [4, 5], [5, 6], [6, 7]], text: "2026-03" } as unknown as Stream;
  const words = wordsOf(target, [0, 1, 1, 0.5, 2, 100], 5);
  assert.deepEqual(words.map(({ text, tokens, score }) => [text, tokens, score]), [["2026", [1, 2], 2], ["-", [3], 0.5], ["0", [4], 2]]);
  assert.equal(wordsOf(target, undefined, 5, ["2026", "-", "0"])[2]!.text, "0");
  assert.equal(wordsOf(target, undefined, null)[2]!.text, "03");
  const source = wordsOf({ ...target, name: "source" }, undefined, null);
  const twice = source.map((word) => (word.index === 1 ? { ...word, text: "03" } : word));
  assert.deepEqual([...source, ...words].map((word) => nameOf(word, [...source, ...words])), ["2026 (source)", "- (source)", "03 (source)", "2026 (target)", "- (target)", "0 (target)"]);
  assert.deepEqual(twice.map((word) => nameOf(word, twice)), ["2026", "03 (word 1)", "03 (word 2)"]);
});

test("a formula breaks before its operators, not inside groups", () => {
  assert.deepEqual(piecesOf("y = a · (b + c) + d").map((piece) => piece.trim()), ["y", "= a", "· (b + c)", "+ d"]);
  assert.deepEqual(piecesOf("A = \\frac{e^{S + 1}}{∑_r e^S}").length, 2);
  assert.equal(piecesOf("M_s = [t_s = [PAD]]").join(""), "M_s = [t_s = [PAD]]", "nothing is lost");
});
