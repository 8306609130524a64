/**
 * The last step of a classifier, taken apart exactly: what each token's final vector adds to a logit.
 *
 * It is arithmetic, not an explanation: through attention each of those vectors has already read the others.
 */
import * as ops from "./ops";

export interface Contributions {
  /** One number a token; with the bias they sum to the logit. */
  tokens: number[];
  bias: number;
  logit: number;
  /** All that was added up, without signs: what rounding can change is a share of it. */
  size: number;
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

/** Softmax of logits divided by a temperature; 0 puts everything on the first of the largest. */
export function softmax(logits: readonly number[], temperature = 1): number[] {
  const best = logits.indexOf(Math.max(...logits));
  if (temperature === 0) return logits.map((_, i) => Number(i === best));
  return [...ops.softmax(logits.map((z) => z / temperature), logits.length)];
}
