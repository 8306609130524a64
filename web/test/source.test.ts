/** Tests the check of saved values, the file source, loaders, caches and signals. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { FileSource, type Source, TensorCache } from "../src/sources/source";
import { computed, effect, Loader, signal } from "../src/state/signals";
import type { TensorValue } from "../src/tensors/tensor";
import { checkNode } from "../src/trace/operations";
import { table } from "../src/trace/steps";
import type { Manifest, SavedPageData, TraceNode } from "../src/types";

table.rows = JSON.parse(readFileSync("test/operations.json", "utf8")).rows;
const KEYS = 128;

/** Uniform attention over 128 tokens as saved in a page: the weights are 0.008. */
function evenWeights(forge: (weights: Float32Array) => void) {
  const axes = [{ name: "head", size: 1 }, { name: "token", size: 1 }, { name: "key", size: KEYS }];
  const node = { id: "w", op: "softmax", inputs: ["s"], params: {}, attrs: {}, axes } as unknown as TraceNode;
  const trace = { id: "t1", window: null, nodes: [node], params: {}, streams: [], predictions: [] } as unknown as Manifest;
  const weights = new Float32Array(KEYS).fill(1 / KEYS);
  forge(weights);
  const tensors: Record<string, TensorValue> = {
    s: { shape: [1, 1, KEYS], data: new Float32Array(KEYS).fill(2.5), dtype: "f16" }, w: { shape: [1, 1, KEYS], data: weights, dtype: "f16" },
  };
  const source = { live: false, tensor: async (_: string, id: string) => tensors[id]! } as unknown as Source;
  return checkNode(trace, node, 0, source);
}

test("checkNode reports a wrong saved weight, but not rounding", async () => {
  assert.equal((await evenWeights(() => undefined)).state, "ok");
  assert.equal((await evenWeights((weights) => { weights[3]! *= 1 + 2 ** -11; })).state, "ok");
  assert.equal((await evenWeights((weights) => { weights[3] = 0.004; })).state, "bad");
  assert.equal((await evenWeights((weights) => { weights[3]! *= 1.02; })).state, "bad");
});

/** A prediction of a classifier, or at a position. */
function saved(position: number | null): FileSource {
  const candidate = (id: number, logit: number, log_prob: number) => ({ id, piece: String(id), logit, log_prob });
  const whole = { position, logsumexp: 0, top: [candidate(0, 2, -0.4), candidate(1, 1, -1.4), candidate(2, 0, -2.4)], actual: null };
  const without = { ...whole, top: [candidate(2, 5, -0.1), candidate(0, 3, -2.1), candidate(1, 2, -3.1)] };
  const erased = { prediction: without, value: 3 - 2, original: 2 - 1 };
  const request = { trace: "t1", erase: { text: [0] } };
  const trace = { id: "t1", predictions: [whole], nodes: [], params: {} };
  return new FileSource({ traces: [trace], dropped: [], erased: [{ request, erased }] } as unknown as SavedPageData);
}

test("FileSource.erase derives the value for the requested class and contrast", async () => {
  const [page, asked] = [saved(null), { trace: "t1", erase: { text: [0] } }];
  const answers = async (more: object) => page.ask("erase", { ...asked, ...more }).then(({ value, original }) => [value, original]);
  assert.deepEqual(await answers({}), [1, 1]);
  assert.deepEqual(await answers({ target: 0 }), [1, 1], "what the answer is anyway");
  assert.deepEqual(await answers({ target: 2 }), [5 - 3, 0 - 2], "against the likeliest other");
  assert.deepEqual(await answers({ target: 0, foil: 2 }), [3 - 5, 2 - 0]);
  await assert.rejects(answers({ target: 9 }), /does not hold/);
  assert.deepEqual((await saved(0).ask("erase", { ...asked, target: 1 })).value, -3.1, "a token without a foil: its log p");
});

test("Loader drops results of requests that are not the latest", async () => {
  const loader = new Loader<string>();
  let [late, soon] = [(_: string) => {}, (_: string) => {}];
  const first = loader.load("first", () => new Promise((done) => { late = done; }));
  const second = loader.load("second", () => new Promise((done) => { soon = done; }));
  late("old");
  await first;
  assert.deepEqual([loader.result.value, loader.busy.value], [null, "second"]);
  soon("new");
  await second;
  assert.deepEqual([loader.result.value, loader.busy.value], ["new", null]);
  const third = loader.load("third", () => new Promise((done) => { late = done; }));
  await loader.load("", null);
  late("ghost");
  await third;
  assert.deepEqual([loader.result.value, loader.busy.value, loader.problem.value], [null, null, null]);
  const other = new Loader<string>();
  await other.load("other", () => Promise.reject(new Error("no")));
  assert.deepEqual([other.problem.value?.message, loader.problem.value], ["no", null], "each has a problem of its own");
});

test("TensorCache drops the least recently used tensors", () => {
  const store = new TensorCache(10);
  const set = (id: string, size: number) => store.set("t1", id, "", { shape: [size], data: new Uint8Array(size), dtype: "u8" });
  const sizes = (...ids: string[]) => ids.map((id) => store.get("t1", id)?.data.length ?? null);
  set("a", 4);
  set("b", 4);
  sizes("a");
  set("c", 4);
  assert.deepEqual(sizes("a", "b", "c"), [4, null, 4]);
  set("d", 99);
  assert.deepEqual(sizes("a", "c", "d"), [null, null, 99]);
  set("d", 1);
  set("e", 4);
  assert.deepEqual(sizes("d"), [1]);
});

test("TensorCache returns the same values for a slice of a whole tensor", () => {
  const store = new TensorCache(100);
  const value: TensorValue = { shape: [2, 2, 3], data: Float32Array.from({ length: 12 }, (_, i) => i), dtype: "f32" };
  const axes = ["head", "token", "key"];
  const head: TensorValue = { shape: [2, 3], data: value.data.slice(6), dtype: "f32" };
  store.set("t1", "w", "head:1", head);
  assert.equal(store.get("t1", "w", "head:1", axes), head);
  store.set("t1", "w", "", value);
  const view = store.get("t1", "w", "head:1", axes)!;
  assert.notEqual(view, head, "what was fetched for itself is not kept beside the whole");
  assert.deepEqual([view.shape, [...view.data]], [[2, 3], [6, 7, 8, 9, 10, 11]]);
  assert.equal(store.get("t1", "w", "head:1", axes), view);
  assert.deepEqual([...store.get("t1", "w", "head:0;token:1", axes)!.data], [3, 4, 5]);
  assert.deepEqual([...store.get("t1", "w", "key:1", axes)!.data], [1, 4, 7, 10], "what does not lie in one piece is copied");
  assert.equal(store.get("t2", "w", "head:1", axes), null);
  store.set("t1", "v", "", { ...value, data: new Float32Array(14) });
  assert.equal(store.get("t1", "w", "head:1", axes), null, "there was room for one of them");
});

test("computed is stable until a dependency changes, and notifies", () => {
  const [a, b] = [signal(1), signal(2)];
  const sum = computed([a, b], () => ({ sum: a.value + b.value }));
  const seen: number[] = [];
  const end = effect(sum, (now) => seen.push(now.sum));
  assert.equal(sum.value, sum.value);
  b.value = 5;
  a.value = 1;
  end();
  a.value = 7;
  assert.deepEqual([seen, sum.value.sum], [[3, 6], 12]);
});
