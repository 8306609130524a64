/** Asynchronous data for components: the result of a request, or a tensor, requested when first needed. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { passOf } from "../sources/source";
import { type TensorValue, toGrid, toTensorValue } from "../tensors/tensor";
import { maskOfHead } from "../trace/edits";
import { nodeOf } from "../trace/steps";
import type { Manifest } from "../types";
import { manifest, source } from "./page";
import { type ErrorMessage, toErrorMessage, useValue } from "./signals";

export interface Resource<T> {
  value: T | null;
  error: ErrorMessage | null;
  /** The value is of an earlier key. */
  stale: boolean;
}

interface How {
  /** Keep the last value while loading the next, as long as `within` is the same. */
  within?: string;
  /** Delay before the request, in milliseconds. */
  delay?: number;
}

/**
 * The result of `ask`, requested once per `key`; null while loading, or if `key` is null. `ask` may report partial
 * results with `soFar`, which returns false when the result is no longer needed.
 */
export function useResource<T>(key: string | null, ask: (soFar: (value: T) => boolean) => Promise<T>, { within, delay = 0 }: How = {}): Resource<T> {
  const [last, setLast] = useState<{ key: string; within?: string; value: T | null; error: ErrorMessage | null }>();
  useEffect(() => {
    if (key === null) return;
    let alive = true;
    const show = (value: T | null, error: ErrorMessage | null = null) => {
      if (alive) setLast({ key, within, value, error });
      return alive;
    };
    const begin = () => void ask(show).then(show, (error) => show(null, toErrorMessage(error)));
    const timer = delay ? setTimeout(begin, delay) : begin();
    return () => {
      alive = false;
      clearTimeout(timer ?? undefined);
    };
  }, [key]);
  const current = last?.key === key;
  const kept = last && (current || (key !== null && within !== undefined && last.within === within)) ? last : null;
  return { value: kept?.value ?? null, error: current ? last!.error : null, stale: !current };
}

/** Up to this size, all heads of a tensor are fetched at once. */
const WHOLE_BYTES = 16e6;

/** The values of a node or parameter, by default of the current trace; null while loading, or if `id` is null. */
export function useTensor(id: string | null, slice = "", of?: Manifest): Resource<TensorValue> {
  const shown = useValue(manifest);
  const trace = of ?? shown;
  const here = id && trace ? peek(trace, id, slice) : null;
  const asked = useResource(id && trace && !here ? `${trace.id}/${id}?${slice}` : null, async () => {
    const size = nodeOf(trace!, id!)?.axes.reduce((product, axis) => product * axis.size, 4) ?? Infinity; // in bytes
    if (/^head:\d+$/.test(slice) && size <= WHOLE_BYTES) await source.tensor(trace!.id, id!);
    return source.tensor(trace!.id, id!, slice);
  });
  return here ? { value: here, error: null, stale: false } : asked;
}

/** The mask of a slice of weights, with the keys that edits block; of a difference that of the pass after. Of a mask itself that is it; null of other steps. */
export function useMask(id: string | null, slice: string, of?: Manifest): TensorValue | null {
  const shown = useValue(manifest);
  const trace = of ?? shown, node = trace && id ? nodeOf(trace, id) : undefined;
  const own = node?.site === "weights" ? node.inputs[1] : node?.op === "mask" && !node.attrs.difference ? node.id : undefined;
  const { value } = useTensor(own ?? null, "", trace ? passOf(trace) : undefined);
  const head = /^head:(\d+)/.exec(slice)?.[1];
  return useMemo(() => {
    const layer = value && toGrid(value), of = trace && node?.site === "weights" && head ? maskOfHead(trace, node.id, Number(head), layer) : layer;
    return of && (of.data === layer?.data ? value : toTensorValue(of));
  }, [value, trace, node?.id, head]);
}

function peek({ id: trace }: Manifest, id: string, slice: string) {
  try {
    return source.peek(trace, id, slice);
  } catch {
    return null; // source.tensor reports the error
  }
}
