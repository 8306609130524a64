/**
 * The attention blocks of a manifest, grouped as a person names them: an encoder's self-attention, a decoder's causal
 * self-attention, cross-attention. It reads node ids and axes; the weights themselves are fetched by the screens.
 */

import type { Manifest, Stream, StreamName, TraceNode } from "../types";

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
}

const TITLES: Record<Kind, { title: string; meaning: string }> = {
  self: {
    title: "Self-attention",
    meaning: "Every token (a row) takes from every token of the same text (the columns), before and after it.",
  },
  causal: {
    title: "Causal self-attention",
    meaning: "Every token (a row) takes from itself and the tokens before it; what comes later is masked.",
  },
  cross: {
    title: "Cross-attention",
    meaning: "Every target token (a row) takes from the encoder's output for the source tokens (the columns).",
  },
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
    const query = node.axes.find((axis) => axis.name === "token");
    const key = node.axes.find((axis) => axis.name === "key");
    const fallback = manifest.streams[manifest.streams.length - 1]!.name;
    let group = groups.get(kind);
    if (!group) {
      const queries = query?.stream ?? fallback;
      group = { kind, ...TITLES[kind], layers: [], queries, keys: key?.stream ?? queries };
      groups.set(kind, group);
    }
    const mask = node.id.replace(/weights$/, "mask");
    group.layers.push({
      layer: node.layer,
      weights: node.id,
      mask: ids.has(mask) ? mask : null,
      nHeads: node.axes.find((axis) => axis.name === "head")?.size ?? 1,
    });
  }
  return [...groups.values()];
}

/** Positions of a stream that a matrix of this trace has rows for: all of them, or those in the window. */
export function shownPositions(manifest: Manifest, stream: Stream): number[] {
  const [start, end] = manifest.window ?? [0, stream.ids.length];
  return Array.from({ length: Math.max(0, Math.min(end, stream.ids.length) - start) }, (_, i) => start + i);
}
