/**
 * What the Attention screen shows, read from the page's address: which kind of attention, layer and head, in which
 * order, and whether special tokens are hidden. A node chosen on another screen opens the head nearest to it.
 */

import type { Manifest } from "../types";
import { attentionGroups, kindOf, type AttentionGroup, type AttentionLayer } from "./heads";
import { MEASURES, type Measure } from "./measures";

export const VIEWS = ["heads", "alignment", "flow"] as const;
export type ViewName = (typeof VIEWS)[number];

export interface View {
  name: ViewName;
  groups: AttentionGroup[];
  group: AttentionGroup;
  layer: AttentionLayer;
  head: number;
  sort: Measure | "model";
  hide: boolean;
}

export function viewOf(manifest: Manifest, params: Record<string, string>): View | null {
  const groups = attentionGroups(manifest);
  const node = manifest.nodes.find((one) => one.id === params.node);
  const group = groups.find((one) => one.layers.some((layer) => layer.weights === node?.id))
    ?? (node && node.layer !== null ? groups.find((one) => one.kind === kindOf(node)) : undefined)
    ?? groups[groups.length - 1];
  if (!group) return null;
  const wanted = node?.layer ?? Number(params.layer ?? 0);
  const layer = group.layers.find((one) => one.layer === wanted) ?? group.layers[0]!;
  const head = Number(params.head ?? 0);
  const cross = groups.some((one) => one.kind === "cross");
  const view = VIEWS.find((one) => one === params.view) ?? "heads";
  return {
    name: view === "alignment" && !cross ? "heads" : view,
    groups,
    group,
    layer,
    head: Number.isInteger(head) && head >= 0 && head < layer.nHeads ? head : 0,
    sort: MEASURES.find(({ name, selfOnly }) => name === params.sort && !(selfOnly && group.kind === "cross"))?.name ?? "model",
    hide: params.hide === "1",
  };
}
