/**
 * One step of an optimizer in float64: AdamW (with weight decay 0 also Adam), SGD with momentum, and Muon. As
 * `training/optimizer.py` and PyTorch compute them, so that each number of an update can be compared.
 */
import { multiply, type Numbers, transpose as transposed } from "./walk";

/** The constants of an optimizer, by PyTorch's names. */
export type Constants = Record<string, number>;

/** A number that was recomputed, and how far rounding may put the model's from it. */
export interface Recomputed {
  value: number;
  bound: number;
}

/** The relative error of one rounding of a 32-bit float. */
export const ROUNDING = 2 ** -24;
/** That of bfloat16, between two neighbours. */
const BFLOAT16 = 2 ** -8;
/** Roundings of the terms of a sum, and of a quotient of several. */
const [FEW, MANY] = [4, 16];

/** What AdamW computes of one number, in order. */
export interface AdamStep {
  mean: Recomputed;
  square: Recomputed;
  /** The two averages, corrected for their start at 0. */
  unbiased: [mean: number, square: number];
  decayed: number;
  update: number;
  after: Recomputed;
}

export function adamStep(before: number, g: number, mean: number, square: number, step: number, { lr, beta1, beta2, eps, weight_decay }: Constants): AdamStep {
  const [m, v] = [beta1! * mean + (1 - beta1!) * g, beta2! * square + (1 - beta2!) * g * g];
  const unbiased: [number, number] = [m / (1 - beta1! ** step), v / (1 - beta2! ** step)];
  const decayed = before * (1 - lr! * weight_decay!);
  const update = (lr! * unbiased[0]) / (Math.sqrt(unbiased[1]) + eps!);
  // Of a mean that nearly cancels, the rounding of its terms remains.
  const lost = FEW * ROUNDING * (Math.abs(beta1! * mean) + Math.abs((1 - beta1!) * g));
  const bound = MANY * ROUNDING * Math.abs(update) + Math.abs((update / (m || 1)) * lost) + FEW * ROUNDING * Math.abs(before);
  return {
    mean: { value: m, bound: lost }, square: { value: v, bound: FEW * ROUNDING * v + Number.MIN_VALUE }, unbiased, decayed, update, after: { value: decayed - update, bound },
  };
}

/** What SGD computes of one number: the gradient with the decay, the momentum, and the number after. */
export interface SgdStep {
  withDecay: number;
  momentum: Recomputed;
  after: Recomputed;
}

/** Without momentum the step is that of the gradient; the first momentum is the gradient. */
export function sgdStep(before: number, g: number, buffer: number, { lr, momentum, weight_decay }: Constants): SgdStep {
  const withDecay = g + weight_decay! * before;
  const value = momentum! * buffer + withDecay;
  const bound = FEW * ROUNDING * (Math.abs(momentum! * buffer) + Math.abs(g) + Math.abs(weight_decay! * before));
  return { withDecay, momentum: { value, bound }, after: { value: before - lr! * value, bound: lr! * bound * 2 + FEW * ROUNDING * Math.abs(before) } };
}

/** The coefficients of the Newton–Schulz iteration of Muon (Jordan et al. 2024), and how often it is done. */
export const COEFFICIENTS = [3.4445, -4.775, 2.0315] as const;
export const ITERATIONS = 5;

const matrix = (data: Numbers, cols: number) => ({ shape: [data.length / cols, cols], data });
const transpose = (x: Numbers, cols: number) => transposed(matrix(x, cols)).data as Float64Array;
/** x yᵀ, for rows of n numbers. */
const timesTransposed = (x: Numbers, y: Numbers, n: number) => multiply(matrix(x, n), transposed(matrix(y, n))).data as Float64Array;

/** The type in which Muon multiplies. */
export type Dtype = "float32" | "bfloat16";
const BITS = new DataView(new ArrayBuffer(4));

