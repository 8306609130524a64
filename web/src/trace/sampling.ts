/**
 * The effect of sampling parameters on one distribution: temperature, then top-k, top-p and min-p, as in
 * glassformer/decode/sampling.py. Every filter sees the same probabilities (after the temperature), and ties are
 * broken by the lower id.
 */
import { softmax } from "../tensors/walk";
import type { DecodeSettings, Manifest } from "../types";
import { hasSource } from "./generation";

/** A temperature of 0 is greedy; a top-k of 0, a top-p of 1 and a min-p of 0 change nothing. */
export type SamplingParams = Pick<DecodeSettings, "temperature" | "top_k" | "top_p" | "min_p">;

interface Bar {
  id: number;
  /** The probability of the model. */
  before: number;
  /** The probability for sampling: 0 when a filter drops it. */
  after: number;
  /** The first filter that drops it. */
  dropped: "suppressed" | "greedy" | "min-p" | "top-k" | "top-p" | null;
}

export interface Filtered {
  bars: Bar[]; // most probable first
  /** All the tokens that have no bar. */
  rest: { n: number; before: number; after: number };
  /** Number of tokens that can be sampled. */
  nKept: number;
  exact: boolean;
}

export const NEUTRAL: SamplingParams = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };
export const KNOBS = Object.keys(NEUTRAL) as (keyof SamplingParams)[];
export const isNeutral = (sampling: SamplingParams): boolean => KNOBS.every((knob) => sampling[knob] === NEUTRAL[knob]);

/** As the address holds them. */
export const samplingText = (sampling: SamplingParams) => KNOBS.map((knob) => sampling[knob]).join(",");

/** From all V logits of a position: `show` bars, the rest summed. */
export function filterAll(logits: readonly number[], sampling: SamplingParams, suppressed: readonly number[], show: number): Filtered {
  const before = softmax(logits);
  const tempered = softmax(logits.map((logit, id) => (suppressed.includes(id) ? -Infinity : logit)), sampling.temperature);
  const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  const least = sampling.min_p * Math.max(...tempered);
  let rank = 0;
  let cumulative = 0; // by the tokens before this one
  const droppedBy = (id: number): Bar["dropped"] => {
    if (suppressed.includes(id)) return "suppressed";
    const p = tempered[id]!;
    const [place, share] = [rank++, cumulative];
    cumulative += p;
    if (sampling.temperature === 0) return p ? null : "greedy";
    if (p < least) return "min-p";
    if (sampling.top_k > 0 && place >= sampling.top_k) return "top-k";
    return sampling.top_p < 1 && place > 0 && share >= sampling.top_p ? "top-p" : null;
  };
  const bars = order.map((id): Bar => ({ id, before: before[id]!, after: tempered[id]!, dropped: droppedBy(id) }));
  const kept = bars.filter((bar) => bar.dropped === null);
  const total = sum(kept, "after");
  for (const bar of bars) bar.after = bar.dropped === null ? bar.after / total : 0;
  const rest = bars.slice(show);
  return {
    bars: bars.slice(0, show), nKept: kept.length, exact: true,
    rest: { n: rest.length, before: sum(rest, "before"), after: sum(rest, "after") },
  };
}

/**
 * From the largest logits of a position and the logsumexp of all V. The other tokens are assumed equally probable.
 * `exact` where that makes no difference: when all tokens that are kept are among the known ones.
 */
export function filterTop(
  top: readonly { id: number; logit: number }[], logsumexp: number, vocabSize: number, sampling: SamplingParams,
  suppressed: readonly number[], show: number,
): Filtered {
  const nUnknown = vocabSize - top.length;
  const known = new Set(top.map((one) => one.id));
  const mass = top.reduce((left, { logit }) => left - Math.exp(logit - logsumexp), 1);
  const level = Math.min(logsumexp + Math.log(Math.max(mass, 1e-12) / nUnknown), top.at(-1)?.logit ?? 0);
  const logits = new Array<number>(vocabSize).fill(level);
  for (const { id, logit } of top) logits[id] = logit;
  const filtered = filterAll(logits, sampling, suppressed, show);
  const shares = sampling.top_p === 1 || (sampling.temperature === 1 && suppressed.every((id) => known.has(id)));
  const within = filtered.nKept < top.filter(({ id }) => !suppressed.includes(id)).length && shares;
  return { ...filtered, exact: nUnknown === 0 || isNeutral(sampling) || sampling.temperature === 0 || within };
}

const sum = (bars: readonly Bar[], field: "before" | "after"): number => bars.reduce((a, bar) => a + bar[field], 0);

/** The sampling parameters in the address, else those that a trace was decoded with. */
export function samplingOf({ decode: { settings: { temperature, top_k, top_p, min_p }, kind }, streams }: Manifest, text = ""): SamplingParams {
  const given = text.split(",").map(Number);
  if (given.length === KNOBS.length && given.every((x) => x >= 0)) return { temperature: given[0]!, top_k: given[1]!, top_p: given[2]! || 1, min_p: given[3]! };
  return !hasSource({ streams }) || kind === "sample" ? { temperature, top_k, top_p, min_p } : NEUTRAL;
}
