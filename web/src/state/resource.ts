/** What a view waits for: an answer to one question, or a tensor, asked for when it is first needed. */
import { useEffect, useState } from "preact/hooks";
import type { TensorValue } from "../tensors/tensor";
import type { Manifest } from "../types";
import { manifest, source } from "./page";
import { tell, type Told, useValue } from "./signals";

export interface Resource<T> {
  value: T | null;
  error: Told | null;
  /** The value answers an older question. */
  stale: boolean;
}

interface How {
  /** Of what the question is one: the last answer stays until the next one is here as long as that is the same. */
  within?: string;
  /** Milliseconds to wait before asking. */
  delay?: number;
}

/**
 * What `ask` answers, asked once for each `key`: null until it is here. `key` null: nothing is wanted. Meanwhile `ask`
 * may tell what it has so far, and hears false when nobody waits for it any more.
 */
export function useResource<T>(key: string | null, ask: (soFar: (value: T) => boolean) => Promise<T>, { within, delay = 0 }: How = {}): Resource<T> {
  const [last, setLast] = useState<{ key: string; within?: string; value: T | null; error: Told | null }>();
  useEffect(() => {
    if (key === null) return;
    let alive = true;
    const show = (value: T | null, error: Told | null = null) => {
      if (alive) setLast({ key, within, value, error });
      return alive;
    };
    const begin = () => void ask(show).then(show, (error) => show(null, tell(error)));
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

/** Heads are taken out of the tensor that has all of them, which is asked for once, unless it is larger than this. */
const WHOLE_BYTES = 16e6;

/** A node's or parameter's numbers, of the trace shown unless another is named: null until they are here. `id` null: nothing is wanted. */
export function useTensor(id: string | null, slice = "", of?: Manifest): Resource<TensorValue> {
  const shown = useValue(manifest);
  const trace = of ?? shown;
  const here = id && trace ? peek(trace, id, slice) : null;
  const asked = useResource(id && trace && !here ? `${trace.id}/${id}?${slice}` : null, async () => {
    if (/^head:\d+$/.test(slice) && bytesOf(trace!, id!) <= WHOLE_BYTES) await source.tensor(trace!.id, id!);
    return source.tensor(trace!.id, id!, slice);
  });
  return here ? { value: here, error: null, stale: false } : asked;
}

function bytesOf({ nodes }: Manifest, id: string): number {
  const node = nodes.find((one) => one.id === id);
  return node ? node.axes.reduce((product, axis) => product * axis.size, 4) : Infinity;
}

function peek({ id: trace }: Manifest, id: string, slice: string) {
  try {
    return source.peek(trace, id, slice);
  } catch {
    return null; // told by source.tensor, which fails the same way
  }
}
