/**
 * Differences of two traces, after minus before: a trace of its own with the id "t2~t1", whose tensors are subtracted
 * when they are read.
 */
import type { TensorValue } from "../tensors/tensor";
import type { Manifest, TraceNode } from "../types";
import { LruCache } from "./cache";
import { Problem, type Source } from "./source";

const CACHE_BYTES = 64e6;

/** The two traces whose difference a trace is. */
interface Passes {
  before: Manifest;
  after: Manifest;
}

/**
 * The manifest of a difference: that of `after`, with the values of all its steps signed. Its predictions are those of
 * `after`; `trace/changes.ts` computes how they change.
 */
export function differenceOf(after: Manifest, before: Manifest): Manifest & { passes: Passes } {
  const marked = (all: TraceNode[]) => all.map((node) => ({ ...node, attrs: { ...node.attrs, difference: true } }));
  return { ...after, id: `${after.id}~${before.id}`, nodes: marked(after.nodes), gradients: marked(after.gradients), passes: { before, after } };
}

/** The traces before and after, of a difference; null of other traces. */
export const passesOf = (trace: Manifest): Passes | null => (trace as { passes?: Passes }).passes ?? null;

/** The trace whose masks, token ids and tables hold for what a trace shows: of a difference the one after. */
export const passOf = (trace: Manifest): Manifest => passesOf(trace)?.after ?? trace;

/** Every number minus its partner; 0 where both are the same, infinity included. */
export function subtract(a: TensorValue, b: TensorValue): TensorValue {
  if (a.shape.join() !== b.shape.join()) throw new Problem(`The shapes ${a.shape.join(" × ")} and ${b.shape.join(" × ")} have no difference`);
  const of = a.dtype === "u8" ? Int32Array : (a.data.constructor as Float32ArrayConstructor);
  const data = new of(a.data.length);
  if (a.data !== b.data) for (let i = 0; i < data.length; i++) data[i] = a.data[i] === b.data[i] ? 0 : a.data[i]! - b.data[i]!;
  return { shape: a.shape, dtype: a.dtype === "u8" ? "i32" : a.dtype, data };
}

/** A source that also reads differences. */
export function withDifferences(inner: Source): Source {
  const known = new LruCache<TensorValue>(CACHE_BYTES, ({ data }) => data.byteLength);
  const difference = (key: string, a: TensorValue, b: TensorValue): TensorValue => {
    const value = subtract(a, b);
    known.set(key, value);
    return value;
  };
  const outer: Pick<Source, "tensor" | "peek"> = {
    async tensor(trace, id, slice = "") {
      const [first = "", second] = trace.split("~");
      if (second === undefined) return inner.tensor(first, id, slice);
      const key = `${trace}/${id}?${slice}`;
      return known.get(key) ?? difference(key, ...(await Promise.all([inner.tensor(first, id, slice), inner.tensor(second, id, slice)])));
    },
    peek(trace, id, slice = "") {
      const [first = "", second] = trace.split("~");
      if (second === undefined) return inner.peek(first, id, slice);
      const key = `${trace}/${id}?${slice}`;
      const hit = known.get(key);
      if (hit) return hit;
      const [a, b] = [inner.peek(first, id, slice), inner.peek(second, id, slice)];
      return a && b && difference(key, a, b);
    },
  };
  return Object.assign(Object.create(inner) as Source, outer);
}
