/**
 * Matrices, and what the attention screens need of them: one head of a (head, query, key) tensor, selected rows and
 * columns, a difference.
 */


export interface TensorValue {
  shape: number[];
  data: Float32Array | Int32Array | Uint8Array;
  /** The element type as sent; f16 is converted to f32, with about 3 digits. */
  dtype: "f16" | "f32" | "i32" | "u8";
}

/** Scores beyond this size are of blocked keys. */
export const BLOCKED = 1e30;

/** The largest magnitude, of finite values that are not blocked. */
export function magnitude(data: ArrayLike<number>): number {
  let limit = 0;
  for (let i = 0; i < data.length; i++) {
    const size = Math.abs(data[i]!);
    if (size > limit && size < BLOCKED) limit = size;
  }
  return limit;
}

function halfToFloat(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

let halves: Float32Array | null = null;

export function toTensor(dtype: string, shape: number[], bytes: ArrayBuffer): TensorValue {
  if (dtype === "i32") return { shape, dtype, data: new Int32Array(bytes) };
  if (dtype === "u8") return { shape, dtype, data: new Uint8Array(bytes) };
  if (dtype === "f32") return { shape, dtype, data: new Float32Array(bytes) };
  halves ??= Float32Array.from({ length: 65536 }, (_, half) => halfToFloat(half));
  const table = halves;
  return { shape, dtype: "f16", data: Float32Array.from(new Uint16Array(bytes), (half) => table[half]!) };
}

export const decodeBase64 = (text: string) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;

/** `axes` are the names of the dimensions; an index drops its axis, a range or list keeps it. */
export function sliceTensor(tensor: TensorValue, axes: readonly string[], slice: string): TensorValue {
  const { picks, dropped } = parseSlice(tensor.shape, axes, slice);
  const data = new (tensor.data.constructor as Float32ArrayConstructor)(offsetsOf(tensor.shape, picks).map((offset) => tensor.data[offset]!));
  const sizes = tensor.shape.map((size, axis) => picks[axis]?.length ?? size);
  return { shape: sizes.filter((_, axis) => !dropped.has(axis)), data, dtype: tensor.dtype };
}

interface Picks {
  /** The indices along each axis; null: all. */
  picks: (number[] | null)[];
  /** The axes with a single index. */
  dropped: Set<number>;
}

function parseSlice(shape: readonly number[], axes: readonly string[], slice: string): Picks {
  const picks: (number[] | null)[] = shape.map(() => null);
  const dropped = new Set<number>();
  for (const part of slice.split(";").filter(Boolean)) {
    const [name = "", spec = ""] = part.split(":");
    const axis = axes.indexOf(name);
    if (axis < 0) throw new RangeError(`no axis ${name} here`);
    if (spec.includes("-")) {
      const [start = 0, end = 0] = spec.split("-").map(Number);
      const stop = Math.min(end, shape[axis]!);
      picks[axis] = Array.from({ length: Math.max(0, stop - start) }, (_, i) => start + i);
    } else {
      picks[axis] = spec.split(".").map(Number);
      if (!spec.includes(".")) dropped.add(axis);
    }
  }
  return { picks, dropped };
}

/** Flat offsets of the selected values, extended axis by axis. */
function offsetsOf(shape: readonly number[], picks: Picks["picks"]): number[] {
  let offsets = [0];
  shape.forEach((size, axis) => {
    const pick = picks[axis] ?? Array.from({ length: size }, (_, i) => i);
    offsets = offsets.flatMap((offset) => pick.map((i) => (i < size ? offset * size + i : NaN)));
  });
  return offsets;
}

/** Flat offsets of the values of a slice. */
export const sliceOffsets = (shape: readonly number[], axes: readonly string[], slice: string) =>
  offsetsOf(shape, parseSlice(shape, axes, slice).picks);

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

/** b − a; null when their shapes differ. */
export function difference(a: Grid, b: Grid): Grid | null {
  if (a.rows !== b.rows || a.cols !== b.cols) return null;
  return fill(a.rows, a.cols, (row, col) => at(b, row, col) - at(a, row, col));
}

/** Whether a cell is not masked, by a mask (Q, K) or (1, K); null masks nothing. */
export function mayAttend(mask: Grid | null, row: number, col: number): boolean {
  return mask === null || at(mask, row % mask.rows, col) !== 0;
}

/** The mask of so many rows, one value per cell. */
export const maskOfRows = (mask: Grid | null, rows: number) => mask && fill(rows, mask.cols, (row, col) => Number(mayAttend(mask, row, col)));
