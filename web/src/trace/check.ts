/**
 * The page checks what it shows: computes a step again in float64 (`operations.ts`) and compares with the numbers
 * that the model made. Of logits over a vocabulary the candidates shown are checked.
 */
import * as ops from "../tensors/ops";
import type { TensorValue } from "../tensors/tensor";
import type { Manifest, Prediction, TraceNode } from "../types";
import { OPERATIONS } from "./operations";
import { data, needed, param, predictionAt, PROBABILITIES, type Reads, rowOf, type Step, Unavailable } from "./stepData";

export interface CheckResult {
  state: "ok" | "bad" | "unavailable";
  /** Largest difference; null when it could not be computed. */
  delta: number | null;
  /** What was compared, or why nothing was. */
  words: string;
}

/** The largest difference; Infinity where one is no number. */
function apart(a: ops.Numbers, b: ops.Numbers): number {
  let most = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = a[i] === b[i] ? 0 : Math.abs(a[i]! - b[i]!);
    if (!(difference <= most)) most = Number.isNaN(difference) ? Infinity : difference;
  }
  return most;
}

/** How far a 16-bit number may be from the one it stands for, relatively, and at least where it is tiny. */
const [HALF, TINY] = [2 ** -11, 2 ** -25];

/** Every 16-bit number moved to one end of what it may stand for, this way or that. */
function moved(value: TensorValue): TensorValue {
  if (value.dtype !== "f16") return value;
  const data = Float32Array.from(value.data, (x, i) => x + (Math.abs(x) * HALF + TINY) * (Math.sin(i * 12.9898) * 43758.5453 % 1 > 0 ? 1 : -1));
  return { ...value, data };
}

/**
 * Everything `node` computes, again. `position` chooses the row of large logits. Numbers may differ by what rounding
 * does: a ten-thousandth of the largest, or, in a saved page, what comes out differently when its 16-bit numbers are
 * moved as far as they may be from those they stand for.
 */
export async function checkNode(trace: Manifest, node: TraceNode, position: number, source: Reads): Promise<CheckResult> {
  let halves = false;
  const get: Step["get"] = async (id, slice) => {
    try {
      const value = await source.tensor(trace.id, id, slice);
      halves ||= value.dtype === "f16";
      return value;
    } catch (error) {
      throw new Unavailable(source.live ? (error as Error).message : `the numbers of ${id} did not fit into this saved page`);
    }
  };
  try {
    const asked = questionOf(trace, node, position);
    const computed = await asked.again(get);
    const shown = await asked.shown(get);
    const words = asked.words || (halves ? "from numbers saved with three digits" : "");
    if (computed.length !== shown.length) {
      return { state: "bad", delta: Infinity, words: `${computed.length} numbers were computed, ${shown.length} are shown` };
    }
    const [delta, largest] = [apart(computed, shown), apart(shown, new Float64Array(shown.length))];
    const allowed = halves
      ? 4 * apart(computed, await asked.again(async (id, slice) => moved(await get(id, slice)))) + 2 * (largest * HALF + TINY)
      : 1e-4 * largest;
    return { state: delta <= allowed ? "ok" : "bad", delta, words };
  } catch (error) {
    if (error instanceof Unavailable) return { state: "unavailable", delta: null, words: error.message };
    throw error;
  }
}

/** What is computed again and what is shown: everything of a step, or the candidates of one prediction. */
function questionOf(trace: Manifest, node: TraceNode, position: number) {
  type Get = Step["get"];
  const probabilities = node.id === PROBABILITIES;
  if (!probabilities && node.axes.at(-1)?.name !== "vocab") {
    return { again: (get: Get) => OPERATIONS[node.op].again({ trace, node, get }), shown: async (get: Get) => (await get(node.id)).data, words: "" };
  }
  const prediction = predictionAt(trace, position);
  if (!prediction) throw new Unavailable("there is no prediction here");
  const row = prediction.position === null ? "" : `token:${rowOf(trace, prediction)}`;
  const shown = prediction.top.map((one) => (probabilities ? Math.exp(one.log_prob) : one.logit));
  const again = (get: Get): Promise<ops.Numbers> => (probabilities ? shares : logits)({ trace, node, get }, prediction, row);
  return { again, shown: async () => shown, words: `the ${shown.length} candidates shown` };
}

/** Of one prediction's candidates, in their order. */
async function shares(step: Step, { top }: Prediction, row: string): Promise<number[]> {
  const all = (await step.get("logits", row)).data;
  const found = ops.softmax(all, all.length);
  return top.map((one) => found[one.id]!);
}

async function logits(step: Step, { top }: Prediction, row: string): Promise<number[]> {
  const x = await data(step, 0, row);
  const ids = top.map((one) => one.id).sort((a, b) => a - b); // as a slice wants them
  const found = ops.linear(x, await needed(step, "weight", ids), await param(step, "bias", ids), x.length);
  return top.map((one) => found[ids.indexOf(one.id)]!);
}
