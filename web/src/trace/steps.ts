/**
 * The nodes of a trace as steps, in groups, each with a title. `descriptions.ts` explains them, `operations.ts`
 * computes them.
 */
import { nodeLocation } from "../tensors/format";
import type { Manifest, ModelInfo, TraceNode } from "../types";
import { PROBABILITIES } from "./stepData";

/** What a step is, without its variant: "q_proj", "weights", "rows". */
export const leaf = (node: TraceNode) => (node.id === PROBABILITIES ? node.id : node.site.split(":")[0]!);

/** The same with its block, "self.q_proj"; a norm outside of blocks is the last of a stack, or of the output. */
export function role(node: TraceNode): string {
  const name = leaf(node);
  if (node.block !== null) return `${node.block}.${name}`;
  return name !== "norm" ? name : node.stack === "head" ? "head_norm" : "final_norm";
}

/** The key is the step with its variant ("k:rotate"), else with its block ("ff.out"), else alone ("k"). */
const TITLES: Record<string, string> = {
  ids: "Token ids",
  rows: "Embedding rows",
  scaled: "Embedding, scaled",
  ngram_ids: "N-gram ids",
  ngrams: "N-gram embedding",
  with_ngrams: "Token + n-grams",
  bigram_ids: "Bigram ids",
  bigrams: "Bigram embedding",
  with_bigrams: "Token + bigram",
  segment_ids: "Segment ids",
  segments: "Segment embedding",
  with_segments: "Token + segment",
  "embedding_norm:layer_norm": "Embedding norm",
  "embedding_norm:rms_norm": "Embedding norm",
  positions: "Positions",
  sum: "Embedding + position",
  "norm:layer_norm": "Norm",
  "norm:rms_norm": "Norm",
  "final_norm:layer_norm": "Final norm",
  "final_norm:rms_norm": "Final norm",
  q_proj: "Queries, all heads",
  k_proj: "Keys, all heads",
  v_proj: "Values, all heads",
  q_heads: "Queries by head",
  k_heads: "Keys by head",
  q: "Queries Q",
  k: "Keys K",
  v: "Values V",
  "q:rotate": "Queries Q, rotated",
  "k:rotate": "Keys K, rotated",
  products: "Query · key",
  scores: "Scores, scaled",
  mask: "Mask",
  weights: "Attention weights",
  context: "Weights · values",
  concat: "Heads concatenated",
  out: "Output projection",
  residual: "Residual sum",
  "ff.residual": "Residual sum",
  w_gate: "Gate",
  w_in: "Hidden projection",
  "hidden:relu": "Activation",
  "hidden:gelu": "Activation",
  "hidden:gelu_tanh": "Activation",
  "hidden:silu": "Activation",
  "hidden:swiglu": "Activation",
  "ff.out": "Output projection",
  "pooled:mean": "Pooled",
  "pooled:max": "Pooled",
  "pooled:first": "Pooled",
  "pooled:mean+max": "Pooled",
  pooler: "Pooler",
  "pooler_hidden:tanh": "Pooler activation",
  "pooler_hidden:relu": "Pooler activation",
  head: "Classifier head",
  mlm_transform: "Head projection",
  mlm_hidden: "Head activation",
  "head_norm:layer_norm": "Head norm",
  "head_norm:rms_norm": "Head norm",
  logits: "Logits",
  [PROBABILITIES]: "Probabilities",
};

/** The keys of a step in tables of titles and descriptions: with its variant, with its block, alone. */
export function keysOf(node: TraceNode, model?: ModelInfo): string[] {
  const { kind, scheme, how, factor } = node.attrs;
  const across = node.axes.at(-1)?.name;
  const scaled = leaf(node) === "scores" && Math.abs(Number(factor) * Math.sqrt(model?.d_head ?? NaN) - 1) > 1e-6;
  const untied = across === "vocab" && !/embedding\.weight$/.test(node.params.weight ?? "embedding.weight");
  const variant = scaled ? "scaled" : untied ? "untied" : kind ?? scheme ?? how ?? (node.op === "linear" ? across : node.op);
  const name = node.block === null ? role(node) : leaf(node);
  return [`${name}:${variant}`, role(node), name];
}

/** The first entry of a table for a step. */
export function entryOf<T>(table: Record<string, T>, node: TraceNode, model?: ModelInfo): T | undefined {
  return keysOf(node, model).map((key) => table[key]).find((found) => found !== undefined);
}

export const title = (node: TraceNode) => entryOf(TITLES, node) ?? node.id;

/** Sequential for weights, masks and ids, signed for other values. */
export const scaleOfNode = (node: TraceNode) =>
  !node.attrs.difference && (node.op === "softmax" || node.op === "mask" || node.dtype === "i32") ? "sequential" as const : "signed" as const;

/** All nodes, and the probabilities at the end. */
export function stepsOf(trace: Manifest): TraceNode[] {
  const logits = trace.nodes.find((node) => node.id === "logits");
  if (!logits || !trace.predictions.length) return trace.nodes;
  return [...trace.nodes, { ...logits, id: PROBABILITIES, op: "softmax", inputs: ["logits"], params: {}, attrs: logits.attrs.difference ? { difference: true } : {}, source: null, min: 0, max: 1 }];
}

export interface Group {
  name: string;
  steps: TraceNode[];
}

/** Steps in order, grouped: embedding, each block of each layer, output. */
export function groupsOf(steps: TraceNode[]): Group[] {
  const groups: Group[] = [];
  for (const step of steps) {
    const last = groups.at(-1);
    const name = role(step) === "final_norm" && last ? last.name : nodeLocation(step);
    if (last?.name === name) last.steps.push(step);
    else groups.push({ name, steps: [step] });
  }
  return groups;
}
