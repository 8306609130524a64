/**
 * Each operation of a forward pass twice: everything it computes, made again from its real inputs (`again`), and
 * how one number of it came about (`cell`). `check.ts` compares the first, `ArithmeticView` shows the second.
 */
import { count, number, visible } from "../tensors/format";
import * as ops from "../tensors/ops";
import type { Op } from "../types";
import {
  type Arithmetic, type Cell, data, firstOf, input, inputNode, last, needAll, needed, ngramsOf, one, param, pieces, predictionAt,
  PROBABILITIES, rowOf, rowSlice, sizeOf, startOf, type Step, streamOf, times, tokensOf, Unavailable, width, windowOf,
} from "./stepData";

interface Operation {
  again: (step: Step) => Promise<ops.Numbers>;
  cell: (step: Step, cell: Cell) => Promise<Arithmetic>;
}

const n = (x: number) => number(x, 4);
/** In brackets where a sign would stand beside another. */
const p = (x: number) => (x < 0 ? `(${n(x)})` : n(x));
const lines = (...text: string[]): Arithmetic => ({ lines: text, terms: [], heads: ["", "", "", ""] });

function products(heads: Arithmetic["heads"], a: ops.Numbers, b: ops.Numbers, labels: string[] = []): Arithmetic {
  const terms = Array.from(a, (x, i) => ({ label: labels[i] ?? String(i), a: x, b: b[i]!, value: x * b[i]! }));
  return { lines: [], terms, heads };
}

const summed = (what: string, values: number[], divisor: number, labels: string[]) =>
  products([what, "value", divisor === 1 ? "1" : `1/${divisor}`, "share"], values, values.map(() => 1 / divisor), labels);

/** An operation on each number by itself. */
const each = (f: (x: number) => number, says: (x: number) => string): Operation => ({
  again: async (step) => Float64Array.from(await data(step, 0), f),
  cell: async (step, cell) => {
    const x = await one(step, cell, 0);
    return lines(`${says(x)} = ${n(f(x))}`);
  },
});

const norm = (centred: boolean): Operation => ({
  again: async (step) =>
    ops.normalise(await data(step, 0), last(step.node), Number(step.node.attrs.eps), await param(step, "weight"), await param(step, "bias"), centred),
  cell: async (step, cell) => {
    const row = await data(step, 0, rowSlice(step, cell));
    const weight = await param(step, "weight");
    const bias = await param(step, "bias");
    const eps = Number(step.node.attrs.eps);
    const { mean, variance } = ops.moments(row, centred);
    const [x, gamma, beta] = [row[cell.col]!, weight?.[cell.col] ?? 1, bias?.[cell.col] ?? 0];
    const result = ((x - mean) / Math.sqrt(variance + eps)) * gamma + beta;
    const what = centred ? `mean μ = ${n(mean)}, variance σ² = ${n(variance)}` : `mean of the squares ${n(variance)}`;
    return lines(
      `Over the ${row.length} features: ${what}.`,
      `${centred ? `(${n(x)} − ${p(mean)})` : n(x)} / √(${n(variance)} + ${number(eps)}) · ${p(gamma)}${bias ? ` + ${p(beta)}` : ""} = ${n(result)}`,
    );
  },
});

