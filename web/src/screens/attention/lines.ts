/**
 * The geometry of lines between queries on the left and keys on the right: which weights get a line, and its curve.
 * Used by `Arcs.tsx` and `drawing.ts`.
 */
import { at, type Grid, mayAttend } from "../../tensors/grid";

export interface Arc {
  query: number;
  key: number;
  /** Negative only of a difference. */
  weight: number;
}

/** Each query gets lines for its `MAX_ARCS` largest weights of at least `MIN_WEIGHT`. */
export const MIN_WEIGHT = 0.03;
export const MAX_ARCS = 8;

/**
 * The `max` largest weights of at least `minWeight` of each query, in ascending order, so that large ones are drawn on top.
 * `share` is their fraction of all weight. Of differences it is the magnitude that counts, also in the share.
 */
export function largestArcs(weights: Grid, mask: Grid | null, minWeight = MIN_WEIGHT, max = MAX_ARCS): { arcs: Arc[]; share: number } {
  const size = ({ weight }: Arc) => Math.abs(weight);
  const sum = (some: Arc[]) => some.reduce((total, arc) => total + size(arc), 0);
  const all: Arc[] = [];
  const arcs: Arc[] = [];
  for (let query = 0; query < weights.rows; query++) {
    const row = Array.from({ length: weights.cols }, (_, key) => ({ query, key, weight: at(weights, query, key) }));
    all.push(...row);
    const heavy = row.filter((arc) => size(arc) >= minWeight && mayAttend(mask, query, arc.key));
    arcs.push(...heavy.sort((a, b) => size(b) - size(a)).slice(0, max));
  }
  return { arcs: arcs.sort((a, b) => size(a) - size(b)), share: sum(arcs) / (sum(all) || 1) };
}

/** The SVG attributes of a line: a horizontal-ended curve, with width and opacity by weight; dashed below 0. */
export function arcLine(arc: Arc, width: number, rowHeight: number, limit: number) {
  const [from, to] = [arc.query, arc.key].map((index) => (index + 0.5) * rowHeight);
  const bend = Math.round(width * 0.45);
  const share = Math.min(1, Math.abs(arc.weight) / limit);
  return {
    d: `M0,${from}C${bend},${from} ${width - bend},${to} ${width},${to}`,
    "stroke-width": (0.7 + 3.3 * share).toFixed(2),
    "stroke-opacity": (0.12 + 0.8 * share).toFixed(2),
    ...(arc.weight < 0 && { "stroke-dasharray": "5 3" }),
  };
}

/** What the lines show, in words; a share of weight only where all weights are positive. */
export function arcsInWords({ arcs, share }: ReturnType<typeof largestArcs>, difference: boolean): string {
  if (!difference) return `The ${MAX_ARCS} largest weights of at least ${MIN_WEIGHT * 100}% per query: ${Math.round(share * 100)}% of all weight. `;
  if (!arcs.length) return `No weight changes by ${MIN_WEIGHT * 100} percentage points or more. `;
  return `The ${MAX_ARCS} largest changes of at least ${MIN_WEIGHT * 100} percentage points per query; dashed where the weight falls. `;
}
