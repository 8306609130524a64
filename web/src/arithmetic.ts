/**
 * How one number came about: the products that add up to it, or the few lines of its formula, from a node's
 * real inputs. Only the rows and columns needed are fetched.
 */
import * as ops from "./ops";
import { predictionAt, PROBABILITIES, rowOf } from "./check";
import { count, number, visible } from "./format";
import type { Source } from "./source";
import type { TensorValue } from "./tensor";
import type { Manifest, TraceNode } from "./types";

export interface Term {
  label: string;
  /** Factors, if it is a product. */
  a?: number;
  b?: number;
  value: number;
}

export interface Arithmetic {
  /** What is multiplied: names of label, a, b and value. */
  heads: [string, string, string, string];
  terms: Term[];
  /** Added after the terms: a bias. */
  extra: Term | null;
  /** The term that is the chosen cell's own. */
  mark?: number;
  /** Said before the terms or instead of them, one line each. */
  lines: string[];
  result: number;
}

export interface Cell {
  head: number;
  row: number;
  col: number;
  position: number;
}

const NO_HEADS: Arithmetic["heads"] = ["", "", "", ""];
const lines = (result: number, ...text: string[]): Arithmetic => ({ heads: NO_HEADS, terms: [], extra: null, lines: text, result });
const total = (terms: Term[]) => terms.reduce((sum, term) => sum + term.value, 0);
const n = (x: number) => number(x, 4);

/** In brackets where a sign would stand beside another. */
const p = (x: number) => (x < 0 ? `(${n(x)})` : n(x));

export async function arithmetic(trace: Manifest, node: TraceNode, cell: Cell, source: Source): Promise<Arithmetic> {
  const get = (id: string | undefined, slice = "") => source.tensor(trace.id, id ?? "", slice);
  const [a, b] = node.inputs;
  const { row, col, head } = cell;
  const axis = node.axes.at(-1)?.name ?? "feature";
  const rowAxis = node.axes.at(-2)?.name;
  const where = rowAxis ? `${node.axes.length === 3 ? `head:${head};` : ""}${rowAxis}:${row};` : "";
  const one = async (id: string | undefined): Promise<number> => (await get(id, `${where}${axis}:${col}`)).data[0] ?? NaN;
  const start = trace.window?.[0] ?? 0;
  const pieces = (name: string | undefined) => trace.streams.find((stream) => stream.name === name)?.pieces.slice(start) ?? [];
  switch (node.op) {
    case "ids": {
      const id = (await get(node.id)).data[col] ?? NaN;
      return lines(id, `“${visible(pieces(node.axes[0]?.stream)[col] ?? "")}” is number ${id} of the ${count(trace.model.vocab_size)} tokens of the vocabulary.`);
    }
    case "lookup": {
      const id = (await get(a)).data[row] ?? NaN;
      const value = await one(node.id);
      return lines(value, `Row ${id} of the embedding table, feature ${col}: ${n(value)}.`);
    }
    case "scale": {
      const [x, factor] = [await one(a), Number(node.attrs.factor)];
      return lines(x * factor, `${n(x)} · ${n(factor)} = ${n(x * factor)}`);
    }
    case "positions": {
      if (node.params.weight) return lines(await one(node.id), `Row ${row + start} of the trained position table, feature ${col}.`);
      const width = node.axes.at(-1)?.size ?? 1;
      const even = col - (col % 2);
      const value = ops.sinusoid(row + start, col, width);
      return lines(value, `${col % 2 ? "cos" : "sin"}(${row + start} / 10000^(${even}/${width})) = ${col % 2 ? "cos" : "sin"}(${n((row + start) / 10000 ** (even / width))}) = ${n(value)}`);
    }
    case "add": {
      const [x, y] = [await one(a), await one(b)];
      return lines(x + y, `${n(x)} + ${p(y)} = ${n(x + y)}`);
    }
    case "layer_norm": case "rms_norm":
      return normed(node, await get(a, where.slice(0, -1)), col, get);
    case "linear":
      return linearCell(trace, node, cell, get);
    case "split_heads": case "concat_heads": {
      const value = await one(node.id);
      const width = trace.model.d_head;
      return node.op === "split_heads"
        ? lines(value, `Feature ${head}·${width} + ${col} = ${head * width + col} of the token's vector, unchanged: ${n(value)}`)
        : lines(value, `Head ${Math.floor(col / width) + 1}, its feature ${col % width}, unchanged: ${n(value)}`);
    }
    case "rotate":
      return rotated(node, (await get(a, where.slice(0, -1))).data, row + start + Number(node.attrs.first ?? 0), col);
    case "dot": {
      const [q, k] = [await get(a, `head:${head};token:${row}`), await get(b, `head:${head};token:${col}`)];
      const terms = Array.from(q.data, (x, e) => ({ label: String(e), a: x, b: k.data[e] ?? NaN, value: x * (k.data[e] ?? NaN) }));
      return { heads: ["feature", "query", "key", "product"], terms, extra: null, lines: [], result: total(terms) };
    }
    case "mask": {
      const value = (await get(node.id, where + `${axis}:${col}`)).data[0] ?? NaN;
      return lines(value, value ? "May be looked at." : "May not be looked at: its weight will be exactly 0.");
    }
    case "softmax":
      return node.id === PROBABILITIES ? probabilityCell(trace, cell) : softmaxCell(trace, node, cell, get);
    case "mix": {
      const weights = await get(a, `head:${head};token:${row}`);
      const values = await get(b, `head:${head};head_feature:${col}`);
      const keys = pieces(trace.nodes.find((other) => other.id === b)?.axes[1]?.stream);
      const terms = Array.from(weights.data, (x, k) => ({ label: keys[k] ?? String(k), a: x, b: values.data[k] ?? NaN, value: x * (values.data[k] ?? NaN) }));
      return { heads: ["token", "weight", "value", "product"], terms, extra: null, lines: [], result: total(terms) };
    }
    case "relu": {
      const x = await one(a);
      return lines(ops.relu(x), `max(0, ${n(x)}) = ${n(ops.relu(x))}`);
    }
    case "gelu": {
      const x = await one(a);
      return lines(ops.gelu(x), `${n(x)} · Φ(${n(x)}) = ${n(x)} · ${p(0.5 * (1 + ops.erf(x / Math.SQRT2)))} = ${n(ops.gelu(x))}`);
    }
    case "swiglu": {
      const [gate, x] = [await one(a), await one(b)];
      return lines(ops.silu(gate) * x, `SiLU(${n(gate)}) · ${p(x)} = ${n(ops.silu(gate))} · ${p(x)} = ${n(ops.silu(gate) * x)}`);
    }
    case "pool":
      return pooledCell(node, col, await get(a), b ? await get(b) : null, pieces(trace.nodes.find((other) => other.id === a)?.axes[0]?.stream));
    case "pin_zero": {
      const score = (await get(a)).data[0] ?? NaN;
      return col === 0 ? lines(0, "Fixed at 0: only the difference between the two logits matters.") : lines(score, `The score itself: ${n(score)}`);
    }
  }
}

