/** Fetches the weights and masks of attention layers one after another, since a long text is traced layer by layer. */
import { source } from "../state/page";
import { type Resource, useResource } from "../state/resource";
import { type Grid, type TensorValue, toGrid } from "../tensors/tensor";
import type { AttentionLayer } from "../trace/heads";

export interface LayerValues {
  weights: TensorValue; // (H, Q, K)
  mask: Grid | null; // (Q, K) or (1, K)
}

/** Fetches all heads of a layer, or those of `slice`. */
export async function fetchLayer(traceId: string, layer: AttentionLayer, slice = ""): Promise<LayerValues> {
  const weights = await source.tensor(traceId, layer.weights, slice);
  const [pass = ""] = traceId.split("~"); // the mask of a difference is that of the pass after
  return { weights, mask: layer.mask ? toGrid(await source.tensor(pass, layer.mask)) : null };
}

/** By the id of the weights, as far as they are here. */
export function useWeights(traceId: string, wanted: AttentionLayer[]): Resource<Map<string, LayerValues>> {
  return useResource(`${traceId}:${wanted.map((layer) => layer.weights).join()}`, async (soFar) => {
    const layers = new Map<string, LayerValues>();
    for (const layer of wanted) {
      layers.set(layer.weights, await fetchLayer(traceId, layer));
      if (!soFar(new Map(layers))) break;
    }
    return layers;
  });
}
