/**
 * What sampling does to one position's distribution: temperature, then top-k, top-p and min-p.
 *
 * The same rules as `glassformer/decode/sampling.py`: every filter looks at the same probabilities (after the
 * temperature), and of equal tokens the lower id goes first. Drawing anything is elsewhere.
 */

export interface Knobs {
  temperature: number; // 0: greedy
  topK: number; // 0: off
  topP: number; // 1: off
  minP: number; // 0: off
}

/** [low, high]: equal when the number is exact. */
export type Range = readonly [number, number];

export interface Bar {
  id: number;
  /** The model's own probability. */
  before: number;
  /** After the temperature, before the filters. */
  heated: Range;
  /** What it is drawn with: 0 when a filter drops it. */
  after: Range;
  /** null: the tokens that are not known decide it. */
  kept: boolean | null;
  /** The first filter, in the order of the code, that drops it. */
  dropped: "never written" | "min-p" | "top-k" | "top-p" | "greedy" | null;
}

export interface Filtered {
  bars: Bar[]; // most probable first
  /** All the tokens that have no bar. */
  rest: { n: number; before: number; heated: Range; after: Range };
  /** How many tokens can be drawn; null where the unknown tokens decide it. */
  nKept: number | null;
  exact: boolean;
}

const EVERYTHING: Knobs = { temperature: 1, topK: 0, topP: 1, minP: 0 };
export const isNeutral = (knobs: Knobs): boolean =>
  (Object.keys(EVERYTHING) as (keyof Knobs)[]).every((key) => knobs[key] === EVERYTHING[key]);