type Get = (id: string | undefined, slice?: string) => Promise<TensorValue>;

async function normed(node: TraceNode, x: TensorValue, col: number, get: Get): Promise<Arithmetic> {
  const { mean, variance, meanSquare } = ops.moments(x.data, 0, x.data.length);
  const eps = Number(node.attrs.eps);
  const gamma = node.params.weight ? ((await get(node.params.weight)).data[col] ?? 1) : 1;
  const value = x.data[col] ?? NaN;
  if (node.op === "rms_norm") {
    const result = (value / Math.sqrt(meanSquare + eps)) * gamma;
    return lines(result, `Over the ${x.data.length} features of this token: root mean square ${n(Math.sqrt(meanSquare))}.`, `${n(value)} / ${n(Math.sqrt(meanSquare + eps))} · ${p(gamma)} = ${n(result)}`);
  }
  const beta = node.params.bias ? ((await get(node.params.bias)).data[col] ?? 0) : 0;
  const result = ((value - mean) / Math.sqrt(variance + eps)) * gamma + beta;
  return lines(
    result, `Over the ${x.data.length} features of this token: mean μ = ${n(mean)}, variance σ² = ${n(variance)}.`,
    `(${n(value)} − ${p(mean)}) / √(${n(variance)} + ${number(eps)}) · ${p(gamma)} + ${p(beta)} = ${n(result)}`,
  );
}

async function linearCell(trace: Manifest, node: TraceNode, cell: Cell, get: Get): Promise<Arithmetic> {
  const vocab = node.axes.at(-1)?.name === "vocab";
  const prediction = vocab ? predictionAt(trace, cell.position) : undefined;
  const out = prediction ? (prediction.top[cell.col]?.id ?? 0) : cell.col;
  const row = prediction ? rowOf(trace, prediction) : cell.row;
  const x = await get(node.inputs[0], node.axes.length > 1 ? `token:${row}` : "");
  const role = (id: string | undefined) => (id ? get(id, `${trace.params[id]?.axes[0]?.name ?? "out"}:${out}`) : null);
  const weight = await role(node.params.weight);
  const bias = await role(node.params.bias);
  const terms = Array.from(x.data, (value, i) => ({ label: String(i), a: value, b: weight?.data[i] ?? NaN, value: value * (weight?.data[i] ?? NaN) }));
  const extra = bias ? { label: "bias b", value: bias.data[0] ?? 0 } : null;
  return { heads: ["feature", "x", "weight", "product"], terms, extra, lines: [], result: total(terms) + (extra?.value ?? 0) };
}

