/**
 * The page checks what it shows: fetches the inputs of a node, computes the operation again in float64 (`ops.ts`)
 * and compares with the numbers that the model made. Large logits are checked for the candidates shown.
 */
import * as ops from "./ops";
import type { Source } from "./source";
import type { TensorValue } from "./tensor";
import type { Manifest, Prediction, TraceNode } from "./types";

export interface CheckResult {
  state: "ok" | "bad" | "unavailable";
  /** Largest difference; null when it could not be computed. */
  delta: number | null;
  /** What was compared, or why nothing was. */
  words: string;
}

/** The last step has no node: probabilities are computed from the logits here. */
export const PROBABILITIES = "probabilities";

class Unavailable extends Error {}

export type Fetch = (id: string, slice?: string) => Promise<TensorValue>;

/** Candidates of one position as a slice: ids ascending; one id is written as a range, which keeps the axis. */
export function idsSlice(axis: string, ids: readonly number[]): string {
  return ids.length === 1 ? `${axis}:${ids[0]}-${(ids[0] ?? 0) + 1}` : `${axis}:${ids.join(".")}`;
}

const sizeOf = (node: TraceNode, name: string) => node.axes.find((axis) => axis.name === name)?.size ?? 1;

function same(computed: ArrayLike<number>, shown: ArrayLike<number>, halves: boolean): CheckResult {
  if (computed.length !== shown.length) {
    return { state: "bad", delta: Infinity, words: `${computed.length} numbers were computed, ${shown.length} are shown` };
  }
  let [delta, largest] = [0, 1];
  for (let i = 0; i < shown.length; i++) {
    const [a, b] = [computed[i] ?? NaN, shown[i] ?? NaN];
    largest = Math.max(largest, Math.abs(b));
    const apart = a === b ? 0 : Math.abs(a - b);
    if (!(apart <= delta)) delta = Number.isNaN(apart) ? Infinity : apart;
  }
  const tolerance = (halves ? 5e-3 : 1e-4) * largest;
  return { state: delta <= tolerance ? "ok" : "bad", delta, words: halves ? "from numbers saved with three digits" : "" };
}

/** Everything `node` computes, again. `position` chooses the row of large logits. */
export async function checkNode(trace: Manifest, node: TraceNode, position: number, source: Source): Promise<CheckResult> {
  let halves = false;
  const fetch: Fetch = async (id, slice) => {
    let value: TensorValue;
    try {
      value = await source.tensor(trace.id, id, slice);
    } catch (error) {
      throw new Unavailable(source.live ? (error as Error).message : `the numbers of ${id} did not fit into this saved page`);
    }
    halves ||= value.dtype === "f16";
    return value;
  };
  try {
    if (node.id === PROBABILITIES) return same(...await probabilities(trace, position, fetch), halves);
    if (node.id === "logits" && node.op === "linear") return await largeLogits(trace, node, position, fetch, () => halves);
    const computed = await recompute(trace, node, fetch);
    const shown = await fetch(node.id);
    return same(computed, shown.data, halves);
  } catch (error) {
    if (error instanceof Unavailable) return { state: "unavailable", delta: null, words: error.message };
    throw error;
  }
}

export function predictionAt(trace: Manifest, position: number): Prediction | undefined {
  return trace.predictions.find((one) => one.position === position) ?? trace.predictions[0];
}

/** Position on the token axis of tensors: a window begins later. */
export const rowOf = (trace: Manifest, prediction: Prediction) => (prediction.position ?? 0) - (trace.window?.[0] ?? 0);

async function probabilities(trace: Manifest, position: number, fetch: Fetch): Promise<[number[], number[]]> {
  const prediction = predictionAt(trace, position);
  if (!prediction) throw new Unavailable("there is no prediction here");
  const shown = prediction.top.map((one) => Math.exp(one.log_prob));
  const slice = prediction.position === null ? undefined : `token:${rowOf(trace, prediction)}`;
  const all = prediction.position === null ? prediction.top.map((one) => one.logit) : (await fetch("logits", slice)).data;
  const total = ops.logsumexp(all);
  return [prediction.top.map((one) => Math.exp(one.logit - total)), shown];
}

async function largeLogits(trace: Manifest, node: TraceNode, position: number, fetch: Fetch, halves: () => boolean): Promise<CheckResult> {
  const prediction = predictionAt(trace, position);
  if (!prediction) throw new Unavailable("there is no prediction here");
  const input = await fetch(node.inputs[0] ?? "", prediction.position === null ? undefined : `token:${rowOf(trace, prediction)}`);
  const top = [...prediction.top].sort((a, b) => a.id - b.id);
  const rows = async (id: string | undefined) =>
    id ? (await fetch(id, idsSlice(trace.params[id]?.axes[0]?.name ?? "out", top.map((one) => one.id)))).data : null;
  const weight = await rows(node.params.weight);
  if (!weight) throw new Unavailable("the weight is not named");
  const computed = ops.linear(input.data, weight, await rows(node.params.bias), input.data.length);
  return { ...same(computed, top.map((one) => one.logit), halves()), words: `the ${top.length} candidates shown` };
}

/** Keys outside a window are not here, so sums over them cannot be made again. */
function needAllKeys(trace: Manifest) {
  if (trace.window) throw new Unavailable("only a window of this long text is here, and this sum runs over all of it");
}