/** From all V logits of a position: every number exact. `show` bars, the rest summed up. */
export function filterAll(logits: ArrayLike<number>, knobs: Knobs, banned: readonly number[], show: number): Filtered {
  const n = logits.length;
  const order = Array.from({ length: n }, (_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  const peak = logits[order[0]!]!;
  let total = 0;
  for (let id = 0; id < n; id++) total += Math.exp(logits[id]! - peak);
  const known = order.map((id) => ({ id, logit: logits[id]! }));
  return filter(known, peak + Math.log(total), 0, knobs, banned, show);
}

/**
 * From the best tokens of a position and the logsumexp of all V: exact at temperature 1, and otherwise between
 * bounds, because how the rest of the probability spreads over the unknown tokens is not known.
 */
export function filterTop(
  top: readonly { id: number; logit: number }[], logsumexp: number, vocabSize: number, knobs: Knobs,
  banned: readonly number[], show: number,
): Filtered {
  return filter(top, logsumexp, Math.max(0, vocabSize - top.length), knobs, banned, show);
}

function filter(
  known: readonly { id: number; logit: number }[], logsumexp: number, nUnknown: number, knobs: Knobs,
  banned: readonly number[], show: number,
): Filtered {
  const before = known.map(({ logit }) => Math.exp(logit - logsumexp));
  const isBanned = new Set(banned);
  const allowed = known.map(({ id }) => !isBanned.has(id));
  const nBannedUnknown = nUnknown === 0 ? 0 : banned.length - allowed.filter((ok) => !ok).length;
  const massUnknown = nUnknown === 0 ? 0 : Math.max(0, 1 - sum(before));
  if (knobs.temperature === 0) return greedy(known, before, allowed, nUnknown, massUnknown, show);

  // Masses relative to the model's own normaliser; each scenario of the unknown mass gives one normaliser.
  const power = 1 / knobs.temperature;
  const heated = known.map(({ logit }, i) => (allowed[i] ? Math.exp((logit - logsumexp) * power) : 0));
  const unknown = unknownMass(massUnknown, before.at(-1) ?? 0, nUnknown, nBannedUnknown, power);
  const scenarios = unknown.map((mass) => scenario(heated, allowed, mass, nUnknown - nBannedUnknown, knobs));
  const [a, b] = [scenarios[0]!, scenarios[1]!];
  const range = (x: number, y: number): Range => [Math.min(x, y), Math.max(x, y)];
  const bars: Bar[] = known.slice(0, show).map(({ id }, i) => {
    const dropped = a.dropped[i] ?? b.dropped[i]!;
    const after = range(a.after[i]![0], b.after[i]![0]);
    const wide = range(a.after[i]![1], b.after[i]![1]);
    return {
      id, before: before[i]!, heated: range(a.heated[i]!, b.heated[i]!),
      after: [Math.min(after[0], wide[0]), Math.max(after[1], wide[1])],
      kept: (a.dropped[i] === null) === (b.dropped[i] === null) ? a.dropped[i] === null : null, dropped,
    };
  });
  const restOf = (values: readonly number[]): number => sum(values.slice(show));
  const lows = [a, b].map((s) => restOf(s.after.map((r) => Math.min(...r))) + s.restAfter[0]);
  const highs = [a, b].map((s) => restOf(s.after.map((r) => Math.max(...r))) + s.restAfter[1]);
  const nKept = a.nKept === b.nKept ? a.nKept : null;
  return {
    bars, nKept, exact: nUnknown === 0 || (unknown[0] === unknown[1] && a.nKept !== null),
    rest: {
      n: nUnknown + Math.max(0, known.length - show), before: massUnknown + restOf(before),
      heated: range(restOf(a.heated) + a.restHeated, restOf(b.heated) + b.restHeated),
      after: [Math.min(...lows), Math.max(...highs)],
    },
  };
}

interface Scenario {
  heated: number[];
  dropped: Bar["dropped"][];
  after: Range[]; // a range still, where the filters may keep some of the unknown tokens or all
  restHeated: number;
  restAfter: Range;
  nKept: number | null;
}

/** The filters, were the unknown tokens that may be written, nUnknown of them, to hold `mass`. */
function scenario(heated: number[], allowed: boolean[], mass: number, nUnknown: number, knobs: Knobs): Scenario {
  const total = sum(heated) + mass;
  const p = heated.map((x) => x / total);
  const threshold = knobs.minP * Math.max(...p);
  let held = 0; // by the allowed tokens before this one
  let place = 0;
  const dropped = p.map((x, i): Bar["dropped"] => {
    if (!allowed[i]) return "never written";
    const [rank, share] = [place++, held];
    held += x;
    if (knobs.minP > 0 && x < threshold) return "min-p";
    if (knobs.topK > 0 && rank >= knobs.topK) return "top-k";
    return knobs.topP < 1 && rank > 0 && share >= knobs.topP ? "top-p" : null;
  });
  // Unknown tokens are no more probable than the last known one: what drops that one drops them.
  const last = dropped.lastIndexOf(null);
  const lastAllowed = allowed.lastIndexOf(true);
  const none = nUnknown <= 0 || mass === 0 || last < lastAllowed || (knobs.topK > 0 && place >= knobs.topK)
    || (knobs.topP < 1 && held >= knobs.topP);
  const all = !none && knobs.topK === 0 && knobs.topP === 1 && knobs.minP === 0;
  const rest = mass / total;
  const restKept: Range = none ? [0, 0] : all ? [rest, rest] : [0, rest];
  const keptMass = sum(p.filter((_, i) => dropped[i] === null));
  return {
    heated: p, dropped, restHeated: rest,
    after: p.map((x, i) =>
      dropped[i] === null ? [x / (keptMass + restKept[1]), x / (keptMass + restKept[0])] : [0, 0],
    ),
    restAfter: [restKept[0] / (keptMass + restKept[0]), restKept[1] / (keptMass + restKept[1])],
    nKept: none ? dropped.filter((d) => d === null).length : all ? dropped.filter((d) => d === null).length + nUnknown : null,
  };
}

/**
 * Between what the n unknown tokens, which hold `mass` at temperature 1 and at most `most` each, can hold after
 * raising each probability to `power`. Spread evenly and gathered in as few as possible are the two extremes
 * (x ** power is convex or concave). Banned ones among them hold nothing.
 */
export function unknownMass(mass: number, most: number, n: number, nBanned: number, power: number): [number, number] {
  if (n <= 0 || mass <= 0) return [0, 0];
  const bannedMass = Math.min(mass, nBanned * most);
  if (power === 1) return nBanned ? [mass - bannedMass, mass] : [mass, mass];
  const spread = n * (mass / n) ** power;
  const gathered = most > 0 ? (mass / most) * most ** power : spread;
  const low = Math.min(spread, gathered) - nBanned * most ** power;
  return [Math.max(0, low), Math.max(spread, gathered)];
}

function greedy(
  known: readonly { id: number }[], before: number[], allowed: boolean[], nUnknown: number, massUnknown: number,
  show: number,
): Filtered {
  const best = allowed.indexOf(true);
  const bars = known.slice(0, show).map(({ id }, i): Bar => {
    const p = i === best ? 1 : 0;
    const dropped = i === best ? null : allowed[i] ? "greedy" : "never written";
    return { id, before: before[i]!, heated: [p, p], after: [p, p], kept: i === best, dropped };
  });
  const n = nUnknown + Math.max(0, known.length - show);
  return {
    bars, nKept: 1, exact: true,
    rest: { n, before: massUnknown + sum(before.slice(show)), heated: [0, 0], after: [0, 0] },
  };
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
