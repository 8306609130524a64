/** Caches of limited size. Slices of a cached whole tensor are views, not copies. */
import { sliceTensor, type TensorValue } from "../tensors/tensor";
import { nodeOf } from "../trace/stepData";
import type { Manifest } from "../types";

/** A least-recently-used cache of limited size. */
export class LruCache<T> {
  private entries = new Map<string, { value: T; bytes: number }>();
  private bytes = 0;

  constructor(private limit: number, private bytesOf: (value: T) => number) {}

  get(key: string): T | null {
    const hit = this.entries.get(key);
    if (!hit) return null;
    this.entries.delete(key); // a map is in insertion order: move to the end
    this.entries.set(key, hit);
    return hit.value;
  }

  /** The first value that matches. */
  find(is: (value: T) => boolean): T | null {
    const hit = [...this.entries].find(([, { value }]) => is(value));
    return hit ? this.get(hit[0]) : null;
  }

  /** The newest value is kept even if it exceeds the limit. */
  set(key: string, value: T) {
    this.drop(key);
    const bytes = this.bytesOf(value);
    this.entries.set(key, { value, bytes });
    this.bytes += bytes;
    for (const old of this.entries.keys()) {
      if (this.bytes <= this.limit || old === key) break;
      this.drop(old);
    }
  }

  /** Drops all entries whose key matches. */
  dropAll(named: (key: string) => boolean) {
    for (const key of [...this.entries.keys()].filter(named)) this.drop(key);
  }

  private drop(key: string) {
    this.bytes -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
  }
}

const TENSOR_BYTES = 256e6;

/** A cache of tensors. */
export class TensorCache {
  private store: LruCache<TensorValue>;
  /** Views of cached whole tensors, by slice. */
  private views = new WeakMap<TensorValue, Map<string, TensorValue>>();

  constructor(limit = TENSOR_BYTES) {
    this.store = new LruCache(limit, ({ data }) => data.byteLength);
  }

  /** `axes` are the names of the dimensions. Returns the same object until it is dropped. */
  get(trace: string, id: string, slice = "", axes: readonly string[] = []): TensorValue | null {
    const exact = this.store.get(`${trace}/${id}?${slice}`);
    if (exact || !slice || !axes.length) return exact;
    const whole = this.store.get(`${trace}/${id}?`);
    if (!whole) return null;
    const views = this.views.get(whole) ?? new Map<string, TensorValue>();
    this.views.set(whole, views);
    const known = views.get(slice);
    if (known) return known;
    const part = sliceTensor(whole, axes, slice);
    if (part.data.buffer === whole.data.buffer) views.set(slice, part);
    return part;
  }

  /** A whole tensor replaces its slices. */
  set(trace: string, id: string, slice: string, value: TensorValue) {
    if (!slice) this.store.dropAll((key) => key.startsWith(`${trace}/${id}?`));
    this.store.set(`${trace}/${id}?${slice}`, value);
  }
}

/** What an optimizer keeps of a parameter is of the parameter's shape: "head.weight.exp_avg_sq_before". */
const parameterOf = (id: string) => id.replace(/\.(before|clipped_grad|(exp_avg|exp_avg_sq|momentum_buffer)(_before)?)$/, "");

/** The names of a node's or parameter's dimensions. */
export const axesOf = (trace: Manifest | null | undefined, id: string): string[] =>
  ((trace && nodeOf(trace, id)) ?? trace?.params[parameterOf(id)])?.axes.map((axis) => axis.name) ?? [];
