/** What was fetched stays, up to so many bytes; a part of a tensor that is here as a whole is not kept a second time. */
import { sliceTensor, type TensorValue } from "../tensors/tensor";
import type { Manifest } from "../types";

/** Up to so many bytes: what was not looked at for the longest time goes first. */
export class Store<T> {
  private held = new Map<string, { value: T; bytes: number }>();
  private bytes = 0;

  constructor(private limit: number, private bytesOf: (value: T) => number) {}

  get(key: string): T | null {
    const hit = this.held.get(key);
    if (!hit) return null;
    this.held.delete(key); // last used goes last: the first of the map is the oldest
    this.held.set(key, hit);
    return hit.value;
  }

  /** The one that `is` what is looked for. */
  find(is: (value: T) => boolean): T | null {
    const hit = [...this.held].find(([, { value }]) => is(value));
    return hit ? this.get(hit[0]) : null;
  }

  /** The newest stays, however large it is. */
  set(key: string, value: T) {
    this.drop(key);
    const bytes = this.bytesOf(value);
    this.held.set(key, { value, bytes });
    this.bytes += bytes;
    for (const old of this.held.keys()) {
      if (this.bytes <= this.limit || old === key) break;
      this.drop(old);
    }
  }

  /** Forget what has such a key. */
  dropAll(named: (key: string) => boolean) {
    for (const key of [...this.held.keys()].filter(named)) this.drop(key);
  }

  private drop(key: string) {
    this.bytes -= this.held.get(key)?.bytes ?? 0;
    this.held.delete(key);
  }
}

const TENSOR_BYTES = 256e6;

/** All tensors of the page. */
export class TensorStore {
  private store: Store<TensorValue>;
  /** Slices of what is here as a whole, as long as that is: views, which hold no numbers of their own. */
  private views = new WeakMap<TensorValue, Map<string, TensorValue>>();

  constructor(limit = TENSOR_BYTES) {
    this.store = new Store(limit, ({ data }) => data.byteLength);
  }

  /** By trace, node or parameter, and slice; `axes` are the names of its dimensions. The same object until it is dropped. */
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

  /** A whole tensor takes the place of its parts. */
  set(trace: string, id: string, slice: string, value: TensorValue) {
    if (!slice) this.store.dropAll((key) => key.startsWith(`${trace}/${id}?`));
    this.store.set(`${trace}/${id}?${slice}`, value);
  }
}

/** The names of a node's or parameter's dimensions. */
export const axesOf = (trace: Manifest | null | undefined, id: string): string[] =>
  (trace?.nodes.find((node) => node.id === id) ?? trace?.params[id])?.axes.map((axis) => axis.name) ?? [];
