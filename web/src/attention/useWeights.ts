/**
 * The weights and masks of some attention layers, fetched one after another so that a long text, which is traced
 * layer by layer, is not asked for everything at once. Pictures appear as their layer arrives.
 */

import { source } from "../state";
import type { TensorValue } from "../tensor";
import { asGrid, type Grid } from "./grid";
import type { AttentionLayer } from "./heads";
import { messageOf, useLoaded } from "./hooks";

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

export function useWeights(traceId: string | null, wanted: AttentionLayer[]): Fetched {
  const key = traceId && `${traceId}:${wanted.map((layer) => layer.weights).join()}`;
  const fetched = useLoaded<Fetched>(key, async (tell) => {
    const layers = new Map<string, LayerValues>();
    const errors = new Map<string, string>();
    for (const layer of wanted) {
      try {
        layers.set(layer.weights, await fetchLayer(traceId!, layer));
      } catch (error) {
        errors.set(layer.weights, messageOf(error));
      }
      if (!tell({ layers: new Map(layers), errors })) return;
    }
  });
  return fetched ?? { layers: new Map(), errors: new Map() };
}
