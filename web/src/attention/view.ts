/**
 * What the Attention screen shows, read from the page's address: which kind of attention, layer and head, in which
 * order, and whether special tokens are hidden. A node chosen on another screen opens the head nearest to it.
 */

import type { Manifest } from "../types";
import { attentionGroups, kindOf, type AttentionGroup, type AttentionLayer } from "./heads";
import { measuresOf, type Measure } from "./measures";

export interface View {
  name: "heads" | "alignment" | "flow";
  groups: AttentionGroup[];
  cross: AttentionGroup | undefined; // of a translator
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
    ?? groups.find((one) => node && node.layer !== null && one.kind === kindOf(node))
    ?? groups.at(-1);
  if (!group) return null;
  const wanted = node?.layer ?? Number(params.layer ?? 0);
  const layer = group.layers.find((one) => one.layer === wanted) ?? group.layers[0]!;
  const head = Number(params.head ?? 0);
  const cross = groups.find((one) => one.kind === "cross");
  return {
    name: params.view === "flow" ? "flow" : params.view === "alignment" && cross ? "alignment" : "heads",
    groups, cross, group, layer,
    head: Number.isInteger(head) && head >= 0 && head < layer.nHeads ? head : 0,
    sort: measuresOf(group === cross, group.cut).find(([name]) => name === params.sort)?.[0] ?? "model",
    hide: params.hide === "1",
  };
}
