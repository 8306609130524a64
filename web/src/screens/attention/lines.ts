/**
 * The geometry of lines between two columns of tokens, queries on the left and keys on the right: which weights are
 * worth a line, and the curve of each. `Arcs.tsx` puts them on the page, `drawing.ts` into a file.
 */
import { at, type Grid, mayAttend } from "../../tensors/grid";

export interface Arc {
  query: number;
  key: number;
  weight: number;
}

/** Of each token the heaviest `MOST` weights of at least `LEAST` get a line. */
export const LEAST = 0.03;
export const MOST = 8;

/**
 * For each query the heaviest `most` weights of at least `least`, lightest first so that heavy lines are drawn on top.
 * `share` is the part of all the weight that the returned arcs carry.
 */
export function heaviest(weights: Grid, mask: Grid | null, least = LEAST, most = MOST): { arcs: Arc[]; share: number } {
  const sum = (some: Arc[]) => some.reduce((total, arc) => total + arc.weight, 0);
  const all: Arc[] = [];
  const arcs: Arc[] = [];
  for (let query = 0; query < weights.rows; query++) {
    const row = Array.from({ length: weights.cols }, (_, key) => ({ query, key, weight: at(weights, query, key) }));
    all.push(...row);
    const heavy = row.filter(({ key, weight }) => weight >= least && mayAttend(mask, query, key));
    arcs.push(...heavy.sort((a, b) => b.weight - a.weight).slice(0, most));
  }
  return { arcs: arcs.sort((a, b) => a.weight - b.weight), share: sum(arcs) / (sum(all) || 1) };
}

/** A smooth curve that leaves and arrives level, and attributes that make it the thicker the heavier it is. */
export function arcLine(arc: Arc, width: number, rowHeight: number, limit: number) {
  const [from, to] = [arc.query, arc.key].map((index) => (index + 0.5) * rowHeight);
  const bend = Math.round(width * 0.45);
  const share = Math.min(1, arc.weight / limit);
  return {
    d: `M0,${from}C${bend},${from} ${width - bend},${to} ${width},${to}`,
    "stroke-width": (0.7 + 3.3 * share).toFixed(2),
    "stroke-opacity": (0.12 + 0.8 * share).toFixed(2),
  };
}
