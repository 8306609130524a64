/**
 * The attention of a trace: its blocks, grouped as a person names them (an encoder's self-attention, a decoder's causal
 * self-attention, cross-attention), the tokens along their rows and columns, and which head the address asks for. The
 * weights themselves are fetched by the views.
 */
import { visible } from "../tensors/format";
import { type Measure, measuresOf } from "../tensors/measures";
import type { Manifest, StreamName, TraceNode } from "../types";
import { windowOf } from "./stepData";
import { isCut } from "./steps";

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

/** A token along a matrix's rows or columns: which stream and position it stands for, and how it is written. */
export interface Label {
  text: string;
  stream: StreamName;
  index: number; // position in the stream
  /** [BOS], [EOS], [PAD] …: hidden on demand. */
  special: boolean;
  padding: boolean;
}

/** Of a long text, those in the window. */
export function labelsOf(manifest: Manifest, name: StreamName): Label[] {
  const stream = manifest.streams.find((one) => one.name === name)!;
  return stream.pieces
    .map((piece, index) => ({
      text: visible(piece), stream: name, index, special: stream.special[index]!, padding: stream.padding[index]!,
    }))
    .slice(...(windowOf(manifest, name) ?? []));
}

/** Rows or columns that are shown: all, or all but special tokens and padding. */
export function shownLabels(labels: Label[], hideSpecial: boolean): number[] {
  return [...labels.keys()].filter((i) => !hideSpecial || !(labels[i]!.special || labels[i]!.padding));
}

/** Rows that count in a measure: never padding. */
export function countedRows(labels: Label[], hideSpecial: boolean): number[] {
  return shownLabels(labels, hideSpecial).filter((i) => !labels[i]!.padding);
}

/** What is shown of it: which kind, layer and head, in which order, and whether special tokens are hidden. */
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

/** By the page's address. A node chosen on another screen opens the head nearest to it. */
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
