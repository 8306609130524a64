/**
 * What sampling does to one position's distribution: temperature, then top-k, top-p and min-p.
 *
 * The same rules as `glassformer/decode/sampling.py`: every filter looks at the same probabilities (after the
 * temperature), and of equal tokens the lower id goes first. Drawing anything is elsewhere.
 */
import { softmax } from "./pooling";

export interface Knobs {
  temperature: number; // 0: greedy
  topK: number; // 0: off
  topP: number; // 1: off
  minP: number; // 0: off
}

export interface Bar {
  id: number;
  /** The model's own probability. */
  before: number;
  /** What it is drawn with: 0 when a filter drops it. */
  after: number;
  /** The first filter, in the order of the code, that drops it. */
  dropped: "never written" | "greedy" | "min-p" | "top-k" | "top-p" | null;
}

export interface Filtered {
  bars: Bar[]; // most probable first
  /** All the tokens that have no bar. */
  rest: { n: number; before: number; after: number };
  /** How many tokens can be drawn. */
  nKept: number;
  exact: boolean;
}

export const NEUTRAL: Knobs = { temperature: 1, topK: 0, topP: 1, minP: 0 };
export const isNeutral = (knobs: Knobs): boolean => (Object.keys(NEUTRAL) as (keyof Knobs)[]).every((knob) => knobs[knob] === NEUTRAL[knob]);

/** From all V logits of a position: every number exact. `show` bars, the rest summed up. */
export function filterAll(logits: readonly number[], knobs: Knobs, banned: readonly number[], show: number): Filtered {
  const before = softmax(logits);
  const heated = softmax(logits.map((logit, id) => (banned.includes(id) ? -Infinity : logit)), knobs.temperature);
  const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  const least = knobs.minP * Math.max(...heated);
  let rank = 0;
  let held = 0; // by the tokens before this one
  const why = (id: number): Bar["dropped"] => {
    if (banned.includes(id)) return "never written";
    const p = heated[id]!;
    const [place, share] = [rank++, held];
    held += p;
    if (knobs.temperature === 0) return p ? null : "greedy";
    if (p < least) return "min-p";
    if (knobs.topK > 0 && place >= knobs.topK) return "top-k";
    return knobs.topP < 1 && place > 0 && share >= knobs.topP ? "top-p" : null;
  };
  const bars = order.map((id): Bar => ({ id, before: before[id]!, after: heated[id]!, dropped: why(id) }));
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
 * From the best tokens of a position and the logsumexp of all V. What the others hold together is known; here each
 * holds the same. Exact wherever that cannot matter: when all that is kept is among the best ones.
 */
export function filterTop(
  top: readonly { id: number; logit: number }[], logsumexp: number, vocabSize: number, knobs: Knobs,
  banned: readonly number[], show: number,
): Filtered {
  const nUnknown = vocabSize - top.length;
  const known = new Set(top.map((one) => one.id));
  const mass = top.reduce((left, { logit }) => left - Math.exp(logit - logsumexp), 1);
  const level = Math.min(logsumexp + Math.log(Math.max(mass, 1e-12) / nUnknown), top.at(-1)?.logit ?? 0);
  const logits = new Array<number>(vocabSize).fill(level);
  for (const { id, logit } of top) logits[id] = logit;
  const filtered = filterAll(logits, knobs, banned, show);
  const shares = knobs.topP === 1 || (knobs.temperature === 1 && banned.every((id) => known.has(id)));
  const within = filtered.nKept < top.filter(({ id }) => !banned.includes(id)).length && shares;
  return { ...filtered, exact: nUnknown === 0 || isNeutral(knobs) || knobs.temperature === 0 || within };
}

const sum = (bars: readonly Bar[], field: "before" | "after"): number => bars.reduce((a, bar) => a + bar[field], 0);
