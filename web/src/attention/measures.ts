/**
 * Three numbers, each between 0 and 1, by which the heads of a model are put in order: how evenly a head spreads
 * its weight, how much of it lies on the token before, and how much on the diagonal. Each is a mean over the
 * queries that could have done otherwise; none says what a head is for.
 */

import { at, mayAttend, type Grid } from "./grid";

export type Measure = "entropy" | "previous" | "diagonal";

export const MEASURES: { name: Measure; label: string; selfOnly: boolean; meaning: string }[] = [
  {
    name: "entropy",
    label: "entropy",
    selfOnly: false,
    meaning: "Entropy of each row over the most it could be: 0 when all the weight is on one token, 1 when it is spread evenly.",
  },
  {
    name: "previous",
    label: "previous token",
    selfOnly: true,
    meaning: "Mean weight a token gives to the token just before it.",
  },
  {
    name: "diagonal",
    label: "diagonal",
    selfOnly: false,
    meaning: "Mean weight on the diagonal: on the token itself, or, between two texts, within one token of the same relative place.",
  },
];

/** Mean over rows of −Σ w ln w / ln(number of keys the row may attend to); a row with one such key has no choice. */
export function entropy(weights: Grid, mask: Grid | null, queries: number[]): number | null {
  let sum = 0;
  let counted = 0;
  for (const row of queries) {
    let keys = 0;
    let nats = 0;
    for (let col = 0; col < weights.cols; col++) {
      if (!mayAttend(mask, row, col)) continue;
      keys += 1;
      const weight = at(weights, row, col);
      if (weight > 0) nats -= weight * Math.log(weight);
    }
    if (keys < 2) continue;
    sum += nats / Math.log(keys);
    counted += 1;
  }
  return counted === 0 ? null : sum / counted;
}

/** Mean of w[q, q − 1] over the queries that have a token before them. */
export function previousTokenShare(weights: Grid, queries: number[]): number | null {
  const rows = queries.filter((row) => row >= 1 && row - 1 < weights.cols);
  return rows.length === 0 ? null : rows.reduce((sum, row) => sum + at(weights, row, row - 1), 0) / rows.length;
}

/**
 * Mean weight within `halfWidth` keys of the diagonal. The diagonal of a Q × K matrix runs from corner to corner, so
 * that query q's place among the keys is q·(K − 1)/(Q − 1).
 */
export function diagonality(weights: Grid, queries: number[], halfWidth: number): number | null {
  if (queries.length === 0 || weights.cols === 0) return null;
  const slope = weights.rows > 1 ? (weights.cols - 1) / (weights.rows - 1) : 0;
  let sum = 0;
  for (const row of queries) {
    const centre = row * slope;
    const first = Math.max(0, Math.ceil(centre - halfWidth - 1e-9));
    const last = Math.min(weights.cols - 1, Math.floor(centre + halfWidth + 1e-9));
    for (let col = first; col <= last; col++) sum += at(weights, row, col);
  }
  return sum / queries.length;
}

/** One measure of one head; null where it has no meaning (no row with a choice, "previous" between two texts). */
export function measure(name: Measure, weights: Grid, mask: Grid | null, queries: number[], cross: boolean): number | null {
  switch (name) {
    case "entropy":
      return entropy(weights, mask, queries);
    case "previous":
      return cross ? null : previousTokenShare(weights, queries);
    case "diagonal":
      return diagonality(weights, queries, cross ? 1 : 0);
  }
}
