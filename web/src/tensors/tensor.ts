/**
 * Tensors of the page: a shape and a typed array, read from little-endian bytes, and the server's slice grammar
 * ("head:3;token:0-8;vocab:1.5.9") for exported pages.
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

export function decodeBase64(text: string): ArrayBuffer {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

/**
 * `axes` are the names of the dimensions; an index drops its axis, a range or list keeps it. An index on each of the
 * first axes, such as a head or one of its rows, gives a view; other slices are copied.
 */
export function sliceTensor(tensor: TensorValue, axes: readonly string[], slice: string): TensorValue {
  const { picks, dropped } = parseSlice(tensor.shape, axes, slice);
  const first = dropped.size;
  if ([...dropped].every((axis) => axis < first && picks[axis]![0]! < tensor.shape[axis]!) && !picks.slice(first).some(Boolean)) {
    const shape = tensor.shape.slice(first);
    const size = shape.reduce((product, one) => product * one, 1);
    const place = picks.slice(0, first).reduce((at, pick, axis) => at * tensor.shape[axis]! + pick![0]!, 0);
    return { shape, data: tensor.data.subarray(place * size, (place + 1) * size), dtype: tensor.dtype };
  }
  const offsets = offsetsOf(tensor.shape, picks);
  const data = new (tensor.data.constructor as Float32ArrayConstructor)(offsets.map((offset) => tensor.data[offset]!));
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
