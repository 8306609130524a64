/**
 * The last step of a classifier, taken apart exactly: what each token's final vector adds to a logit.
 *
 * It is arithmetic, not an explanation: through attention each of those vectors has already read the others.
 */

export interface Contributions {
  /** One number a token; with the bias they sum to the logit. */
  tokens: number[];
  bias: number;
  logit: number;
}

/**
 * Args: x (L, D) row by row, what is pooled; real: which tokens take part; how: the pooling;
 * w: D numbers (2D for "mean+max"); bias.
 *
 * A mean gives w·x_t / n to token t. Of a maximum, each feature belongs to the token that holds it.
 */
export function contributions(
  x: ArrayLike<number>, real: readonly boolean[], how: string, w: ArrayLike<number>, bias: number,
): Contributions {
  const n = real.length;
  const d = n === 0 ? 0 : x.length / n;
  const tokens = new Array<number>(n).fill(0);
  const first = how === "first" ? 0 : -1;
  const nReal = Math.max(1, real.filter(Boolean).length);
  const addMean = (offset: number): void => {
    for (let t = 0; t < n; t++) {
      if (!real[t]) continue;
      let dot = 0;
      for (let j = 0; j < d; j++) dot += w[offset + j]! * x[t * d + j]!;
      tokens[t]! += dot / nReal;
    }
  };
  const addMax = (offset: number): void => {
    for (let j = 0; j < d; j++) {
      let holder = -1;
      for (let t = 0; t < n; t++) if (real[t] && (holder < 0 || x[t * d + j]! > x[holder * d + j]!)) holder = t;
      if (holder >= 0) tokens[holder]! += w[offset + j]! * x[holder * d + j]!;
    }
  };
  if (first === 0 && real[0]) {
    for (let j = 0; j < d; j++) tokens[0]! += w[j]! * x[j]!;
  } else if (how === "mean") addMean(0);
  else if (how === "max") addMax(0);
  else if (how === "mean+max") {
    addMean(0);
    addMax(d);
  }
  return { tokens, bias, logit: bias + tokens.reduce((a, b) => a + b, 0) };
}

/** Softmax of logits divided by a temperature; 0 puts everything on the first of the largest. */
export function softmax(logits: readonly number[], temperature = 1): number[] {
  const peak = Math.max(...logits);
  if (temperature === 0) return logits.map((_, i) => (i === logits.indexOf(peak) ? 1 : 0));
  const e = logits.map((z) => Math.exp((z - peak) / temperature));
  const total = e.reduce((a, b) => a + b, 0);
  return e.map((v) => v / total);
}
