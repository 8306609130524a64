/**
 * Decomposes a classifier's logit into the contributions of the tokens' final vectors. Contributions are not
 * attributions: through attention each of these vectors depends on the other tokens.
 */
export interface Contributions {
  /** One value per token; with the bias they sum to the logit. */
  tokens: number[];
  bias: number;
  logit: number;
  /** The sum of absolute values, to which rounding errors are proportional. */
  size: number;
}

/**
 * Args: x (L, D) row by row, what is pooled; real: which tokens take part; how: the pooling;
 * w: D numbers (2D for "mean+max"); bias.
 *
 * A mean gives w·x_t / n to token t. For a maximum, each feature counts for the token with the largest value.
 */
export function contributions(
  x: ArrayLike<number>, real: readonly boolean[], how: string, w: ArrayLike<number>, bias: number,
): Contributions {
  const d = x.length / Math.max(1, real.length);
  const taking = real.flatMap((takesPart, t) => (takesPart && (how !== "first" || t === 0) ? [t] : []));
  const tokens = real.map(() => 0);
  let size = Math.abs(bias);
  const add = (t: number, value: number): void => {
    tokens[t]! += value;
    size += Math.abs(value);
  };
  for (let j = 0; j < d; j++) {
    const feature = (t: number): number => x[t * d + j]!;
    if (how !== "max") for (const t of taking) add(t, (w[j]! * feature(t)) / taking.length);
    if (how.includes("max") && taking.length) {
      const holder = taking.reduce((best, t) => (feature(t) > feature(best) ? t : best));
      add(holder, w[how === "max" ? j : d + j]! * feature(holder));
    }
  }
  return { tokens, bias, size, logit: bias + tokens.reduce((a, b) => a + b, 0) };
}
