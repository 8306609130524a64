/**
 * The operations of a forward pass in float64. `operations.ts` fetches their inputs. Shapes as in the table of
 * `sites.ts`.
 */

export type Numbers = ArrayLike<number>;
type Typed = Float32Array | Float64Array | Int32Array | Uint8Array;

const at = (x: Numbers, i: number): number => x[i]!;

/** x (L, n) Wᵀ + b, for W (m, n): (L, m). */
export function linear(x: Numbers, weight: Numbers, bias: Numbers | null, n: number): Float64Array {
  const [rows, m] = [x.length / n, weight.length / n];
  const out = new Float64Array(rows * m);
  for (let r = 0; r < rows; r++) {
    for (let o = 0; o < m; o++) {
      let sum = bias ? at(bias, o) : 0;
      for (let i = 0; i < n; i++) sum += (x[r * n + i] as number) * (weight[o * n + i] as number);
      out[r * m + o] = sum;
    }
  }
  return out;
}

/** (A, B, E) to (B, A, E): splits or concatenates heads; with E = 1 transposes a matrix. */
export function swapAxes(x: Numbers, a: number, b: number, width: number): Float64Array {
  return Float64Array.from(x, (_, i) => {
    const [e, row, group] = [i % width, Math.floor(i / width) % a, Math.floor(i / width / a)];
    return at(x, (row * b + group) * width + e);
  });
}

function perHead(x: Typed, y: Typed, heads: number, one: (x: Typed, y: Typed) => Float64Array): number[] {
  const part = (all: Typed, h: number) => all.subarray((h * all.length) / heads, ((h + 1) * all.length) / heads);
  return Array.from({ length: heads }, (_, h) => [...one(part(x, h), part(y, h))]).flat();
}

/** q (H, Q, E) kᵀ per head, for k (H, K, E): (H, Q, K). */
export const dot = (q: Typed, k: Typed, heads: number, width: number) =>
  perHead(q, k, heads, (q, k) => linear(q, k, null, width));

/** weights (H, Q, K) · v (H, K, E): (H, Q, E). */
export const mixValues = (weights: Typed, v: Typed, heads: number, keys: number) =>
  perHead(weights, v, heads, (weights, v) => linear(weights, swapAxes(v, keys, v.length / keys, 1), null, keys));

/** Over rows of `cols`; `mask` (repeated) is 0 for masked keys. A fully masked row gives zeros. */
export function softmax(scores: Numbers, cols: number, mask: Numbers | null = null): Float64Array {
  const out = new Float64Array(scores.length);
  for (let start = 0; start < scores.length; start += cols) {
    const seen = (c: number) => !mask || at(mask, (start + c) % mask.length) !== 0;
    let peak = -Infinity;
    for (let c = 0; c < cols; c++) if (seen(c)) peak = Math.max(peak, at(scores, start + c));
    let total = 0;
    for (let c = 0; c < cols; c++) {
      if (seen(c)) total += out[start + c] = Math.exp(at(scores, start + c) - peak);
    }
    if (total > 0) for (let c = 0; c < cols; c++) out[start + c]! /= total;
  }
  return out;
}

/** Mean and biased variance of one row; if not `centred`, the mean of squares. */
export function moments(row: Numbers, centred: boolean): { mean: number; variance: number } {
  const average = (of: (x: number) => number) => Array.from(row, of).reduce((sum, x) => sum + x, 0) / row.length;
  const mean = centred ? average((x) => x) : 0;
  return { mean, variance: average((x) => (x - mean) ** 2) };
}

/** Layer norm, or RMS norm if not `centred`, over rows of `n`. */
export function normalise(x: Typed, n: number, eps: number, weight: Numbers | null, bias: Numbers | null, centred: boolean): Float64Array {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += n) {
    const { mean, variance } = moments(x.subarray(start, start + n), centred);
    for (let i = 0; i < n; i++) {
      out[start + i] = ((at(x, start + i) - mean) / Math.sqrt(variance + eps)) * (weight ? at(weight, i) : 1) + (bias ? at(bias, i) : 0);
    }
  }
  return out;
}

/** The rotary angle of feature j of a head, and the feature (with its sign) it is paired with. */
export function rotation(j: number, width: number, position: number, base: number) {
  const half = width / 2;
  return { angle: position * base ** ((-2 * (j % half)) / width), partner: (j + half) % width, sign: j < half ? -1 : 1 };
}

/** x (H, L, E), positions from `first` on. */
export function rotate(x: Numbers, length: number, width: number, base: number, first: number): Float64Array {
  return Float64Array.from(x, (value, i) => {
    const j = i % width;
    const { angle, partner, sign } = rotation(j, width, first + (Math.floor(i / width) % length), base);
    return value * Math.cos(angle) + sign * at(x, i - j + partner) * Math.sin(angle);
  });
}

/** One number of the paper's section 3.5. */
export function sinusoid(position: number, feature: number, width: number): number {
  const angle = position / 10000 ** ((feature - (feature % 2)) / width);
  return feature % 2 ? Math.cos(angle) : Math.sin(angle);
}

/** The standard normal distribution function, by a series of positive terms, without cancellation. */
export function normalShare(x: number): number {
  if (Math.abs(x) > 8) return Number(x > 0);
  let [term, sum] = [x, 0];
  for (let n = 1; n < 200; n++) {
    sum += term;
    term *= (x * x) / (2 * n + 1);
  }
  return 0.5 + (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
}

export const relu = (x: number) => Math.max(0, x);
export const gelu = (x: number) => x * normalShare(x);
export const geluTanh = (x: number) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
export const silu = (x: number) => x / (1 + Math.exp(-x));

const POOLS: Record<string, (values: number[]) => number> = {
  mean: (values) => values.reduce((sum, x) => sum + x, 0) / values.length,
  max: (values) => Math.max(...values),
  first: ([x]) => x!,
};

/** x (L, D) to one vector, over the positions where `real` is not 0; "mean+max" concatenates both. */
export function pool(x: Numbers, width: number, how: string, real: Numbers | null): number[] {
  const kept = Array.from({ length: x.length / width }, (_, t) => t).filter((t) => !real || at(real, t) !== 0);
  const column = (i: number) => kept.map((t) => at(x, t * width + i));
  return how.split("+").flatMap((name) => Array.from({ length: width }, (_, i) => (kept.length ? (POOLS[name]?.(column(i)) ?? NaN) : 0)));
}
