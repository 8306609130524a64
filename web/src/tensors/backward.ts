/**
 * The operations of a backward pass in float64, as `ops.ts` has those of a forward pass. g is the gradient of an
 * operation's result, x its input. Formulas as in `explain/learn/backward.py`.
 */
import { moments, normalShare, type Numbers, rotation, silu } from "./ops";

const at = (x: Numbers, i: number): number => x[i]!;
export const rotationOf = rotation;

/** Columns of g (L, n), added up over the rows. */
export function columnSums(g: Numbers, n: number): Float64Array {
  const out = new Float64Array(n);
  for (let i = 0; i < g.length; i++) out[i % n]! += at(g, i);
  return out;
}

/** gᵀ x for g (L, m) and x (L, n): (m, n). */
export function transposedProduct(g: Numbers, x: Numbers, m: number, n: number): Float64Array {
  const out = new Float64Array(m * n);
  for (let t = 0; t < g.length / m; t++) {
    for (let o = 0; o < m; o++) {
      const factor = at(g, t * m + o);
      if (factor) for (let i = 0; i < n; i++) out[o * n + i]! += factor * (x[t * n + i] as number);
    }
  }
  return out;
}

/** Each head's weightsᵀ x, for weights (H, Q, K) and x (H, Q, E): (H, K, E). */
export function transposedMix(weights: Numbers, x: Numbers, heads: number, keys: number): Float64Array {
  const queries = weights.length / heads / keys;
  const width = x.length / heads / queries;
  const part = (all: Numbers, h: number, size: number) => Array.prototype.slice.call(all, h * size, (h + 1) * size);
  const out = new Float64Array(heads * keys * width);
  for (let h = 0; h < heads; h++) {
    out.set(transposedProduct(part(weights, h, queries * keys), part(x, h, queries * width), keys, width), h * keys * width);
  }
  return out;
}

/** Rows of g (L, D), each added to the row of its id in a table of `rows`. */
export function scattered(ids: Numbers, g: Numbers, width: number, rows: number, isUsed: (id: number) => boolean): Float64Array {
  const out = new Float64Array(rows * width);
  for (let t = 0; t < ids.length; t++) {
    const id = at(ids, t);
    if (isUsed(id)) for (let i = 0; i < width; i++) out[id * width + i]! += at(g, t * width + i);
  }
  return out;
}

/** The gradient of each token, once for each of its n-grams (id 0: none), divided by their number for a mean. */
export function forEachNgram(ids: Numbers, g: Numbers, perToken: number, width: number, how: string): Float64Array {
  const out = new Float64Array(ids.length * width);
  for (let slot = 0; slot < ids.length; slot++) {
    const token = Math.floor(slot / perToken);
    let there = 0;
    for (let k = 0; k < perToken; k++) there += Number(at(ids, token * perToken + k) !== 0);
    for (let i = 0; i < width; i++) out[slot * width + i] = at(g, token * width + i) / (how === "mean" ? Math.max(1, there) : 1);
  }
  return out;
}

/** What the backward pass of a norm is computed from: of each row x̂, 1/σ, and the means of ĝ = g · w and of ĝ x̂. */
export interface NormRow {
  scale: number;
  mean: number;
  meanOfProducts: number;
  normalised: Float64Array;
}

export function normRow(x: Numbers, g: Numbers, weight: Numbers | null, eps: number, centred: boolean): NormRow {
  const { mean, variance } = moments(x, centred);
  const scale = 1 / Math.sqrt(variance + eps);
  const normalised = Float64Array.from(x, (one) => (one - mean) * scale);
  const weighted = Float64Array.from(g, (one, i) => one * (weight ? at(weight, i) : 1));
  const average = (of: (i: number) => number) => weighted.reduce((sum, _, i) => sum + of(i), 0) / weighted.length;
  return { scale, normalised, mean: centred ? average((i) => weighted[i]!) : 0, meanOfProducts: average((i) => weighted[i]! * normalised[i]!) };
}

const rowsOf = (x: Numbers, n: number) => Array.from({ length: x.length / n }, (_, t) => Array.prototype.slice.call(x, t * n, (t + 1) * n) as number[]);

/** (ĝ − mean ĝ − x̂ · mean(ĝ x̂)) / σ with ĝ = g · w; of an RMS norm without the mean. */
export function normBackward(x: Numbers, g: Numbers, weight: Numbers, n: number, eps: number, centred: boolean): Float64Array {
  const out = new Float64Array(x.length);
  const gradients = rowsOf(g, n);
  rowsOf(x, n).forEach((row, t) => {
    const { scale, mean, meanOfProducts, normalised } = normRow(row, gradients[t]!, weight, eps, centred);
    for (let i = 0; i < n; i++) out[t * n + i] = scale * (gradients[t]![i]! * at(weight, i) - mean - normalised[i]! * meanOfProducts);
  });
  return out;
}