export const OPERATIONS: Record<Op, Operation> = {
  ids: {
    again: async ({ trace, node }) => {
      const start = startOf(trace, tokensOf(node));
      return streamOf(trace, tokensOf(node))?.ids.slice(start, start + last(node)) ?? [];
    },
    cell: async (step, cell) => {
      const piece = pieces(step, step.node, 0)[cell.col];
      return lines(`“${visible(piece)}” is number ${await one(step, cell)} of the ${count(step.trace.model.vocab_size)} tokens of the vocabulary.`);
    },
  },
  lookup: {
    again: rowsPicked,
    cell: async (step, cell) =>
      lines(`Row ${(await data(step, 0))[cell.row]} of the ${/bigrams$/.test(step.node.id) ? "table of pairs" : "embedding table"}, feature ${cell.col}: ${n(await one(step, cell))}.`),
  },
  spelling: {
    again: async ({ trace }) => trace.streams[0]?.ngram_ids?.slice(...(windowOf(trace, trace.streams[0].name) ?? [0])).flat() ?? [],
    cell: async (step, cell) => lines(`${ngramsOf(step.trace, cell.row)[cell.col] ?? "None"}: ${await one(step, cell)}`),
  },
  bag: {
    again: rowsPicked,
    cell: async (step, { row, col }) => {
      const ids = Array.from(await data(step, 0, `token:${row}`)).filter(Boolean);
      const values = await Promise.all(ids.map(async (id) => (await needed(step, "weight", [id]))[col]!));
      return summed("n-gram", values, step.node.attrs.how === "sum" ? 1 : values.length, ngramsOf(step.trace, row));
    },
  },
  pairs: {
    again: async ({ trace, node }) => trace.streams[0]?.bigram_ids?.slice(firstOf({ trace, node }), firstOf({ trace, node }) + last(node)) ?? [],
    cell: async (step, cell) => {
      const [row, pair] = [await one(step, cell), step.trace.streams[0]?.bigrams?.[cell.col + firstOf(step)]];
      return lines(row ? `“${pair}” has row ${row} of the table of pairs.` : "This token and the one before it are no listed pair.");
    },
  },
  scale: {
    again: async (step) => Float64Array.from(await data(step, 0), (x) => x * Number(step.node.attrs.factor)),
    cell: async (step, cell) => {
      const [x, factor] = [await one(step, cell, 0), Number(step.node.attrs.factor)];
      return lines(`${n(x)} · ${n(factor)} = ${n(x * factor)}`);
    },
  },
  positions: {
    again: async (step) => {
      const { node } = step;
      const [size, first] = [last(node), firstOf(step)];
      const length = node.axes[0]!.size;
      if (node.params.weight) return (await needed(step, "weight")).slice(first * size, (first + length) * size);
      if (node.attrs.scheme !== "sinusoidal") throw new Unavailable(`the page does not know the scheme ${node.attrs.scheme}`);
      return Float64Array.from({ length: length * size }, (_, i) => Number(node.attrs.amplitude) * ops.sinusoid(first + Math.floor(i / size), i % size, size));
    },
    cell: async (step, cell) => {
      const position = cell.row + firstOf(step);
      if (step.node.params.weight) return lines(`Row ${position} of the trained position table, feature ${cell.col}: ${n(await one(step, cell))}.`);
      const [size, wave] = [last(step.node), cell.col % 2 ? "cos" : "sin"];
      const even = cell.col - (cell.col % 2);
      const value = ops.sinusoid(position, cell.col, size) * Number(step.node.attrs.amplitude);
      const says = (angle: string) => `${times(step.node)}${wave}(${angle}) = `;
      return lines(says(`${position} / 10000^(${even}/${size})`) + says(n(position / 10000 ** (even / size))) + n(value));
    },
  },
  add: {
    again: async (step) => {
      const [a, b] = [await data(step, 0), await data(step, 1)];
      return Float64Array.from(a, (x, i) => x + b[i]!);
    },
    cell: async (step, cell) => {
      const [x, y] = [await one(step, cell, 0), await one(step, cell, 1)];
      return lines(`${n(x)} + ${p(y)} = ${n(x + y)}`);
    },
  },
  layer_norm: norm(true),
  rms_norm: norm(false),
  linear: {
    again: async (step) => {
      const x = await input(step, 0);
      return ops.linear(x.data, await needed(step, "weight"), await param(step, "bias"), width(x));
    },
    cell: async (step, cell) => {
      const { trace, node } = step;
      const prediction = node.axes.at(-1)?.name === "vocab" ? predictionAt(trace, cell.position) : undefined;
      const out = prediction?.top[cell.col]?.id ?? cell.col;
      const row = prediction ? rowOf(trace, prediction) : cell.row;
      const x = await data(step, 0, node.axes.length > 1 ? `token:${row}` : "");
      const bias = await param(step, "bias", [out]);
      const worked = products(["feature", "x", "weight", "product"], x, await needed(step, "weight", [out]));
      return { ...worked, extra: bias ? { label: "bias b", value: bias[0]! } : undefined };
    },
  },
  split_heads: {
    again: async (step) => ops.swapAxes(await data(step, 0), sizeOf(step.node, "token"), sizeOf(step.node, "head"), last(step.node)),
    cell: async (step, cell) => {
      const size = last(step.node);
      return lines(`Feature ${cell.head}·${size} + ${cell.col} = ${cell.head * size + cell.col} of the token's vector, unchanged: ${n(await one(step, cell))}`);
    },
  },
  concat_heads: {
    again: async (step) => {
      const x = await input(step, 0);
      return ops.swapAxes(x.data, x.shape[0]!, x.shape[1]!, width(x));
    },
    cell: async (step, cell) => {
      const size = step.trace.model.d_head;
      return lines(`Head ${Math.floor(cell.col / size) + 1}, its feature ${cell.col % size}, unchanged: ${n(await one(step, cell))}`);
    },
  },
  rotate: {
    again: async (step) => {
      const { node } = step;
      return ops.rotate(await data(step, 0), sizeOf(node, "token"), last(node), Number(node.attrs.base), firstOf(step));
    },
    cell: async (step, cell) => {
      const { node } = step;
      const x = await data(step, 0, rowSlice(step, cell));
      const position = cell.row + firstOf(step);
      const { angle, partner, sign } = ops.rotation(cell.col, x.length, position, Number(node.attrs.base));
      const [own, other] = [x[cell.col]!, x[partner]!];
      return lines(
        `Position ${position}, feature ${cell.col} paired with ${partner}: angle ${n(angle)} radians.`,
        `${n(own)} · cos ${n(angle)} ${sign < 0 ? "−" : "+"} ${p(other)} · sin ${n(angle)} = ${n(own * Math.cos(angle) + sign * other * Math.sin(angle))}`,
      );
    },
  },
  dot: {
    again: async (step) => {
      const q = await input(step, 0);
      return ops.dot(q.data, await data(step, 1), sizeOf(step.node, "head"), width(q));
    },
    cell: async (step, { head, row, col }) =>
      products(["feature", "query", "key", "product"], await data(step, 0, `head:${head};token:${row}`), await data(step, 1, `head:${head};token:${col}`)),
  },
  mask: {
    again: async ({ trace, node }) => {
      const [kind, keys] = [node.attrs.kind, last(node)];
      if (kind !== "causal" && kind !== "padding") throw new Unavailable("this mask was given to the model from outside");
      const read = node.axes.at(-1)?.stream;
      const [padding, start] = [streamOf(trace, read)?.padding ?? [], startOf(trace, read)];
      const rows = node.axes.length > 1 ? node.axes.at(-2)!.size : 1;
      return Float64Array.from({ length: rows * keys }, (_, i) =>
        Number(kind === "causal" ? i % keys <= Math.floor(i / keys) : !padding[start + (i % keys)]));
    },
    cell: async (step, cell) => lines(await one(step, cell) ? "May be looked at." : "May not be looked at: its weight will be exactly 0."),
  },
  softmax: {
    again: async (step) => {
      needAll(step, step.node.axes.at(-1));
      return ops.softmax(await data(step, 0), last(step.node), step.node.inputs[1] ? await data(step, 1) : null);
    },
    cell: (step, cell) => (step.node.id === PROBABILITIES ? probabilityCell(step, cell) : softmaxCell(step, cell)),
  },
  mix: {
    again: async (step) => {
      needAll(step, inputNode(step, 0)?.axes.at(-1));
      const weights = await input(step, 0);
      return ops.mixValues(weights.data, await data(step, 1), sizeOf(step.node, "head"), width(weights));
    },
    cell: async (step, { head, row, col }) => products(
      ["token", "weight", "value", "product"], await data(step, 0, `head:${head};token:${row}`), await data(step, 1, `head:${head};head_feature:${col}`),
      pieces(step, inputNode(step, 1), 1),
    ),
  },
  relu: each(ops.relu, (x) => `max(0, ${n(x)})`),
  gelu: each(ops.gelu, (x) => `${n(x)} · Φ(${n(x)}) = ${n(x)} · ${n(ops.normalShare(x))}`),
  swiglu: {
    again: async (step) => {
      const [gate, x] = [await data(step, 0), await data(step, 1)];
      return Float64Array.from(x, (value, i) => ops.silu(gate[i]!) * value);
    },
    cell: async (step, cell) => {
      const [gate, x] = [await one(step, cell, 0), await one(step, cell, 1)];
      return lines(`SiLU(${n(gate)}) · ${p(x)} = ${n(ops.silu(gate))} · ${p(x)} = ${n(ops.silu(gate) * x)}`);
    },
  },
  pool: {
    again: async (step) => {
      needAll(step, inputNode(step, 0)?.axes[0]);
      const x = await input(step, 0);
      return ops.pool(x.data, width(x), String(step.node.attrs.how), step.node.inputs[1] ? await data(step, 1) : null);
    },
    cell: pooledCell,
  },
  pin_zero: {
    again: async (step) => [0, ...(await data(step, 0))],
    cell: async (step, { col }) =>
      lines(col === 0 ? "Fixed at 0: only the difference between the two logits matters." : `The score itself: ${n((await data(step, 0))[0] ?? NaN)}`),
  },
};

