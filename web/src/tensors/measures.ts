/**
 * Measures of attention heads, each between 0 and 1: normalised entropy, weight on the previous token, weight on the
 * diagonal. Each is a mean over the queries with more than one possible key. Of a difference of weights only the largest
 * change is one.
 */
import { at, type Grid, mayAttend } from "./grid";
import { magnitude } from "./tensor";

export type Measure = "entropy" | "previous" | "diagonal" | "change";

/** The applicable measures: cross-attention has no previous token, and the rows of a difference are no distributions. */
export const measuresOf = (cross: boolean, difference = false): [name: Measure, label: string, meaning: string][] => difference ? [
  ["change", "change", "The largest change of a weight, in either direction."],
] : [
  ["entropy", "entropy", "Normalized entropy of a row: 0 when all weight is on one token, 1 when it is uniform."],
  ...(cross ? [] : [["previous", "previous token", "Mean weight of each token on the token before it."] satisfies [Measure, string, string]]),
  ["diagonal", "diagonal", `Mean weight ${cross ? "within one token of the same relative position" : "of each token on itself"}.`],
];

const mean = (values: number[]): number | null => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

/** Mean over rows of −Σ w ln w / ln(number of keys the row may attend to); rows with one such key are skipped. */
export function entropy(weights: Grid, mask: Grid | null, queries: number[]): number | null {
  return mean(queries.flatMap((row) => {
    let keys = 0;
    let nats = 0;
    for (let col = 0; col < weights.cols; col++) {
      if (!mayAttend(mask, row, col)) continue;
      keys += 1;
      const weight = at(weights, row, col);
      if (weight > 0) nats -= weight * Math.log(weight);
    }
    return keys < 2 ? [] : nats / Math.log(keys);
  }));
}

/** Mean of w[q, q − 1] over the queries that have a token before them. */
export function previousTokenShare(weights: Grid, queries: number[]): number | null {
  return mean(queries.filter((row) => row >= 1).map((row) => at(weights, row, row - 1)));
}

/**
 * Mean weight within `halfWidth` keys of the diagonal, which runs from corner to corner: at query q it is at key
 * q·(K − 1)/(Q − 1).
 */
export function diagonality(weights: Grid, queries: number[], halfWidth: number): number | null {
  const slope = weights.rows > 1 ? (weights.cols - 1) / (weights.rows - 1) : 0;
  return mean(queries.map((row) => {
    let sum = 0;
    for (let col = 0; col < weights.cols; col++) {
      if (Math.abs(col - row * slope) <= halfWidth + 1e-9) sum += at(weights, row, col);
    }
    return sum;
  }));
}

/** One measure of one head; null where no row has more than one possible key. */
export function measure(name: Measure, weights: Grid, mask: Grid | null, queries: number[], cross: boolean): number | null {
  if (name === "change") return magnitude(weights.data);
  if (name === "entropy") return entropy(weights, mask, queries);
  return name === "previous" ? previousTokenShare(weights, queries) : diagonality(weights, queries, cross ? 1 : 0);
}
