/**
 * A plain matrix of numbers and the few things the attention screens do to one: take one head out of a
 * (head, query, key) tensor, keep some rows and columns, subtract. It draws nothing and fetches nothing.
 */

export interface Grid {
  rows: number;
  cols: number;
  data: ArrayLike<number>; // row by row
}

export function at(grid: Grid, row: number, col: number): number {
  return grid.data[row * grid.cols + col]!;
}

/** Head `head` of a (H, Q, K) tensor, without copying. */
export function headOf(tensor: { shape: number[]; data: Float32Array | Int32Array | Uint8Array }, head: number): Grid {
  const [heads, rows, cols] = tensor.shape.length === 3 ? tensor.shape : [1, ...tensor.shape];
  if (heads === undefined || rows === undefined || cols === undefined || head < 0 || head >= heads) {
    throw new RangeError(`There is no head ${head + 1} in a tensor of shape (${tensor.shape.join(", ")}).`);
  }
  return { rows, cols, data: tensor.data.subarray(head * rows * cols, (head + 1) * rows * cols) };
}

/** The mean of all heads of a (H, Q, K) tensor. */
export function meanOfHeads(tensor: { shape: number[]; data: Float32Array | Int32Array | Uint8Array }): Grid {
  const [heads = 1, rows = 0, cols = 0] = tensor.shape.length === 3 ? tensor.shape : [1, ...tensor.shape];
  const size = rows * cols;
  const data = new Float64Array(size);
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < size; i++) data[i]! += tensor.data[head * size + i]! / heads;
  }
  return { rows, cols, data };
}

/** The cells of `rows` × `cols` alone, in that order; what is left out is not shared out among the rest. */
export function pick(grid: Grid, rows: number[], cols: number[]): Grid {
  const data = new Float64Array(rows.length * cols.length);
  rows.forEach((row, i) => cols.forEach((col, j) => (data[i * cols.length + j] = at(grid, row, col))));
  return { rows: rows.length, cols: cols.length, data };
}

/** b − a; null when their shapes differ and so no cell of one stands for a cell of the other. */
export function difference(a: Grid, b: Grid): Grid | null {
  if (a.rows !== b.rows || a.cols !== b.cols) return null;
  return { rows: a.rows, cols: a.cols, data: Float64Array.from(a.data, (value, i) => b.data[i]! - value) };
}

/** The mask of a head: (Q, K) or (1, K), true = may attend; without a mask everything may be attended to. */
export function mayAttend(mask: Grid | null, row: number, col: number): boolean {
  return mask === null || at(mask, mask.rows === 1 ? 0 : row, col) !== 0;
}

/** The mask of the picked rows and columns, as one byte a cell. */
export function pickMask(mask: Grid | null, rows: number[], cols: number[]): Grid | null {
  if (mask === null) return null;
  const data = new Uint8Array(rows.length * cols.length);
  rows.forEach((row, i) => cols.forEach((col, j) => (data[i * cols.length + j] = mayAttend(mask, row, col) ? 1 : 0)));
  return { rows: rows.length, cols: cols.length, data };
}

export function largest(grid: Grid): number {
  let most = 0;
  for (let i = 0; i < grid.data.length; i++) most = Math.max(most, Math.abs(grid.data[i]!));
  return most;
}
