/**
 * A plain matrix of numbers and the few things the attention screens do to one: take one head out of a
 * (head, query, key) tensor, keep some rows and columns, subtract, read an alignment. It draws nothing and fetches nothing.
 */
import type { TensorValue } from "./tensor";

export interface Grid {
  rows: number;
  cols: number;
  data: ArrayLike<number>; // row by row
}

type Tensor = Pick<TensorValue, "shape" | "data">;

export const at = (grid: Grid, row: number, col: number): number => grid.data[row * grid.cols + col]!;

/** A grid of what `value` says of each cell. */
export function fill(rows: number, cols: number, value: (row: number, col: number) => number): Grid {
  const data = Float64Array.from({ length: rows * cols }, (_, i) => value(Math.floor(i / cols), i % cols));
  return { rows, cols, data };
}

/** The last axis across, all others down. */
export function asGrid({ shape, data }: Tensor): Grid {
  const cols = shape.at(-1)!;
  return { rows: cols && data.length / cols, cols, data };
}

export function asTensor({ rows, cols, data }: Grid): TensorValue {
  return { shape: [rows, cols], data: Float32Array.from(data), dtype: "f32" };
}

/** Head `head` of a (H, Q, K) tensor, without copying. */
export function headOf({ shape, data }: Tensor, head: number): Grid {
  const [heads = 1, rows = 0, cols = 0] = shape;
  if (head >= heads) throw new RangeError(`There is no head ${head + 1} in a tensor of shape (${shape.join(", ")}).`);
  return { rows, cols, data: data.subarray(head * rows * cols, (head + 1) * rows * cols) };
}

/** The mean of all heads of a (H, Q, K) tensor. */
export function meanOfHeads({ shape, data }: Tensor): Grid {
  const [heads = 1, rows = 0, cols = 0] = shape;
  const size = rows * cols;
  const mean = new Float64Array(size);
  data.forEach((weight: number, i: number) => (mean[i % size]! += weight / heads));
  return { rows, cols, data: mean };
}

/** The cells of `rows` × `cols` alone, in that order; what is left out is not shared out among the rest. */
export function pick(grid: Grid, rows: number[], cols: number[]): Grid {
  return fill(rows.length, cols.length, (row, col) => at(grid, rows[row]!, cols[col]!));
}

/** b − a; null when their shapes differ and so no cell of one stands for a cell of the other. */
export function difference(a: Grid, b: Grid): Grid | null {
  if (a.rows !== b.rows || a.cols !== b.cols) return null;
  return fill(a.rows, a.cols, (row, col) => at(b, row, col) - at(a, row, col));
}

/** The mask of a head: (Q, K) or (1, K), true = may attend; without a mask everything may be attended to. */
export function mayAttend(mask: Grid | null, row: number, col: number): boolean {
  return mask === null || at(mask, row % mask.rows, col) !== 0;
}

/** The mask of the picked rows and columns, one number a cell. */
export function pickMask(mask: Grid | null, rows: number[], cols: number[]): Grid | null {
  return mask && fill(rows.length, cols.length, (row, col) => Number(mayAttend(mask, rows[row]!, cols[col]!)));
}

/**
 * Which source words a target word was aligned with, read from cross-attention: in the row that predicted the word, or
 * in its own row, where it is the decoder's input (Shift-Att, Chen et al. 2020, arXiv 2004.14837). Row t is for target
 * position t + 1: position 0 (BOS) was never predicted and is left out of both readings, so that they list the same
 * tokens.
 */
export function alignment(cross: Grid, shifted: boolean): Grid {
  return fill(Math.max(0, cross.rows - 1), cross.cols, (row, col) => at(cross, row + Number(shifted), col));
}
