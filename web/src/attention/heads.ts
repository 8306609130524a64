/**
 * The attention blocks of a manifest, grouped as a person names them: an encoder's self-attention, a decoder's causal
 * self-attention, cross-attention. It reads node ids and axes; the weights themselves are fetched by the screens.
 */

import { isCut } from "../steps";
import type { Manifest, StreamName, TraceNode } from "../types";

export type Kind = "self" | "causal" | "cross";

export interface AttentionLayer {
  layer: number; // 0-based
  weights: string; // node id
  mask: string | null; // node id
  nHeads: number;
}

export interface AttentionGroup {
  kind: Kind;
  title: string;
  meaning: string;
  layers: AttentionLayer[];
  queries: StreamName;
  keys: StreamName;
  /** Of a long text: the weights of keys outside the window are not here, so that rows sum to less than 1. */
  cut: boolean;
}

const SAID: Record<Kind, [title: string, meaning: string]> = {
  self: ["Self-attention", "Every token (a row) takes from every token of the same text (the columns), before and after it."],
  causal: ["Causal self-attention", "Every token (a row) takes from itself and the tokens before it; what comes later is masked."],
  cross: ["Cross-attention", "Every target token (a row) takes from the encoder’s output for the source tokens (the columns)."],
};

export function kindOf(node: TraceNode): Kind {
  if (node.block === "cross") return "cross";
  return node.stack === "decoder" ? "causal" : "self";
}

/** The groups that this trace holds weights of, in the order they are computed. */
export function attentionGroups(manifest: Manifest): AttentionGroup[] {
  const groups = new Map<Kind, AttentionGroup>();
  const ids = new Set(manifest.nodes.map((node) => node.id));
  for (const node of manifest.nodes) {
    if (node.op !== "softmax" || node.layer === null || node.id.includes("@")) continue;
    const kind = kindOf(node);
    const axis = (name: string) => node.axes.find((one) => one.name === name);
    if (!groups.has(kind)) {
      const [title, meaning] = SAID[kind];
      const queries = axis("token")?.stream ?? manifest.streams.at(-1)!.name;
      groups.set(kind, { kind, title, meaning, layers: [], queries, keys: axis("key")?.stream ?? queries, cut: isCut(manifest, node) });
    }
    const mask = node.id.replace(/weights$/, "mask");
    groups.get(kind)!.layers.push({
      layer: node.layer, weights: node.id, mask: ids.has(mask) ? mask : null, nHeads: axis("head")?.size ?? 1,
    });
  }
  return [...groups.values()];
}