/** Of each token the rows that its numbers pick: one of a word, or the mean or sum of its n-grams', of which 0 is none. */
async function rowsPicked(step: Step): Promise<number[]> {
  const x = await input(step, 0);
  const [size, each] = [last(step.node), x.shape[1] ?? 1];
  const numbers = Array.from(x.data);
  const unique = [...new Set(numbers)].sort((a, b) => a - b);
  const rows = await needed(step, "weight", unique);
  return Array.from({ length: numbers.length / each }, (_, token) => {
    const picked = numbers.slice(token * each, (token + 1) * each).filter((one) => one || !x.shape[1]).map((one) => unique.indexOf(one) * size);
    return Array.from({ length: size }, (_, i) => picked.reduce((sum, start) => sum + rows[start + i]! / (step.node.attrs.how === "sum" ? 1 : picked.length), 0));
  }).flat();
}

async function softmaxCell(step: Step, { head, row, col }: Cell): Promise<Arithmetic> {
  const scores = await data(step, 0, `head:${head};token:${row}`);
  const perRow = (inputNode(step, 1)?.axes.at(-2)?.size ?? 1) > 1; // a padding mask has one row for all
  const mask = step.node.inputs[1] ? await data(step, 1, perRow ? `token:${row}` : "") : null;
  const keys = pieces(step, step.node, -1);
  const shares = ops.softmax(scores, scores.length, mask);
  const terms = Array.from(scores, (x, k) => ({ label: keys[k] ?? String(k), a: x, b: mask?.[k] === 0 ? 0 : Math.exp(x), value: shares[k]! }));
  const sum = terms.reduce((sofar, term) => sofar + term.b, 0);
  const chosen = terms[col];
  const says = mask?.[col] === 0
    ? "Masked: left out of the sum, weight exactly 0."
    : `e^${p(chosen?.a ?? NaN)} / sum of all = ${n(chosen?.b ?? NaN)} / ${n(sum)} = ${n(shares[col] ?? NaN)}`;
  return { lines: [says], terms, heads: ["token", "score", "e^score", "share"], mark: col };
}

