/**
 * Runs the forward pass of a model: the steps that Python recorded of one text are the program of all texts, since the sizes of
 * the axes of tokens are all that differs. Every step is a row of the table of operations (`tensors/walk.ts`), in 32-bit floats.
 *
 * With a cache the steps of a stream that is being written see its new tokens alone. Only attention mixes tokens: what is
 * multiplied with queries and weights, the keys and values, is kept and appended to.
 */
import { FAST, type Names, run, type Values } from "../tensors/walk";
import { argumentsOf, rowOfStep } from "../trace/operations";
import type { StreamName, TraceNode } from "../types";

/** What a text gives the program. */
export interface Feed {
  /** Ids of the tokens of each stream; with a cache the new ones of the stream that is written. */
  ids: Partial<Record<StreamName, readonly number[]>>;
  /** The tokens of a text encoder that are padding: the one of an empty text. */
  hidden?: readonly boolean[];
  /** Ids of the character n-grams of each token, padded with 0, and rows of the pairs of words. */
  ngrams?: readonly (readonly number[])[];
  bigrams?: readonly number[];
  /** The token of the word that is tagged. */
  word?: number;
  /** What is to be learned: the class or token of each row of the logits, null where nothing is; or the output of a regressor. */
  labels?: readonly (number | null)[];
  number?: number;
}

/** The keys and values of a stream's earlier tokens, by the step that reads them. */
export interface Cache {
  length: number;
  kept: Map<string, Values>;
  /** Those tokens, for their n-grams. */
  ids: readonly number[];
}

export interface Program {
  nodes: readonly TraceNode[];
  params: Record<string, Values>;
  /** Edits that stay in force. */
  tap?: (id: string, value: Values) => Values;
}

export type Steps = Map<string, Values>;

const MULTIPLIER = 6364136223846793005n;
const BITS = (1n << 64n) - 1n;