/** Σ over tokens of g · x̂. */
export function normWeightBackward(x: Numbers, g: Numbers, n: number, eps: number, centred: boolean): Float64Array {
  const gradients = rowsOf(g, n);
  return columnSums(rowsOf(x, n).flatMap((row, t) => [...normRow(row, gradients[t]!, null, eps, centred).normalised].map((one, i) => one * gradients[t]![i]!)), n);
}

/** g (H, L, E) rotated by the negative angles. */
export function rotateBack(g: Numbers, length: number, width: number, base: number): Float64Array {
  return Float64Array.from(g, (value, i) => {
    const j = i % width;
    const { angle, partner, sign } = rotation(j, width, Math.floor(i / width) % length, base);
    return value * Math.cos(angle) - sign * at(g, i - j + partner) * Math.sin(angle);
  });
}

/** y · (g − Σ g y) over rows of `cols`. */
export function softmaxBackward(y: Numbers, g: Numbers, cols: number): Float64Array {
  const out = new Float64Array(y.length);
  for (let start = 0; start < y.length; start += cols) {
    let mean = 0;
    for (let c = 0; c < cols; c++) mean += at(g, start + c) * at(y, start + c);
    for (let c = 0; c < cols; c++) out[start + c] = at(y, start + c) * (at(g, start + c) - mean);
  }
  return out;
}

/** The slopes of the activations, by which g is multiplied. */
export const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
export const density = (x: number) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
export const siluSlope = (x: number) => sigmoid(x) * (1 + x * (1 - sigmoid(x)));
export const SLOPES = {
  relu: (x: number) => Number(x > 0),
  gelu: (x: number) => normalShare(x) + x * density(x),
  gelu_tanh: (x: number) => {
    const c = Math.sqrt(2 / Math.PI);
    const t = Math.tanh(c * (x + 0.044715 * x ** 3));
    return (1 + t) / 2 + (x / 2) * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
  },
  silu: siluSlope,
  tanh: (x: number) => 1 - Math.tanh(x) ** 2,
  square: (x: number) => 2 * x,
};

/** Of SwiGLU silu(gate) · x what the gate gets, and what x gets. */
export const gateSlope = (gate: number, x: number) => x * siluSlope(gate);
export const swigluSlope = (gate: number) => silu(gate);

/** The share of each token in a pooled feature: of a mean 1/n, of a maximum 1 where it is largest; equal ones share. */
export function poolShares(column: readonly number[], real: readonly boolean[], how: string): number[] {
  const n = real.filter(Boolean).length;
  if (how === "first") return column.map((_, t) => Number(t === 0 && real[0]));
  if (how === "mean") return real.map((one) => (one ? 1 / n : 0));
  const largest = Math.max(...column.filter((_, t) => real[t]));
  const ties = column.filter((x, t) => real[t] && x === largest).length;
  return column.map((x, t) => (real[t] && x === largest ? 1 / ties : 0));
}

/** x (L, D), g (D or 2 D): what each token gets of the gradient of the pooled vector. */
export function poolBackward(x: Numbers, g: Numbers, width: number, how: string, mask: Numbers | null): Float64Array {
  const length = x.length / width;
  const real = Array.from({ length }, (_, t) => !mask || at(mask, t) !== 0);
  const out = new Float64Array(x.length);
  how.split("+").forEach((name, part) => {
    for (let i = 0; i < width; i++) {
      const shares = poolShares(Array.from({ length }, (_, t) => at(x, t * width + i)), real, name);
      for (let t = 0; t < length; t++) out[t * width + i]! += shares[t]! * at(g, part * width + i);
    }
  });
  return out;
}

/** log Σ e^z of one row. */
export function logSumExp(z: Numbers): number {
  let [peak, total] = [-Infinity, 0];
  for (let i = 0; i < z.length; i++) peak = Math.max(peak, at(z, i));
  for (let i = 0; i < z.length; i++) total += Math.exp(at(z, i) - peak);
  return peak + Math.log(total);
}

/** −Σ q log softmax(z) of each row of `cols`. */
export function crossEntropy(z: Numbers, q: Numbers, cols: number): number[] {
  return rowsOf(z, cols).map((row, t) => {
    const all = logSumExp(row);
    return row.reduce((sum, one, i) => sum + at(q, t * cols + i) * (all - one), 0);
  });
}
