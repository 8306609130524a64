/**
 * The geometry of arcs between two columns of tokens, queries on the left and keys on the right: which weights are
 * worth a line, and the curve of each. It knows nothing of the page; `Arcs.tsx` draws it.
 */

import { at, mayAttend, type Grid } from "./grid";

export interface Arc {
  query: number;
  key: number;
  weight: number;
}

export interface ArcLayout {
  width: number;
  rowHeight: number;
  left: number; // x where the queries' labels end
  right: number; // x where the keys' labels begin
}

/**
 * For each query the heaviest `most` weights of at least `least`, lightest first so that heavy lines are drawn on top.
 * `share` is the part of all the weight that the returned arcs carry.
 */
export function heaviest(weights: Grid, mask: Grid | null, least: number, most: number): { arcs: Arc[]; share: number } {
  const arcs: Arc[] = [];
  let total = 0;
  let kept = 0;
  for (let query = 0; query < weights.rows; query++) {
    const row: Arc[] = [];
    for (let key = 0; key < weights.cols; key++) {
      const weight = at(weights, query, key);
      total += weight;
      if (weight >= least && mayAttend(mask, query, key)) row.push({ query, key, weight });
    }
    row.sort((a, b) => b.weight - a.weight || a.key - b.key);
    for (const arc of row.slice(0, most)) {
      arcs.push(arc);
      kept += arc.weight;
    }
  }
  arcs.sort((a, b) => a.weight - b.weight);
  return { arcs, share: total > 0 ? kept / total : 0 };
}

export function arcY(index: number, layout: ArcLayout): number {
  return (index + 0.5) * layout.rowHeight;
}

/** A smooth curve that leaves and arrives level. */
export function arcPath(arc: Arc, layout: ArcLayout): string {
  const bend = (layout.right - layout.left) * 0.45;
  const from = round(arcY(arc.query, layout));
  const to = round(arcY(arc.key, layout));
  return `M${layout.left},${from}C${round(layout.left + bend)},${from} ${round(layout.right - bend)},${to} ${layout.right},${to}`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
