/**
 * Runs the forward pass of a model: the steps that Python recorded of one text are the program of all texts, since the sizes of
 * the axes of tokens are all that differs. Every step is a row of the table of operations (`tensors/walk.ts`), in 32-bit floats.
 *
 * With a cache the steps of a stream that is being written see its new tokens alone. Only attention mixes tokens: what is
 * multiplied with queries and weights, the keys and values, is kept and appended to.
 */
import { FAST, type Names, run, type Value, type Values } from "../tensors/walk";
import { argumentsOf, rowOfStep } from "../trace/operations";
import type { StreamName, TraceNode } from "../types";

/** What a text gives the program. */
export interface Feed {
  /** Ids of the tokens of each stream; with a cache the new ones of the stream that is written. */
  ids: Partial<Record<StreamName, readonly number[]>>;
  /** Ids of the character n-grams of each token, padded with 0, and rows of the pairs of words. */
  ngrams?: readonly (readonly number[])[];
  bigrams?: readonly number[];
  /** The token of the word that is tagged. */
  word?: number;
}

/** Returns what is used in place of a step's value: an edit. */
export type Tap = (id: string, value: Values) => Values;

/** The keys and values of a stream's earlier tokens, by the step that reads them. */
export interface Cache {
  length: number;
  kept: Map<string, Values>;
}

export interface Program {
  nodes: readonly TraceNode[];
  params: Record<string, Values>;
}

export type Steps = Map<string, Values>;

const MULTIPLIER = 6364136223846793005n;
const BITS = (1n << 64n) - 1n;

/** Rows of the n-grams of tokens that end at each token, shortest first; 0 for none (`nn/ngram_embeddings.py`). */
export function hashedNgrams(ids: readonly number[], { max_ngram: largest, special, rows }: Record<string, number>): number[][] {
  return ids.map((id, t) => {
    let [key, exists] = [(BigInt(id + 1) * MULTIPLIER) & BITS, id >= special!];
    return Array.from({ length: largest! - 1 }, (_, i) => {
      const before = ids[t - i - 1] ?? -1;
      key = ((key + BigInt(before + 1)) * MULTIPLIER) & BITS;
      exists &&= before >= special!;
      return exists ? Number(BigInt.asIntN(64, key) >> 33n) : -1;
    }).map((hash, i) => (hash === -1 ? 0 : (((hash % rows!) + rows!) % rows!) + 1 + i * rows!));
  });
}

/** Joins keys or values (H, L, E) with those of new tokens (H, n, E). */
function append(before: Values | undefined, after: Values): Values {
  if (!before) return after;
  const [heads, n, width] = after.shape as [number, number, number], kept = before.shape[1]!;
  const data = new Float32Array(heads * (kept + n) * width);
  for (let h = 0; h < heads; h++) {
    data.set((before.data as Float32Array).subarray(h * kept * width, (h + 1) * kept * width), h * (kept + n) * width);
    data.set((after.data as Float32Array).subarray(h * n * width, (h + 1) * n * width), (h * (kept + n) + kept) * width);
  }
  return { shape: [heads, kept + n, width], data };
}

const row = (data: ArrayLike<number>): Values => ({ shape: [data.length], data });

/** The values that no expression gives. */
function source({ op, attrs, axes }: TraceNode, feed: Feed, size: (stream: StreamName) => number, first: number): Values | null {
  const stream = (axes.find(({ name }) => name === "key") ?? axes[0]!).stream as StreamName, ids = feed.ids[stream] ?? [];
  if (op === "ids") return row(ids);
  if (op === "bigram_ids") return row(feed.bigrams ?? []);
  if (op === "ngram_ids") {
    const width = Math.max(0, ...feed.ngrams!.map((one) => one.length));
    return { shape: [ids.length, width], data: feed.ngrams!.flatMap((one) => [...one, ...Array<number>(width - one.length).fill(0)]) };
  }
  if (op === "segment_ids") {
    const end = ids.indexOf(Number(attrs.separator));
    return row(ids.map((_, i) => Number(end >= 0 && i > end)));
  }
  // No text is padded here; a causal mask hides no key from the last token.
  const keys = size(stream), rows = attrs.kind === "causal" ? keys - first : 1;
  if (attrs.kind === "word") return { shape: [1, keys], data: Float32Array.from({ length: keys }, (_, i) => Number(i === feed.word)) };
  if (attrs.kind !== "causal" || rows === 1) return null;
  return { shape: [rows, keys], data: Float32Array.from({ length: rows * keys }, (_, i) => Number(i % keys <= first + Math.floor(i / keys))) };
}

/**
 * The values of all steps of a text, by id.
 *
 * @param tap replaces values of steps, as an edit does.
 * @param cache of the last stream: its tokens are then the new ones; it is extended.
 * @param known steps that are not computed again, such as an encoder's.
 */
export function forward({ nodes, params }: Program, feed: Feed, tap: Tap = (_, value) => value, cache?: Cache, known: Steps = new Map()): Steps {
  const steps: Steps = new Map(known), written = nodes.findLast((node) => node.op === "ids")!.axes[0]!.stream;
  const first = (stream: unknown) => (cache && stream === written ? cache.length : 0);
  const size = (stream: StreamName) => first(stream) + (feed.ids[stream]?.length ?? 0);
  const streamOf = new Map(nodes.map((node) => [node.id, node.axes.find(({ name }) => name === "token")?.stream]));
  for (const node of nodes) {
    if (steps.has(node.id)) continue;
    const begins = first(streamOf.get(node.id));
    const operation = rowOfStep(node)!;
    if (!operation.gives) {
      const value = source(node, feed, size, begins);
      if (value) steps.set(node.id, tap(node.id, value));
      continue;
    }
    const shape = node.axes.map((axis) => (axis.name === "token" || axis.name === "key" ? size(axis.stream as StreamName) - (axis.name === "token" ? begins : 0) : axis.size));
    const names: Names = { first: begins, C: shape.at(-1)!, R: shape.at(-2) ?? 1, H: shape.at(-3) ?? 1, ...(node.attrs as Names) };
    for (const name of operation.optional) names[name] = name === "mask" ? null : 0;
    for (const [name, id] of Object.entries(argumentsOf(node, operation))) names[name] = steps.get(id) ?? params[id] ?? (null as Value);
    const kept = node.op === "dot" ? "k" : node.op === "mix" ? "v" : "";
    if (cache && kept && streamOf.get(node.inputs[1]!) === written) {
      const all = append(cache.kept.get(node.id), names[kept] as Values);
      cache.kept.set(node.id, all);
      names[kept] = all;
    }
    const value = run(operation, names, FAST);
    steps.set(node.id, tap(node.id, value));
  }
  if (cache) cache.length += feed.ids[written as StreamName]?.length ?? 0;
  return steps;
}
