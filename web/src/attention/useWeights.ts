/**
 * The weights and masks of some attention layers, fetched one after another so that a long text, which is traced
 * layer by layer, is not asked for everything at once. Pictures appear as their layer arrives.
 */

import { useEffect, useState } from "preact/hooks";
import { source } from "../state";
import type { TensorValue } from "../tensor";
import type { Grid } from "./grid";
import type { AttentionLayer } from "./heads";

export interface LayerValues {
  weights: TensorValue; // (H, Q, K)
  mask: Grid | null; // (Q, K) or (1, K)
}

export interface Fetched {
  layers: Map<string, LayerValues>; // by the id of the weights
  errors: Map<string, string>;
  done: boolean;
}

const NOTHING: Fetched = { layers: new Map(), errors: new Map(), done: false };

export function maskGrid(value: TensorValue): Grid {
  const cols = value.shape.at(-1) ?? 1;
  return { rows: cols > 0 ? value.data.length / cols : 0, cols, data: value.data };
}

export async function fetchLayer(traceId: string, layer: AttentionLayer): Promise<LayerValues> {
  const weights = await source.tensor(traceId, layer.weights);
  const mask = layer.mask ? await source.tensor(traceId, layer.mask) : null;
  return { weights, mask: mask && maskGrid(mask) };
}

export function useWeights(traceId: string | null, wanted: AttentionLayer[]): Fetched {
  const key = `${traceId}:${wanted.map((layer) => layer.weights).join()}`;
  const [state, setState] = useState<Fetched & { key: string }>({ ...NOTHING, key: "" });
  useEffect(() => {
    if (!traceId || wanted.length === 0) return;
    let alive = true;
    const layers = new Map<string, LayerValues>();
    const errors = new Map<string, string>();
    const show = (done: boolean) => alive && setState({ key, layers: new Map(layers), errors: new Map(errors), done });
    const load = async () => {
      for (const [i, layer] of wanted.entries()) {
        try {
          layers.set(layer.weights, await fetchLayer(traceId, layer));
        } catch (error) {
          errors.set(layer.weights, error instanceof Error ? error.message : String(error));
        }
        if (!alive) return;
        show(i === wanted.length - 1);
      }
    };
    void load();
    return () => {
      alive = false;
    };
  }, [key]);
  return state.key === key ? state : NOTHING;
}
