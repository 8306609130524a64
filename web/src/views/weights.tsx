/**
 * The weights and masks of some attention layers, fetched one after another so that a long text, which is traced
 * layer by layer, is not asked for everything at once. Pictures appear as their layer arrives.
 */
import { source } from "../state/page";
import { useResource } from "../state/resource";
import { tell } from "../state/signals";
import { asGrid, type Grid } from "../tensors/grid";
import type { TensorValue } from "../tensors/tensor";
import type { AttentionLayer } from "../trace/heads";

export interface LayerValues {
  weights: TensorValue; // (H, Q, K)
  mask: Grid | null; // (Q, K) or (1, K)
}

export interface Fetched {
  layers: Map<string, LayerValues>; // by the id of the weights
  errors: Map<string, string>;
}

/** Of all heads, or of those that `slice` names. */
export async function fetchLayer(traceId: string, layer: AttentionLayer, slice = ""): Promise<LayerValues> {
  const weights = await source.tensor(traceId, layer.weights, slice);
  return { weights, mask: layer.mask ? asGrid(await source.tensor(traceId, layer.mask)) : null };
}

/** Of no trace, where none is wanted. */
export function useWeights(traceId: string | null, wanted: AttentionLayer[]): Fetched {
  const key = traceId && `${traceId}:${wanted.map((layer) => layer.weights).join()}`;
  const { value } = useResource<Fetched>(key, async (soFar) => {
    const [layers, errors] = [new Map<string, LayerValues>(), new Map<string, string>()];
    for (const layer of wanted) {
      try {
        layers.set(layer.weights, await fetchLayer(traceId!, layer));
      } catch (error) {
        errors.set(layer.weights, tell(error).message);
      }
      if (!soFar({ layers: new Map(layers), errors })) break;
    }
    return { layers, errors };
  });
  return value ?? { layers: new Map(), errors: new Map() };
}

/** What has not arrived of the weights that are wanted, or why it will not. */
export function Waiting({ fetched, wanted }: { fetched: Fetched; wanted: AttentionLayer[] }) {
  const [failed] = wanted.filter((layer) => fetched.errors.has(layer.weights));
  if (failed) return <p class="note note-bad">{`${failed.weights}: ${fetched.errors.get(failed.weights)}`}</p>;
  const here = wanted.filter((layer) => fetched.layers.has(layer.weights)).length;
  return here < wanted.length ? <p class="note">{`Fetching the weights: ${here} of ${wanted.length} blocks …`}</p> : null;
}
