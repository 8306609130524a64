/** Fetches the weights and masks of attention layers one after another, since a long text is traced layer by layer. */
import { source } from "../state/page";
import { useResource } from "../state/resource";
import { toErrorMessage } from "../state/signals";
import { type Grid, type TensorValue, toGrid } from "../tensors/tensor";
import type { AttentionLayer } from "../trace/heads";

export interface LayerValues {
  weights: TensorValue; // (H, Q, K)
  mask: Grid | null; // (Q, K) or (1, K)
}

interface Fetched {
  layers: Map<string, LayerValues>; // by the id of the weights
  errors: Map<string, string>;
}

/** Fetches all heads of a layer, or those of `slice`. */
export async function fetchLayer(traceId: string, layer: AttentionLayer, slice = ""): Promise<LayerValues> {
  const weights = await source.tensor(traceId, layer.weights, slice);
  const [pass = ""] = traceId.split("~"); // the mask of a difference is that of the pass after
  return { weights, mask: layer.mask ? toGrid(await source.tensor(pass, layer.mask)) : null };
}

/** `traceId` null: nothing is fetched. */
export function useWeights(traceId: string | null, wanted: AttentionLayer[]): Fetched {
  const key = traceId && `${traceId}:${wanted.map((layer) => layer.weights).join()}`;
  const { value } = useResource<Fetched>(key, async (soFar) => {
    const [layers, errors] = [new Map<string, LayerValues>(), new Map<string, string>()];
    for (const layer of wanted) {
      try {
        layers.set(layer.weights, await fetchLayer(traceId!, layer));
      } catch (error) {
        errors.set(layer.weights, toErrorMessage(error).message);
      }
      if (!soFar({ layers: new Map(layers), errors })) break;
    }
    return { layers, errors };
  });
  return value ?? { layers: new Map(), errors: new Map() };
}

/** The progress of fetching weights, or the error. */
export function Waiting({ fetched, wanted }: { fetched: Fetched; wanted: AttentionLayer[] }) {
  const [failed] = wanted.filter((layer) => fetched.errors.has(layer.weights));
  if (failed) return <p class="note note-bad">{`${failed.weights}: ${fetched.errors.get(failed.weights)}`}</p>;
  const here = wanted.filter((layer) => fetched.layers.has(layer.weights)).length;
  return here < wanted.length ? <p class="note">{`Loading attention weights: ${here} of ${wanted.length} layers …`}</p> : null;
}
