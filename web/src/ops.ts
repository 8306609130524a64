/**
 * Every operation of a forward pass again, in float64, from arrays alone. These are the formulas that the Step
 * screen shows; `check.ts` fetches their inputs and compares. Shapes as in the table of `types.ts`.
 */
export type Numbers = ArrayLike<number>;

const at = (x: Numbers, i: number): number => x[i] ?? NaN;

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

/** q (H, Q, E) kᵀ per head, for k (H, K, E): (H, Q, K). */
export function dot(q: Numbers, k: Numbers, heads: number, width: number): Float64Array {
  const [rows, cols] = [q.length / (heads * width), k.length / (heads * width)];
  const out = new Float64Array(heads * rows * cols);
  for (let h = 0; h < heads; h++) {
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < cols; c++) {
        let sum = 0;
        const [a, b] = [(h * rows + r) * width, (h * cols + c) * width];
        for (let e = 0; e < width; e++) sum += (q[a + e] as number) * (k[b + e] as number);
        out[(h * rows + r) * cols + c] = sum;
      }
    }
  }
  return out;
}

/** weights (H, Q, K) · v (H, K, E): (H, Q, E). */
export function mixValues(weights: Numbers, v: Numbers, heads: number, keys: number): Float64Array {
  const [rows, width] = [weights.length / (heads * keys), v.length / (heads * keys)];
  const out = new Float64Array(heads * rows * width);
  for (let h = 0; h < heads; h++) {
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < keys; c++) {
        const weight = at(weights, (h * rows + r) * keys + c);
        for (let e = 0; e < width; e++) {
          out[(h * rows + r) * width + e]! += weight * at(v, (h * keys + c) * width + e);
        }
      }
    }
  }
  return out;
}

/** Over rows of `cols`; `mask` (repeated) is 0 where nothing may be seen. A row with no key gives zeros. */
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

export function logsumexp(x: Numbers): number {
  let peak = -Infinity;
  for (let i = 0; i < x.length; i++) peak = Math.max(peak, at(x, i));
  let total = 0;
  for (let i = 0; i < x.length; i++) total += Math.exp(at(x, i) - peak);
  return peak + Math.log(total);
}

/** Mean and biased variance of one row. */
export function moments(x: Numbers, start: number, n: number): { mean: number; variance: number; meanSquare: number } {
  let [sum, squares] = [0, 0];
  for (let i = 0; i < n; i++) sum += at(x, start + i);
  const mean = sum / n;
  let variance = 0;
  for (let i = 0; i < n; i++) {
    variance += (at(x, start + i) - mean) ** 2;
    squares += at(x, start + i) ** 2;
  }
  return { mean, variance: variance / n, meanSquare: squares / n };
}

export function layerNorm(x: Numbers, weight: Numbers | null, bias: Numbers | null, eps: number, n: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += n) {
    const { mean, variance } = moments(x, start, n);
    const scale = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < n; i++) {
      out[start + i] = (at(x, start + i) - mean) * scale * (weight ? at(weight, i) : 1) + (bias ? at(bias, i) : 0);
    }
  }
  return out;
}

export function rmsNorm(x: Numbers, weight: Numbers | null, eps: number, n: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += n) {
    const scale = 1 / Math.sqrt(moments(x, start, n).meanSquare + eps);
    for (let i = 0; i < n; i++) out[start + i] = at(x, start + i) * scale * (weight ? at(weight, i) : 1);
  }
  return out;
}

/** (L, H·E) to (H, L, E): feature h·E + e goes to head h. */
export function splitHeads(x: Numbers, heads: number, width: number): Float64Array {
  const length = x.length / (heads * width);
  const out = new Float64Array(x.length);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < length; t++) {
      for (let e = 0; e < width; e++) out[(h * length + t) * width + e] = at(x, (t * heads + h) * width + e);
    }
  }
  return out;
}

/** (H, L, E) to (L, H·E). */
export function concatHeads(x: Numbers, heads: number, width: number): Float64Array {
  const length = x.length / (heads * width);
  const out = new Float64Array(x.length);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < length; t++) {
      for (let e = 0; e < width; e++) out[(t * heads + h) * width + e] = at(x, (h * length + t) * width + e);
    }
  }
  return out;
}

/** Angle by which rotary positions turn the pair (j, j + E/2). */
export const rotaryAngle = (position: number, j: number, width: number, base: number) =>
  position * base ** (-2 * (j % (width / 2)) / width);

/** x (H, L, E), positions from `first` on. */
export function rotate(x: Numbers, length: number, width: number, base: number, first: number): Float64Array {
  const out = new Float64Array(x.length);
  const half = width / 2;
  for (let start = 0; start < x.length; start += width) {
    const position = first + ((start / width) % length);
    for (let j = 0; j < width; j++) {
      const angle = rotaryAngle(position, j, width, base);
      const partner = j < half ? -at(x, start + j + half) : at(x, start + j - half);
      out[start + j] = at(x, start + j) * Math.cos(angle) + partner * Math.sin(angle);
    }
  }
  return out;
}

/** One number of the paper's section 3.5. */
export function sinusoid(position: number, feature: number, width: number): number {
  const angle = position / 10000 ** ((feature - (feature % 2)) / width);
  return feature % 2 ? Math.cos(angle) : Math.sin(angle);
}

/** Error function to about 1e-12: a series near 0, a continued fraction in the tail. */
export function erf(x: number): number {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let [term, sum] = [size, size];
    for (let n = 1; n < 60 && Math.abs(term) > 1e-17; n++) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + fraction));
}

export const relu = (x: number) => Math.max(0, x);
export const gelu = (x: number) => 0.5 * x * (1 + erf(x / Math.SQRT2));
export const silu = (x: number) => x / (1 + Math.exp(-x));

/** x (L, D) to one vector, over the positions where `real` is not 0. */
export function pool(x: Numbers, width: number, how: string, real: Numbers | null): Float64Array {
  const length = x.length / width;
  const kept = Array.from({ length }, (_, t) => t).filter((t) => !real || at(real, t) !== 0);
  const mean = new Float64Array(width);
  const peak = new Float64Array(width);
  for (let i = 0; i < width; i++) {
    for (const t of kept) mean[i]! += at(x, t * width + i) / kept.length;
    peak[i] = kept.length ? Math.max(...kept.map((t) => at(x, t * width + i))) : 0;
  }
  if (how === "mean") return mean;
  if (how === "max") return peak;
  if (how === "mean+max") return Float64Array.from([...mean, ...peak]);
  return Float64Array.from({ length: width }, (_, i) => (kept[0] === 0 ? at(x, i) : 0)); // "first"
}
