/**
 * Each operation: `recompute` computes all its values from its inputs, `cell` shows the arithmetic of one value.
 * `check.ts` compares the former with the model's values; `ArithmeticView` shows the latter. Here are those of a forward
 * pass, some of which are also those of a backward pass; `backward.ts` has the others.
 */
import { count, number, visible } from "../tensors/format";
import * as ops from "../tensors/ops";
import type { Op } from "../types";
import { isGradient } from "./steps";
import { elementwise, lines, n, type Operation, p, products, weightedSum } from "./arithmetic";
import { BACKWARD } from "./backward";
import { pieceOf } from "./labels";
import {
  type Arithmetic, axisLabels, type Cell, inputData, firstPosition, input, inputNode, lastSize, requireParam, ngramsOf, cellValue, param, pieces, predictionAt,
  PROBABILITIES, rowOf, rowSlice, sizeOf, type Step, streamOf, times, tokensOf, Unavailable, width,
} from "./stepData";

const norm = (centred: boolean): Operation => ({
  recompute: async (step) =>
    ops.normalise(await inputData(step, 0), lastSize(step.node), Number(step.node.attrs.eps), await param(step, "weight"), await param(step, "bias"), centred),
  cell: async (step, cell) => {
    const row = await inputData(step, 0, rowSlice(step, cell));
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
  ...BACKWARD,
  ids: {
    recompute: async ({ trace, node }) => {
      return streamOf(trace, tokensOf(node))?.ids ?? [];
    },
    cell: async (step, cell) => {
      const piece = pieces(step, step.node, 0)[cell.col];
      return lines(`“${visible(piece)}” has id ${await cellValue(step, cell)} in the vocabulary of ${count(step.trace.model.vocab_size)} tokens.`);
    },
  },
  lookup: {
    recompute: rowsPicked,
    cell: async (step, cell) =>
      lines(`Row ${(await inputData(step, 0))[cell.row]} of the ${/(bigram|segment)s$/.exec(step.node.id)?.[1] ?? "embedding"} table, feature ${cell.col}: ${n(await cellValue(step, cell))}.`),
  },
  ngram_ids: {
    recompute: async ({ trace }) => trace.streams[0]?.ngram_ids?.flat() ?? [],
    cell: async (step, cell) => lines(`${ngramsOf(step.trace, cell.row)[cell.col] ?? "None"}: ${await cellValue(step, cell)}`),
  },
  embedding_bag: {
    recompute: rowsPicked,
    cell: async (step, { row, col }) => {
      const ids = Array.from(await inputData(step, 0, `token:${row}`)).filter(Boolean);
      const values = await Promise.all(ids.map(async (id) => (await requireParam(step, "weight", [id]))[col]!));
      return weightedSum("n-gram", values, step.node.attrs.how === "sum" ? 1 : values.length, ngramsOf(step.trace, row));
    },
  },
  bigram_ids: {
    recompute: async ({ trace, node }) => trace.streams[0]?.bigram_ids?.slice(firstPosition({ node }), firstPosition({ node }) + lastSize(node)) ?? [],
    cell: async (step, cell) => {
      const [row, pair] = [await cellValue(step, cell), step.trace.streams[0]?.bigrams?.[cell.col + firstPosition(step)]];
      return lines(row ? `“${pair}” has row ${row} of the bigram table.` : "This token and the one before it are not a listed bigram.");
    },
  },
  segment_ids: {
    recompute: async ({ trace, node }) => {
      const [ids, first] = [trace.streams[0]!.ids, firstPosition({ node })];
      const end = ids.indexOf(Number(node.attrs.separator));
      return Float64Array.from({ length: lastSize(node) }, (_, i) => +(end >= 0 && first + i > end));
    },
    cell: async () => lines("A text alone is segment 0, the second text of a pair 1."),
  },
  scale: {
    recompute: async (step) => Float64Array.from(await inputData(step, 0), (x) => x * Number(step.node.attrs.factor)),
    cell: async (step, cell) => {
      const [x, factor] = [await cellValue(step, cell, 0), Number(step.node.attrs.factor)];
      return lines(`${n(x)} · ${n(factor)} = ${n(x * factor)}`);
    },
  },
  positions: {
    recompute: async (step) => {
      const { node } = step;
      const [size, first] = [lastSize(node), firstPosition(step)];
      const length = node.axes[0]!.size;
      if (node.params.weight) return (await requireParam(step, "weight")).slice(first * size, (first + length) * size);
      if (node.attrs.scheme !== "sinusoidal") throw new Unavailable(`the page does not support the position scheme ${node.attrs.scheme}`);
      return Float64Array.from({ length: length * size }, (_, i) => Number(node.attrs.amplitude) * ops.sinusoid(first + Math.floor(i / size), i % size, size));
    },
    cell: async (step, cell) => {
      const position = cell.row + firstPosition(step);
      if (step.node.params.weight) return lines(`Row ${position} of the trained position table, feature ${cell.col}: ${n(await cellValue(step, cell))}.`);
      const [size, wave] = [lastSize(step.node), cell.col % 2 ? "cos" : "sin"];
      const even = cell.col - (cell.col % 2);
      const value = ops.sinusoid(position, cell.col, size) * Number(step.node.attrs.amplitude);
      const expression = (angle: string) => `${times(step.node)}${wave}(${angle}) = `;
      return lines(expression(`${position} / 10000^(${even}/${size})`) + expression(n(position / 10000 ** (even / size))) + n(value));
    },
  },
  add: {
    recompute: async (step) => {
      const [a, b] = [await inputData(step, 0), await inputData(step, 1)];
      return Float64Array.from(a, (x, i) => x + b[i]!);
    },
    cell: async (step, cell) => {
      const [x, y] = [await cellValue(step, cell, 0), await cellValue(step, cell, 1)];
      return lines(`${n(x)} + ${p(y)} = ${n(x + y)}`);
    },
  },
  layer_norm: norm(true),
  rms_norm: norm(false),
  linear: {
    recompute: async (step) => {
      const x = await input(step, 0);
      return ops.linear(x.data, await requireParam(step, "weight"), await param(step, "bias"), width(x));
    },
    cell: async (step, cell) => {
      const { trace, node } = step;
      const prediction = node.axes.at(-1)?.name === "vocab" ? predictionAt(trace, cell.position) : undefined;
      const out = prediction?.top[cell.col]?.id ?? cell.col;
      const row = prediction ? rowOf(trace, prediction) : cell.row;
      const x = await inputData(step, 0, node.axes.length > 1 ? `token:${row}` : "");
      const bias = await param(step, "bias", [out]);
      const worked = products(["feature", "x", "weight", "product"], x, await requireParam(step, "weight", [out]));
      return { ...worked, extra: bias ? { label: "bias b", value: bias[0]! } : undefined };
    },
  },
  split_heads: {
    recompute: async (step) => ops.swapAxes(await inputData(step, 0), sizeOf(step.node, "token"), sizeOf(step.node, "head"), lastSize(step.node)),
    cell: async (step, cell) => {
      const size = lastSize(step.node);
      return lines(`Feature ${cell.head}·${size} + ${cell.col + 1} = ${cell.head * size + cell.col + 1} of the token's vector, unchanged: ${n(await cellValue(step, cell))}`);
    },
  },
  concat_heads: {
    recompute: async (step) => {
      const x = await input(step, 0);
      return ops.swapAxes(x.data, x.shape[0]!, x.shape[1]!, width(x));
    },
    cell: async (step, cell) => {
      const size = step.trace.model.d_head;
      return lines(`Head ${Math.floor(cell.col / size) + 1}, its feature ${cell.col % size + 1}, unchanged: ${n(await cellValue(step, cell))}`);
    },
  },
  rotate: {
    recompute: async (step) => {
      const { node } = step;
      return ops.rotate(await inputData(step, 0), sizeOf(node, "token"), lastSize(node), Number(node.attrs.base), firstPosition(step));
    },
    cell: async (step, cell) => {
      const { node } = step;
      const x = await inputData(step, 0, rowSlice(step, cell));
      const position = cell.row + firstPosition(step);
      const { angle, partner, sign } = ops.rotation(cell.col, x.length, position, Number(node.attrs.base));
      const [value, paired] = [x[cell.col]!, x[partner]!];
      return lines(
        `Position ${position}, feature ${cell.col} paired with ${partner}: angle ${n(angle)} radians.`,
        `${n(value)} · cos ${n(angle)} ${sign < 0 ? "−" : "+"} ${p(paired)} · sin ${n(angle)} = ${n(value * Math.cos(angle) + sign * paired * Math.sin(angle))}`,
      );
    },
  },
  dot: {
    recompute: async (step) => {
      const q = await input(step, 0);
      return ops.dot(q.data, await inputData(step, 1), sizeOf(step.node, "head"), width(q));
    },
    cell: async (step, { head, row, col }) =>
      products(["feature", ...(isGradient(step.node) ? ["g", "value"] as const : ["query", "key"] as const), "product"], await inputData(step, 0, `head:${head};token:${row}`), await inputData(step, 1, `head:${head};token:${col}`)),
  },
  mask: {
    recompute: async ({ trace, node }) => {
      const [kind, keys] = [node.attrs.kind, lastSize(node)];
      if (kind !== "causal" && kind !== "padding") throw new Unavailable("this mask was passed to the model by its caller");
      const read = node.axes.at(-1)?.stream;
      const padding = streamOf(trace, read)?.padding ?? [];
      const rows = node.axes.length > 1 ? node.axes.at(-2)!.size : 1;
      return Float64Array.from({ length: rows * keys }, (_, i) =>
        Number(kind === "causal" ? i % keys <= Math.floor(i / keys) : !padding[i % keys]));
    },
    cell: async (step, cell) => lines(await cellValue(step, cell) ? "Not masked." : "Masked: its attention weight is exactly 0."),
  },
  softmax: {
    recompute: async (step) => {
      return ops.softmax(await inputData(step, 0), lastSize(step.node), step.node.inputs[1] ? await inputData(step, 1) : null);
    },
    cell: (step, cell) => (step.node.id === PROBABILITIES ? probabilityCell(step, cell) : softmaxCell(step, cell)),
  },
  mix: {
    recompute: async (step) => {
      const weights = await input(step, 0);
      return ops.mixValues(weights.data, await inputData(step, 1), sizeOf(step.node, "head"), width(weights));
    },
    cell: async (step, { head, row, col }) => products(
      ["token", ...(isGradient(step.node) ? ["g", "key"] as const : ["weight", "value"] as const), "product"], await inputData(step, 0, `head:${head};token:${row}`), await inputData(step, 1, `head:${head};head_feature:${col}`),
      pieces(step, inputNode(step, 1), 1),
    ),
  },
  relu: elementwise(ops.relu, (x) => `max(0, ${n(x)})`),
  gelu: elementwise(ops.gelu, (x) => `${n(x)} · Φ(${n(x)}) = ${n(x)} · ${n(ops.normalShare(x))}`),
  gelu_tanh: elementwise(ops.geluTanh, (x) => `${n(x)} / 2 · (1 + tanh ${p(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))})`),
  silu: elementwise(ops.silu, (x) => `${n(x)} / (1 + e^${p(-x)})`),
  tanh: elementwise(Math.tanh, (x) => `tanh ${p(x)}`),
  swiglu: {
    recompute: async (step) => {
      const [gate, x] = [await inputData(step, 0), await inputData(step, 1)];
      return Float64Array.from(x, (value, i) => ops.silu(gate[i]!) * value);
    },
    cell: async (step, cell) => {
      const [gate, x] = [await cellValue(step, cell, 0), await cellValue(step, cell, 1)];
      return lines(`SiLU(${n(gate)}) · ${p(x)} = ${n(ops.silu(gate))} · ${p(x)} = ${n(ops.silu(gate) * x)}`);
    },
  },
  pool: {
    recompute: async (step) => {
      const x = await input(step, 0);
      return ops.pool(x.data, width(x), String(step.node.attrs.how), step.node.inputs[1] ? await inputData(step, 1) : null);
    },
    cell: pooledCell,
  },
  pin_zero: {
    recompute: async (step) => [0, ...(await inputData(step, 0))],
    cell: async (step, { col }) =>
      lines(col === 0 ? "Fixed at 0: only the difference between the two logits matters." : `The output of the linear layer: ${n((await inputData(step, 0))[0] ?? NaN)}`),
  },
};

/** For each token its row of a table, or the mean or sum of the rows of its n-grams; id 0 is padding. */
async function rowsPicked(step: Step): Promise<number[]> {
  const x = await input(step, 0);
  const [size, perToken] = [lastSize(step.node), x.shape[1] ?? 1];
  const numbers = Array.from(x.data);
  const unique = [...new Set(numbers)].sort((a, b) => a - b);
  const rows = await requireParam(step, "weight", unique);
  return Array.from({ length: numbers.length / perToken }, (_, token) => {
    const picked = numbers.slice(token * perToken, (token + 1) * perToken).filter((one) => one || !x.shape[1]).map((one) => unique.indexOf(one) * size);
    return Array.from({ length: size }, (_, i) => picked.reduce((sum, start) => sum + rows[start + i]! / (step.node.attrs.how === "sum" ? 1 : picked.length), 0));
  }).flat();
}

async function softmaxCell(step: Step, cell: Cell): Promise<Arithmetic> {
  const { row, col } = cell;
  const scores = await inputData(step, 0, rowSlice(step, cell));
  const perRow = (inputNode(step, 1)?.axes.at(-2)?.size ?? 1) > 1; // a padding mask has one row
  const mask = step.node.inputs[1] ? await inputData(step, 1, perRow ? `token:${row}` : "") : null;
  const keys = axisLabels(step.trace, step.node.axes.at(-1)!) ?? (step.node.block ? [] : Array.from(scores, (_, id) => pieceOf(step.trace, id)));
  const shares = ops.softmax(scores, scores.length, mask);
  const terms = Array.from(scores, (x, k) => ({ label: keys[k] ?? String(k + 1), a: x, b: mask?.[k] === 0 ? 0 : Math.exp(x), value: shares[k]! }));
  const sum = terms.reduce((sofar, term) => sofar + term.b, 0);
  const chosen = terms[col];
  const line = mask?.[col] === 0
    ? "Masked: excluded from the sum, weight exactly 0."
    : `e^${p(chosen?.a ?? NaN)} / sum of all = ${n(chosen?.b ?? NaN)} / ${n(sum)} = ${n(shares[col] ?? NaN)}`;
  return { lines: [line], terms, columns: ["token", "score", "e^score", "weight"], mark: col };
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
  const mask = step.node.inputs[1] ? await inputData(step, 1) : null;
  const size = width(x);
  const how = String(step.node.attrs.how).split("+")[Math.floor(col / size)];
  const kept = Array.from({ length: x.shape[0]! }, (_, t) => t).filter((t) => !mask || mask[t]);
  const values = kept.map((t) => x.data[t * size + (col % size)]!);
  const tokens = pieces(step, inputNode(step, 0), 0);
  if (how === "mean") return weightedSum("token", values, values.length, kept.map((t) => tokens[t]!));
  if (how === "first") return lines(`The vector of the first token, feature ${col}: ${n(values[0] ?? NaN)}.`);
  const largest = Math.max(...values);
  return lines(`The maximum over ${kept.length} tokens, at “${visible(tokens[kept[values.indexOf(largest)] ?? 0])}”, ${n(largest)}.`);
}
