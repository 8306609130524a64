/**
 * The page checks what it shows: computes a step again in float64 (`operations.ts`) and compares with the numbers
 * that the model made. Of logits over a vocabulary the candidates shown are checked.
 */
import * as ops from "./ops";
import { OPERATIONS } from "./operations";
import type { Source } from "./source";
import { data, needed, param, predictionAt, PROBABILITIES, rowOf, Unavailable, type Step } from "./stepData";
import type { Manifest, Prediction, TraceNode } from "./types";

export interface CheckResult {
  state: "ok" | "bad" | "unavailable";
  /** Largest difference; null when it could not be computed. */
  delta: number | null;
  /** What was compared, or why nothing was. */
  words: string;
}

function compare(computed: ops.Numbers, shown: ops.Numbers, halves: boolean, words: string): CheckResult {
  if (computed.length !== shown.length) {
    return { state: "bad", delta: Infinity, words: `${computed.length} numbers were computed, ${shown.length} are shown` };
  }
  let [delta, largest] = [0, 1];
  for (let i = 0; i < shown.length; i++) {
    const [a, b] = [computed[i]!, shown[i]!];
    largest = Math.max(largest, Math.abs(b));
    const apart = a === b ? 0 : Math.abs(a - b);
    if (!(apart <= delta)) delta = Number.isNaN(apart) ? Infinity : apart;
  }
  return { state: delta <= (halves ? 5e-3 : 1e-4) * largest ? "ok" : "bad", delta, words };
}

/** Everything `node` computes, again. `position` chooses the row of large logits. */
export async function checkNode(trace: Manifest, node: TraceNode, position: number, source: Source): Promise<CheckResult> {
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
  const step: Step = { trace, node, get };
  const probabilities = node.id === PROBABILITIES;
  try {
    if (!probabilities && node.axes.at(-1)?.name !== "vocab") {
      const computed = await OPERATIONS[node.op].again(step);
      return compare(computed, (await get(node.id)).data, halves, halves ? "from numbers saved with three digits" : "");
    }
    const prediction = predictionAt(trace, position);
    if (!prediction) throw new Unavailable("there is no prediction here");
    const row = prediction.position === null ? "" : `token:${rowOf(trace, prediction)}`;
    const computed = await (probabilities ? shares : logits)(step, prediction, row);
    const shown = prediction.top.map((one) => (probabilities ? Math.exp(one.log_prob) : one.logit));
    return compare(computed, shown, halves, `the ${shown.length} candidates shown`);
  } catch (error) {
    if (error instanceof Unavailable) return { state: "unavailable", delta: null, words: error.message };
    throw error;
  }
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