/** Rows of the n-grams of tokens that end at each token, shortest first; 0 for none (`nn/ngram_embeddings.py`). */
export function hashedNgrams(ids: readonly number[], { max_ngram: largest, special, rows }: { max_ngram: number; special: number; rows: number }): number[][] {
  return ids.map((id, t) => {
    let [key, exists] = [(BigInt(id + 1) * MULTIPLIER) & BITS, id >= special];
    return Array.from({ length: largest - 1 }, (_, i) => {
      const before = ids[t - i - 1] ?? -1;
      key = ((key + BigInt(before + 1)) * MULTIPLIER) & BITS;
      exists &&= before >= special;
      return exists ? Number(BigInt.asIntN(64, key) >> 33n) : -1;
    }).map((hash, i) => (hash === -1 ? 0 : (((hash % rows) + rows) % rows) + 1 + i * rows));
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

/** A sum of gradients. */
function sumOf(parts: readonly Values[]): Values {
  const data = Float32Array.from(parts[0]!.data);
  for (const part of parts.slice(1)) for (let i = 0; i < data.length; i++) data[i]! += part.data[i]!;
  return { shape: parts[0]!.shape, data };
}

/** How a text is run through a program; all fields may be left out. */
export interface Options {
  /** Ids of the steps to compute, with what they need; all of the forward pass when absent. */
  wanted?: readonly string[];
  /** Replaces the value of a step, as an edit does. */
  tap?: (id: string, value: Values) => Values;
  /** Of the stream that is written, whose tokens in the feed are then the new ones; it is extended. */
  cache?: Cache;
  /** Steps that are not computed again, such as an encoder's, or the gradient of the logits. */
  known?: Steps;
}

/** The values of the steps of a text, by id. */
export function execute(program: Program, feed: Feed, { wanted, tap = program.tap ?? ((_, value) => value), cache, known }: Options = {}): Steps {
  const { nodes, params } = program, steps: Steps = new Map(known);
  const written = nodes.findLast((node) => node.op === "ids")!.axes[0]!.stream;
  const streamOf = new Map(nodes.map((node) => [node.id, node.axes.find(({ name }) => name === "token")?.stream]));
  const first = (stream: unknown) => (cache && stream === written ? cache.length : 0);
  const size = (stream: unknown) => first(stream) + (feed.ids[stream as StreamName]?.length ?? 0);

  /** What no expression gives; null for a mask that hides nothing. */
  function source({ op, attrs, inputs, axes }: TraceNode): Values | null {
    const stream = axes[0]?.stream as StreamName, ids = feed.ids[stream] ?? [];
    switch (op) {
      case "ids": return row(ids);
      case "bigram_ids": return row(feed.bigrams ?? []);
      case "ngram_ids": {
        const width = Math.max(0, ...feed.ngrams!.map((one) => one.length));
        return { shape: [ids.length, width], data: feed.ngrams!.flatMap((one) => [...one, ...Array<number>(width - one.length).fill(0)]) };
      }
      case "segment_ids": {
        const end = ids.indexOf(Number(attrs.separator));
        return row(ids.map((_, i) => Number(end >= 0 && i > end)));
      }
      case "one": return row([1]);
      case "sum": return sumOf(inputs.map((id) => steps.get(id)!));
      case "targets": {
        const labels = feed.labels!, width = axes.at(-1)!.size, smoothing = Number(attrs.smoothing);
        const data = new Float32Array(labels.length * width);
        labels.forEach((label, r) => label !== null && data.fill(smoothing / width, r * width, (r + 1) * width) && (data[r * width + label]! += 1 - smoothing));
        return { shape: axes.length > 1 ? [labels.length, width] : [width], data };
      }
    }
    const of = axes.at(-1)!.stream, [keys, begins] = [size(of), first(of)], rows = attrs.kind === "causal" ? keys - begins : 1;
    if (attrs.kind !== "word" && (attrs.kind === "causal" ? rows === 1 : of !== "text" || !feed.hidden?.includes(true))) return null;
    const seen = attrs.kind === "word" ? (i: number) => i === feed.word : attrs.kind === "causal" ? (i: number) => i % keys <= begins + Math.floor(i / keys) : (i: number) => !feed.hidden![i];
    return { shape: [rows, keys], data: Uint8Array.from({ length: rows * keys }, (_, i) => Number(seen(i))) };
  }

  const needed = new Set(wanted ?? nodes.filter(({ id }) => !id.includes(".grad") && !id.startsWith("loss")).map(({ id }) => id));
  for (const { id, inputs } of nodes.toReversed()) if (needed.has(id) && !steps.has(id)) for (const one of inputs) needed.add(one);
  for (const node of nodes) {
    if (!needed.has(node.id) || steps.has(node.id)) continue;
    const operation = rowOfStep(node)!, begins = first(streamOf.get(node.id));
    if (!operation.gives) {
      const value = source(node);
      if (value) steps.set(node.id, tap(node.id, value));
      continue;
    }
    const shape = node.axes.map(({ name, stream, size: fixed }) => (name === "token" ? size(stream) - begins : name === "key" ? size(stream) : fixed));
    const names: Names = { C: shape.at(-1)!, R: shape.at(-2) ?? 1, H: shape.at(-3) ?? 1, ...(node.attrs as Names), first: begins };
    if (node.attrs.labels) names.labels = row(feed.labels!.map((label) => label ?? NaN));
    if (node.attrs.number !== undefined) names.number = feed.number;
    for (const name of operation.optional) names[name] = name === "mask" ? null : 0;
    for (const [name, id] of Object.entries(argumentsOf(node, operation))) names[name] = steps.get(id) ?? params[id] ?? null;
    const kept = node.op === "dot" ? "k" : node.op === "mix" ? "v" : "";
    if (cache && kept && streamOf.get(node.inputs[1]!) === written) {
      names[kept] = append(cache.kept.get(node.id), names[kept] as Values);
      cache.kept.set(node.id, names[kept] as Values);
    }
    const value = run(operation, names, FAST);
    steps.set(node.id, tap(node.id, { shape, data: value.data }));
  }
  if (cache) cache.length += feed.ids[written as StreamName]?.length ?? 0;
  return steps;
}
