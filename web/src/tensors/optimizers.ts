/** One step of Muon in float64, as `training/optimizer.py` computes it, so that each number of an update can be compared. */
import { multiply, type Numbers, transpose as transposed } from "./walk";

/** The constants of an optimizer, by PyTorch's names. */
export type Constants = Record<string, number>;

/** The relative error of one rounding of a 32-bit float. */
export const ROUNDING = 2 ** -24;
/** That of bfloat16, between two neighbours. */
const BFLOAT16 = 2 ** -8;
/** Roundings of the terms of a sum, and of a quotient of several. */
export const [FEW, MANY] = [4, 16];

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