async function recompute(trace: Manifest, node: TraceNode, fetch: Fetch): Promise<ArrayLike<number>> {
  const input = async (i: number) => (await fetch(node.inputs[i] ?? "")).data;
  const param = async (role: string) => (node.params[role] ? (await fetch(node.params[role])).data : null);
  const needed = async (role: string) => {
    const value = await param(role);
    if (!value) throw new Unavailable(`the ${role} is not named`);
    return value;
  };
  const width = node.axes.at(-1)?.size ?? 1;
  const heads = sizeOf(node, "head");
  const first = Number(node.attrs.first ?? 0) + (trace.window?.[0] ?? 0);
  switch (node.op) {
    case "ids": {
      const ids = trace.streams.find((one) => one.name === node.axes[0]?.stream)?.ids ?? [];
      const start = trace.window?.[0] ?? 0;
      return ids.slice(start, start + (node.axes[0]?.size ?? 0));
    }
    case "lookup": {
      const ids = Array.from(await input(0));
      const unique = [...new Set(ids)].sort((a, b) => a - b);
      const weight = node.params.weight ?? "";
      const rows = (await fetch(weight, idsSlice(trace.params[weight]?.axes[0]?.name ?? "vocab", unique))).data;
      const found = new Map(unique.map((id, row) => [id, row * width]));
      return Float64Array.from({ length: ids.length * width }, (_, i) =>
        rows[(found.get(ids[Math.floor(i / width)] ?? -1) ?? NaN) + (i % width)] ?? NaN);
    }
    case "scale": {
      const factor = Number(node.attrs.factor);
      return Float64Array.from(await input(0), (x) => x * factor);
    }
    case "positions": {
      const length = node.axes[0]?.size ?? 0;
      if (node.params.weight) return (await needed("weight")).slice(first * width, (first + length) * width);
      if (node.attrs.scheme !== "sinusoidal") throw new Unavailable(`the page does not know the scheme ${node.attrs.scheme}`);
      return Float64Array.from({ length: length * width }, (_, i) => ops.sinusoid(first + Math.floor(i / width), i % width, width));
    }
    case "add": {
      const [a, b] = [await input(0), await input(1)];
      return Float64Array.from(a, (x, i) => x + (b[i] ?? NaN));
    }
    case "layer_norm":
      return ops.layerNorm(await input(0), await param("weight"), await param("bias"), Number(node.attrs.eps), width);
    case "rms_norm":
      return ops.rmsNorm(await input(0), await param("weight"), Number(node.attrs.eps), width);
    case "linear": {
      const x = await fetch(node.inputs[0] ?? "");
      return ops.linear(x.data, await needed("weight"), await param("bias"), x.shape.at(-1) ?? 1);
    }
    case "split_heads":
      return ops.splitHeads(await input(0), heads, width);
    case "rotate":
      return ops.rotate(await input(0), sizeOf(node, "token"), width, Number(node.attrs.base), first);
    case "dot": {
      const q = await fetch(node.inputs[0] ?? "");
      return ops.dot(q.data, await input(1), heads, q.shape.at(-1) ?? 1);
    }
    case "mask":
      return maskAgain(trace, node);
    case "softmax":
      needAllKeys(trace);
      return ops.softmax(await input(0), width, node.inputs[1] ? await input(1) : null);
    case "mix": {
      needAllKeys(trace);
      const weights = await fetch(node.inputs[0] ?? "");
      return ops.mixValues(weights.data, await input(1), heads, weights.shape.at(-1) ?? 1);
    }
    case "concat_heads": {
      const x = await fetch(node.inputs[0] ?? "");
      return ops.concatHeads(x.data, x.shape[0] ?? 1, x.shape.at(-1) ?? 1);
    }
    case "relu":
      return Float64Array.from(await input(0), ops.relu);
    case "gelu":
      return Float64Array.from(await input(0), ops.gelu);
    case "swiglu": {
      const [gate, x] = [await input(0), await input(1)];
      return Float64Array.from(x, (value, i) => ops.silu(gate[i] ?? NaN) * value);
    }
    case "pool": {
      needAllKeys(trace);
      const x = await fetch(node.inputs[0] ?? "");
      return ops.pool(x.data, x.shape.at(-1) ?? 1, String(node.attrs.how), node.inputs[1] ? await input(1) : null);
    }
    case "pin_zero":
      return [0, ...(await input(0))];
  }
}

function maskAgain(trace: Manifest, node: TraceNode): Float64Array {
  const keys = node.axes.at(-1);
  const [rows, cols] = [node.axes.length > 1 ? (node.axes.at(-2)?.size ?? 1) : 1, keys?.size ?? 0];
  const start = trace.window?.[0] ?? 0;
  const padding = trace.streams.find((one) => one.name === keys?.stream)?.padding ?? [];
  if (node.attrs.kind !== "causal" && node.attrs.kind !== "padding") throw new Unavailable("this mask was given to the model from outside");
  return Float64Array.from({ length: rows * cols }, (_, i) => {
    const [row, col] = [Math.floor(i / cols), i % cols];
    return Number(node.attrs.kind === "causal" ? col <= row : !padding[start + col]);
  });
}
