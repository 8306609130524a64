/**
 * Three numbers, each between 0 and 1, by which the heads of a model are put in order: how evenly a head spreads
 * its weight, how much of it lies on the token before, and how much on the diagonal. Each is a mean over the
 * queries that could have done otherwise; none says what a head is for.
 */
import { at, type Grid, mayAttend } from "./grid";

export type Measure = "entropy" | "previous" | "diagonal";

/**
 * Those that mean something: a token of one text has no token before it in another; and where keys are cut off, how
 * evenly a row is spread cannot be told, nor, in another text, where its diagonal is.
 */
export const measuresOf = (cross: boolean, cut = false): [name: Measure, label: string, meaning: string][] => [
  ...(cut ? [] : [["entropy", "entropy", "Entropy of a row over the most it could be: 0 when all the weight is on one token, 1 when it is spread evenly."] satisfies [Measure, string, string]]),
  ...(cross ? [] : [["previous", "previous token", "Mean weight a token gives to the token just before it."] satisfies [Measure, string, string]]),
  ...(cut && cross ? [] : [["diagonal", "diagonal", `Mean weight ${cross ? "within one token of the same relative place" : "of a token on itself"}.`] satisfies [Measure, string, string]]),
];

const mean = (values: number[]): number | null => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

/** Mean over rows of −Σ w ln w / ln(number of keys the row may attend to); a row with one such key has no choice. */
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
 * Mean weight within `halfWidth` keys of the diagonal. The diagonal of a Q × K matrix runs from corner to corner, so
 * that query q's place among the keys is q·(K − 1)/(Q − 1).
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

/** One measure of one head; null where no row has a choice. */
export function measure(name: Measure, weights: Grid, mask: Grid | null, queries: number[], cross: boolean): number | null {
  if (name === "entropy") return entropy(weights, mask, queries);
  return name === "previous" ? previousTokenShare(weights, queries) : diagonality(weights, queries, cross ? 1 : 0);
}