async function probabilityCell({ trace }: Step, { position, col }: Cell): Promise<Arithmetic> {
  const prediction = predictionAt(trace, position);
  const [logit, total] = [prediction?.top[col]?.logit ?? NaN, prediction?.logsumexp ?? NaN];
  return lines(
    `The logarithm of the sum of e^logit over all ${prediction?.position === null ? "classes" : `${count(trace.model.vocab_size)} tokens`} is ${n(total)}.`,
    `e^(${n(logit)} − ${p(total)}) = ${n(Math.exp(logit - total))}`,
  );
}

async function pooledCell(step: Step, { col }: Cell): Promise<Arithmetic> {
  const x = await input(step, 0);
  const mask = step.node.inputs[1] ? await data(step, 1) : null;
  const size = width(x);
  const how = String(step.node.attrs.how).split("+")[Math.floor(col / size)];
  const kept = Array.from({ length: x.shape[0]! }, (_, t) => t).filter((t) => !mask || mask[t]);
  const values = kept.map((t) => x.data[t * size + (col % size)]!);
  const tokens = pieces(step, inputNode(step, 0), 0);
  if (how === "mean") return summed("token", values, values.length, kept.map((t) => tokens[t]!));
  if (how === "first") return lines(`The vector of the first token, feature ${col}: ${n(values[0] ?? NaN)}.`);
  const largest = Math.max(...values);
  return lines(`The largest of ${kept.length}: that of “${visible(tokens[kept[values.indexOf(largest)] ?? 0])}”, ${n(largest)}.`);
}
