/**
 * Checks a step: recomputes it in float64 by the table of operations (`operations.ts`) and compares the result with the model's values. Of logits
 * over a vocabulary only the candidates shown are checked.
 */
import { type Numbers, softmax, TooMuch } from "../tensors/walk";
import { BLOCKED, magnitude, sliceOffsets, type TensorValue } from "../tensors/tensor";
import type { Manifest, Prediction, TraceNode } from "../types";
import { editsOf } from "./edits";
import { recompute as recomputed } from "./operations";
import { isGradient } from "./steps";
import { inputData, requireParam, param, predictionAt, PROBABILITIES, type TensorReader, rowOf, type Step, Unavailable } from "./stepData";

export interface CheckResult {
  state: "ok" | "bad" | "unavailable";
  /** Largest difference; null where it could not be computed. */
  delta: number | null;
  /** What was compared, or why nothing could be. */
  words: string;
}

/** The largest difference; Infinity where one value is NaN. */
function maxDifference(a: Numbers, b: Numbers): number {
  let largest = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = a[i] === b[i] || (a[i]! < -BLOCKED && b[i]! < -BLOCKED) ? 0 : Math.abs(a[i]! - b[i]!);
    if (!(difference <= largest)) largest = Number.isNaN(difference) ? Infinity : difference;
  }
  return largest;
}

/** Rounding error of 16-bit floats, relative and absolute. */
const [F16_RELATIVE, F16_ABSOLUTE] = [2 ** -11, 2 ** -25];

/** A few roundings of 32-bit floats, in sums of products that cancel as gradients do. */
const F32_RELATIVE = 2 ** -21;

/** A copy with every float perturbed by its rounding error, in pseudorandom directions: 16-bit floats, or all of them. */
function perturbed(value: TensorValue, all: boolean): TensorValue {
  const [relative, absolute] = value.dtype === "f16" ? [F16_RELATIVE, F16_ABSOLUTE] : value.dtype === "f32" && all ? [F32_RELATIVE, 0] : [0, 0];
  if (!relative) return value;
  const data = Float32Array.from(value.data, (x, i) => x + (Math.abs(x) * relative + absolute) * (Math.sin(i * 12.9898) * 43758.5453 % 1 > 0 ? 1 : -1));
  return { ...value, data };
}

/**
 * Recomputes a step and compares. `position` selects the row of logits over a vocabulary. Values may differ by rounding:
 * by 1e-4 of the largest, or, with the 16-bit floats of a saved page, by what perturbing those by their rounding error
 * changes. A gradient may be a small difference of large numbers: there perturbing 32-bit floats counts, too.
 */
export async function checkNode(trace: Manifest, node: TraceNode, position: number, source: TensorReader): Promise<CheckResult> {
  let isF16 = false;
  const get: Step["get"] = async (id, slice) => {
    try {
      const value = await source.tensor(trace.id, id, slice);
      isF16 ||= value.dtype === "f16";
      return value;
    } catch (error) {
      throw new Unavailable(source.live ? (error as Error).message : `the tensor ${id} is not in this saved page`);
    }
  };
  try {
    const comparison = comparisonOf(trace, node, position);
    const shown = await comparison.shown(get);
    const recompute = async (read: Step["get"]) => withEdits(trace, node, await comparison.recompute(read), shown, read);
    const computed = await recompute(get);
    const words = [comparison.words, editWords(trace, node), isF16 && "from values saved as 16-bit floats"].filter(Boolean).join(", ");
    if (computed.length !== shown.length) {
      return { state: "bad", delta: Infinity, words: `expected ${computed.length} values, got ${shown.length}` };
    }
    const [delta, largest] = [maxDifference(computed, shown), magnitude(shown)];
    const ofGradient = isGradient(node);
    const rounding = isF16 || ofGradient ? 4 * maxDifference(computed, await recompute(async (id, slice) => perturbed(await get(id, slice), ofGradient))) : 0;
    const allowed = rounding + (isF16 ? 2 * (largest * F16_RELATIVE + F16_ABSOLUTE) : 1e-4 * largest);
    return { state: delta <= allowed ? "ok" : "bad", delta, words };
  } catch (error) {
    if (error instanceof Unavailable || error instanceof TooMuch) return { state: "unavailable", delta: null, words: error.message };
    throw error;
  }
}

/** What scores of blocked keys are set to: the lowest 32-bit float, halved. */
const BLOCKED_SCORE = -(2 - 2 ** -23) * 2 ** 126;

/** The recomputed values of a step with its edits, as the forward pass used them. */
async function withEdits(trace: Manifest, node: TraceNode, values: Numbers, shown: Numbers, get: Step["get"]): Promise<Numbers> {
  const edits = editsOf(trace, node.id);
  if (!edits.length) return values;
  if (node.axes.at(-1)?.name === "vocab") throw new Unavailable("the logits were edited");
  const edited = Float64Array.from(values);
  for (const { slice, kind, number, source } of edits) {
    const from = kind === "skip" ? (await get(source)).data : kind === "B" || kind === "mean" ? shown : null;
    for (const i of sliceOffsets(node.axes.map((axis) => axis.size), node.axes.map((axis) => axis.name), slice)) {
      edited[i] = from ? from[i]! : kind === "scale" ? edited[i]! * number : kind === "set" ? number : BLOCKED_SCORE;
    }
  }
  return edited;
}

function editWords(trace: Manifest, node: TraceNode): string {
  const kinds = editsOf(trace, node.id).map((edit) => edit.kind);
  return kinds.includes("B") ? "except the values of the second text" : kinds.includes("mean") ? "except the means of reference texts" : kinds.length ? "with what you set" : "";
}

/** What to recompute and what to compare it with: all values of a step, or the candidates of one prediction. */
function comparisonOf(trace: Manifest, node: TraceNode, position: number) {
  type Get = Step["get"];
  const isProbabilities = node.id === PROBABILITIES;
  if (!isProbabilities && (node.axes.at(-1)?.name !== "vocab" || node.op !== "linear")) {
    return { recompute: (get: Get) => recomputed({ trace, node, get }), shown: async (get: Get) => (await get(node.id)).data, words: "" };
  }
  const prediction = predictionAt(trace, position);
  if (!prediction) throw new Unavailable("there is no prediction here");
  const row = prediction.position === null ? "" : `token:${rowOf(trace, prediction)}`;
  const shown = prediction.top.map((one) => (isProbabilities ? Math.exp(one.log_prob) : one.logit));
  const recompute = (get: Get): Promise<Numbers> => (isProbabilities ? candidateProbabilities : candidateLogits)({ trace, node, get }, prediction, row);
  return { recompute, shown: async () => shown, words: `the ${shown.length} candidates shown` };
}

/** The probabilities of one prediction's candidates. */
async function candidateProbabilities(step: Step, { top }: Prediction, row: string): Promise<number[]> {
  const all = (await step.get("logits", row)).data;
  const found = softmax(all);
  return top.map((one) => found[one.id]!);
}

async function candidateLogits(step: Step, { top }: Prediction, row: string): Promise<number[]> {
  const x = await inputData(step, 0, row);
  const ids = top.map((one) => one.id).sort((a, b) => a - b); // as slices require
  const [weight, bias] = [await requireParam(step, "weight", ids), await param(step, "bias", ids)];
  const dot = (row: number) => Array.prototype.reduce.call(x, (sum, one, i) => (sum as number) + (one as number) * weight[row * x.length + i]!, bias?.[row] ?? 0) as number;
  return top.map((one) => dot(ids.indexOf(one.id)));
}