/** The nearest bfloat16, the upper half of a 32-bit float; of two equally near ones the even. */
export function toBfloat16(x: number): number {
  BITS.setFloat32(0, x);
  const bits = BITS.getUint32(0);
  BITS.setUint32(0, ((bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000) >>> 0);
  return BITS.getFloat32(0);
}

/** A number that is off by `error`, relative to its own size and the largest: to either side, in pseudorandom order. */
const off = (x: number, i: number, largest: number, error: number) => x + error * (Math.abs(x) + largest) * (Math.sin(i * 12.9898) * 43758.5453 % 1 > 0 ? 1 : -1);

/**
 * Approximately U Vᵀ of a matrix U S Vᵀ (rows, cols): X ← a X + (b A + c A²) X with A = X Xᵀ, five times. Each result is
 * rounded to `dtype`, as in training, where that is bfloat16. With `error`, each is off by so much before.
 */
export function orthogonalise(values: Numbers, rows: number, cols: number, dtype: Dtype = "float32", error = 0): Float64Array {
  const tall = rows > cols;
  const [m, n] = tall ? [cols, rows] : [rows, cols];
  const [a, b, c] = COEFFICIENTS;
  const rounded = (all: Float64Array) => {
    const largest = error ? all.reduce((most, one) => Math.max(most, Math.abs(one)), 0) : 0;
    return all.map((one, i) => {
      const exact = error ? off(one, i, largest, error) : one;
      return dtype === "bfloat16" ? toBfloat16(exact) : exact;
    });
  };
  let x = rounded(tall ? transpose(values, cols) : Float64Array.from(values));
  const size = Math.max(1e-7, rounded(Float64Array.of(norm(x)))[0]!);
  x = rounded(x.map((one) => one / size));
  for (let i = 0; i < ITERATIONS; i++) {
    const gram = rounded(timesTransposed(x, x, n));
    const squared = timesTransposed(gram, gram, m); // symmetric
    const combined = rounded(gram.map((one, j) => b * one + c * squared[j]!));
    const product = multiply(matrix(combined, m), matrix(x, n)).data;
    x = rounded(x.map((one, j) => a * one + product[j]!));
  }
  return tall ? transpose(x, n) : x;
}

function norm(x: Numbers): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i]! * x[i]!;
  return Math.sqrt(sum);
}

/** Products that the five iterations take. */
export const productsOf = (rows: number, cols: number) => ITERATIONS * Math.min(rows, cols) ** 2 * (2 * Math.max(rows, cols) + Math.min(rows, cols));

/** What Muon computes of a matrix: the momentum, Nesterov's, the orthogonal matrix, its factor, and the matrix after. */
export interface MuonStep {
  momentum: Float64Array;
  nesterov: Float64Array;
  orthogonal: Float64Array;
  /** Whether each number of `orthogonal` may differ by so much. */
  bound: number;
  factor: number;
  after: Float64Array;
}

/** How much rounding moves the orthogonal matrix is measured: the same is computed with each sum off by a few roundings. */
export function muonStep(before: Numbers, g: Numbers, buffer: Numbers, rows: number, cols: number, { lr, momentum, weight_decay }: Constants, dtype: Dtype = "float32"): MuonStep {
  const average = Float64Array.from(g, (one, i) => momentum! * buffer[i]! + (1 - momentum!) * one);
  const nesterov = Float64Array.from(g, (one, i) => (1 - momentum!) * one + momentum! * average[i]!);
  const orthogonal = orthogonalise(nesterov, rows, cols, dtype);
  const others = orthogonalise(nesterov, rows, cols, dtype, FEW * ROUNDING);
  const moved = others.reduce((most, one, i) => Math.max(most, Math.abs(one - orthogonal[i]!)), 0);
  const largest = orthogonal.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
  const bound = 2 * moved + (dtype === "bfloat16" ? BFLOAT16 : MANY * ROUNDING) * largest;
  const factor = Math.sqrt(Math.max(1, rows / cols));
  const after = Float64Array.from(before, (one, i) => one * (1 - lr! * weight_decay!) - lr! * factor * orthogonal[i]!);
  return { momentum: average, nesterov, orthogonal, bound, factor, after };
}