function rotated(node: TraceNode, x: ArrayLike<number>, position: number, j: number): Arithmetic {
  const half = x.length / 2;
  const angle = ops.rotaryAngle(position, j, x.length, Number(node.attrs.base));
  const [own, partner] = [x[j] ?? NaN, j < half ? -(x[j + half] ?? NaN) : (x[j - half] ?? NaN)];
  const result = own * Math.cos(angle) + partner * Math.sin(angle);
  return lines(
    result, `Position ${position}, feature ${j} paired with ${j < half ? j + half : j - half}: angle ${n(angle)} radians.`,
    `${n(own)} · cos ${n(angle)} ${j < half ? "−" : "+"} ${p(j < half ? -partner : partner)} · sin ${n(angle)} = ${n(result)}`,
  );
}

async function softmaxCell(trace: Manifest, node: TraceNode, { head, row, col }: Cell, get: Get): Promise<Arithmetic> {
  const scores = (await get(node.inputs[0], `head:${head};token:${row}`)).data;
  const maskNode = trace.nodes.find((other) => other.id === node.inputs[1]);
  const mask = maskNode ? (await get(maskNode.id, maskNode.axes.length > 1 && (maskNode.axes.at(-2)?.size ?? 1) > 1 ? `token:${row}` : "")).data : null;
  const start = trace.window?.[0] ?? 0;
  const keys = trace.streams.find((stream) => stream.name === node.axes.at(-1)?.stream)?.pieces.slice(start) ?? [];
  const shares = ops.softmax(scores, scores.length, mask);
  const terms = Array.from(scores, (x, k) => ({ label: keys[k] ?? String(k), a: x, b: mask && !mask[k] ? 0 : Math.exp(x), value: shares[k] ?? NaN }));
  const sum = terms.reduce((sofar, term) => sofar + term.b, 0);
  const chosen = terms[col];
  const masked = mask && !mask[col];
  return {
    heads: ["token", "score", "e^score", "share"], terms, extra: null, mark: col, result: shares[col] ?? NaN,
    lines: [masked ? "Masked: left out of the sum, weight exactly 0." : `e^${p(chosen?.a ?? NaN)} / sum of all = ${n(chosen?.b ?? NaN)} / ${n(sum)} = ${n(shares[col] ?? NaN)}`],
  };
}

function probabilityCell(trace: Manifest, { position, col }: Cell): Arithmetic {
  const prediction = predictionAt(trace, position);
  const one = prediction?.top[col];
  if (!prediction || !one) return lines(NaN);
  const result = Math.exp(one.logit - prediction.logsumexp);
  return lines(
    result, `The logarithm of the sum of e^logit over all ${prediction.position === null ? "classes" : `${count(trace.model.vocab_size)} tokens`} is ${n(prediction.logsumexp)}.`,
    `e^(${n(one.logit)} − ${p(prediction.logsumexp)}) = ${n(result)}`,
  );
}

function pooledCell(node: TraceNode, col: number, x: TensorValue, mask: TensorValue | null, tokens: string[]): Arithmetic {
  const width = x.shape.at(-1) ?? 1;
  const how = node.attrs.how === "mean+max" ? (col < width ? "mean" : "max") : String(node.attrs.how);
  const feature = col % width;
  const kept = Array.from({ length: x.shape[0] ?? 0 }, (_, t) => t).filter((t) => !mask || mask.data[t]);
  const value = (t: number) => x.data[t * width + feature] ?? NaN;
  if (how === "mean") {
    const terms = kept.map((t) => ({ label: tokens[t] ?? String(t), a: value(t), b: 1 / kept.length, value: value(t) / kept.length }));
    return { heads: ["token", "value", "1/L", "share"], terms, extra: null, lines: [], result: total(terms) };
  }
  if (how === "first") return lines(value(0), `The vector of the first token, feature ${feature}.`);
  const best = kept.reduce((top, t) => (value(t) > value(top) ? t : top), kept[0] ?? 0);
  return lines(value(best), `The largest of ${kept.length}: that of “${visible(tokens[best] ?? "")}”, ${n(value(best))}.`);
}
