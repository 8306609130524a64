/**
 * Differences of two traces, after minus before: a trace of its own with the id "t2~t1", whose tensors are subtracted
 * when they are read.
 */
import type { TensorValue } from "../tensors/tensor";
import type { Manifest } from "../types";
import { LruCache } from "./cache";
import type { Source } from "./source";

const CACHE_BYTES = 64e6;

/** The manifest of a difference: that of `after`, with the values of its steps signed. */
export function differenceOf(after: Manifest, before: Manifest): Manifest {
  const nodes = after.nodes.map((node) => (node.dtype === "f32" ? { ...node, attrs: { ...node.attrs, difference: true } } : node));
  return { ...after, id: `${after.id}~${before.id}`, nodes };
}

/** Whether a manifest is that of a difference. */
export const isDifference = ({ id }: Pick<Manifest, "id">) => id.includes("~");

/** A source that also reads differences; ids and masks are those of the first trace. */
export function withDifferences(inner: Source): Source {
  const known = new LruCache<TensorValue>(CACHE_BYTES, ({ data }) => data.byteLength);
  const subtract = (key: string, a: TensorValue, b: TensorValue): TensorValue => {
    if (a.dtype === "i32" || a.dtype === "u8" || a === b || a.data.length !== b.data.length) return a;
    const data = Float32Array.from(a.data, (x, i) => x - b.data[i]!);
    const value = { shape: a.shape, dtype: a.dtype, data };
    known.set(key, value);
    return value;
  };
  const outer: Pick<Source, "tensor" | "peek"> = {
    async tensor(trace, id, slice = "") {
      const [first = "", second] = trace.split("~");
      if (second === undefined) return inner.tensor(first, id, slice);
      const key = `${trace}/${id}?${slice}`;
      return known.get(key) ?? subtract(key, ...(await Promise.all([inner.tensor(first, id, slice), inner.tensor(second, id, slice)])));
    },
    peek(trace, id, slice = "") {
      const [first = "", second] = trace.split("~");
      if (second === undefined) return inner.peek(first, id, slice);
      const key = `${trace}/${id}?${slice}`;
      const hit = known.get(key);
      if (hit) return hit;
      const [a, b] = [inner.peek(first, id, slice), inner.peek(second, id, slice)];
      return a && b && subtract(key, a, b);
    },
  };
  return Object.assign(Object.create(inner) as Source, outer);
}
