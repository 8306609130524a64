/**
 * Matrices, and what the attention screens need of them: one head of a (head, query, key) tensor, selected rows and
 * columns, a difference.
 */
import type { TensorValue } from "./tensor";

export interface Grid {
  rows: number;
  cols: number;
  data: ArrayLike<number>; // row by row
}

type Tensor = Pick<TensorValue, "shape" | "data">;

export const at = (grid: Grid, row: number, col: number): number => grid.data[row * grid.cols + col]!;

/** A grid of the values of a function of row and column. */
export function fill(rows: number, cols: number, value: (row: number, col: number) => number): Grid {
  const data = Float64Array.from({ length: rows * cols }, (_, i) => value(Math.floor(i / cols), i % cols));
  return { rows, cols, data };
}

/** The last axis across, all others down. */
export function toGrid({ shape, data }: Tensor): Grid {
  const cols = shape.at(-1)!;
  return { rows: cols && data.length / cols, cols, data };
}

export function toTensorValue({ rows, cols, data }: Grid): TensorValue {
  return { shape: [rows, cols], data: Float32Array.from(data), dtype: "f32" };
}

/** Head `head` of a (H, Q, K) tensor, without copying. */
export function headOf({ shape, data }: Tensor, head: number): Grid {
  const [heads = 1, rows = 0, cols = 0] = shape;
  if (head >= heads) throw new RangeError(`There is no head ${head} in a tensor of shape (${shape.join(", ")}).`);
  return { rows, cols, data: data.subarray(head * rows * cols, (head + 1) * rows * cols) };
}

/** The cells of `rows` × `cols`, in that order, not rescaled. */
export function selectCells(grid: Grid, rows: number[], cols: number[]): Grid {
  return fill(rows.length, cols.length, (row, col) => at(grid, rows[row]!, cols[col]!));
}

/** b − a; null when their shapes differ. */
export function difference(a: Grid, b: Grid): Grid | null {
  if (a.rows !== b.rows || a.cols !== b.cols) return null;
  return fill(a.rows, a.cols, (row, col) => at(b, row, col) - at(a, row, col));
}

/** Whether a cell is not masked, by a mask (Q, K) or (1, K); null masks nothing. */
export function mayAttend(mask: Grid | null, row: number, col: number): boolean {
  return mask === null || at(mask, row % mask.rows, col) !== 0;
}

/** The mask of the selected rows and columns, one value per cell. */
export function selectMask(mask: Grid | null, rows: number[], cols: number[]): Grid | null {
  return mask && fill(rows.length, cols.length, (row, col) => Number(mayAttend(mask, rows[row]!, cols[col]!)));
}
