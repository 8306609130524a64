/**
 * The attention of a trace: its layers by kind (self-attention, causal self-attention, cross-attention), the tokens
 * along the rows and columns, and the head that the address selects.
 */
import { visible } from "../tensors/format";
import { at, type Grid, magnitude, mayAttend } from "../tensors/tensor";
import type { Manifest, StreamName, TraceNode } from "../types";
import { rowTexts } from "./generation";

type Measure = "entropy" | "previous" | "diagonal" | "change";

/** The applicable measures: cross-attention has no previous token, and the rows of a difference are no distributions. */
export const measuresOf = (cross: boolean, difference = false): [name: Measure, label: string, meaning: string][] => difference ? [
  ["change", "change", "The largest change of a weight, in either direction."],
] : [
  ["entropy", "entropy", "Normalized entropy of a row: 0 when all weight is on one token, 1 when it is uniform."],
  ...(cross ? [] : [["previous", "previous token", "Mean weight of each token on the token before it."] satisfies [Measure, string, string]]),
  ["diagonal", "diagonal", `Mean weight ${cross ? "within one token of the same relative position" : "of each token on itself"}.`],
];

const mean = (values: number[]): number | null => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

/** Mean over rows of −Σ w ln w / ln(number of keys the row may attend to); rows with one such key are skipped. */
export function entropy(weights: Grid, mask: Grid | null, queries: number[]): number | null {
  return mean(queries.flatMap((row) => {
    let keys = 0;
    let nats = 0;
    for (let col = 0; col < weights.cols; col++) {
      if (!mayAttend(mask, row, col)) continue;
      keys += 1;
      const weight = at(weights, row, col);
      if (weight > 0) nats -= weight * Math.log(weight);
    }
    return keys < 2 ? [] : nats / Math.log(keys);
  }));
}

/** Mean of w[q, q − 1] over the queries that have a token before them. */
export function previousTokenShare(weights: Grid, queries: number[]): number | null {
  return mean(queries.filter((row) => row >= 1).map((row) => at(weights, row, row - 1)));
}

/**
 * Mean weight within `halfWidth` keys of the diagonal, which runs from corner to corner: at query q it is at key
 * q·(K − 1)/(Q − 1).
 */
export function diagonality(weights: Grid, queries: number[], halfWidth: number): number | null {
  const slope = weights.rows > 1 ? (weights.cols - 1) / (weights.rows - 1) : 0;
  return mean(queries.map((row) => {
    let sum = 0;
    for (let col = 0; col < weights.cols; col++) {
      if (Math.abs(col - row * slope) <= halfWidth + 1e-9) sum += at(weights, row, col);
    }
    return sum;
  }));
}

/** One measure of one head; null where no row has more than one possible key. */
export function measure(name: Measure, weights: Grid, mask: Grid | null, queries: number[], cross: boolean): number | null {
  if (name === "change") return magnitude(weights.data);
  if (name === "entropy") return entropy(weights, mask, queries);
  return name === "previous" ? previousTokenShare(weights, queries) : diagonality(weights, queries, cross ? 1 : 0);
}

type Kind = "self" | "causal" | "cross";

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

const GROUPS: Record<Kind, [title: string, meaning: string]> = {
  self: ["Self-attention", "Every token (row) attends to every token of the same text (columns)."],
  causal: ["Causal self-attention", "Every token (row) attends to itself and to earlier tokens; later tokens are masked."],
  cross: ["Cross-attention", "Every target token (row) attends to the encoder output of the source tokens (columns)."],
};

function kindOf(node: TraceNode): Kind {
  if (node.block === "cross") return "cross";
  return node.stack === "decoder" ? "causal" : "self";
}

/** The groups of a trace, in order of computation. */
export function attentionGroups(manifest: Manifest): AttentionGroup[] {
  const ids = new Set(manifest.nodes.map((node) => node.id));
  const weights = manifest.nodes.filter((node) => node.op === "softmax" && node.layer !== null && !node.id.includes("@"));
  return [...Map.groupBy(weights, kindOf)].map(([kind, nodes]) => {
    const axis = (node: TraceNode, name: string) => node.axes.find((one) => one.name === name);
    const [title, meaning] = GROUPS[kind], queries = axis(nodes[0]!, "token")?.stream ?? manifest.streams.at(-1)!.name;
    const layers = nodes.map((node): AttentionLayer => {
      const mask = node.id.replace(/weights$/, "mask");
      return { layer: node.layer!, weights: node.id, mask: ids.has(mask) ? mask : null, nHeads: axis(node, "head")?.size ?? 1 };
    });
    return { kind, title, meaning, layers, queries, keys: axis(nodes[0]!, "key")?.stream ?? queries };
  });
}

/** A token along the rows or columns of a matrix. */
export interface Label {
  text: string;
  index: number; // position in the stream
  padding: boolean;
}

/** The labels of a stream. */
export function labelsOf(manifest: Manifest, name: StreamName): Label[] {
  const stream = manifest.streams.find((one) => one.name === name)!;
  return stream.pieces.map((piece, index) => ({
    text: visible(piece), index, padding: stream.padding[index]!,
  }));
}

/** The same along the rows: where a row computes the next token, "token read → token predicted". */
export function rowLabelsOf(manifest: Manifest, name: StreamName): Label[] {
  const texts = rowTexts(manifest, name);
  return labelsOf(manifest, name).map((label) => ({ ...label, text: texts[label.index]! }));
}

/** What the Attention screen shows. */
export interface View {
  groups: AttentionGroup[];
  cross: AttentionGroup | undefined; // of a translator
  group: AttentionGroup;
  layer: AttentionLayer;
  head: number;
  sort: Measure | "model";
  /** The weights are differences of weights. */
  difference: boolean;
}

/** The view that the address selects; a node of another kind selects the attention of its layer. */
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
  const difference = Boolean(node?.attrs.difference ?? manifest.nodes[0]?.attrs.difference);
  return {
    groups, cross, group, layer,
    head: Number.isInteger(head) && head >= 0 && head < layer.nHeads ? head : 0,
    sort: measuresOf(group === cross, difference).find(([name]) => name === params.sort)?.[0] ?? "model",
    difference,
  };
}
