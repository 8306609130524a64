/**
 * The titles of steps. `list.ts` puts them in order, `descriptions.ts` explains them, `operations.ts` computes them.
 */
import type { ModelInfo, TraceNode } from "../types";
import { PROBABILITIES } from "./stepData";

/** Whether a node is the gradient of a step or parameter, or a part of one. */
export const isGradient = ({ id }: Pick<TraceNode, "id">) => /\.grad(\.|$)/.test(id);

/** What a step is, without its variant: "q_proj", "weights", "rows". */
export const leaf = (node: TraceNode) => (node.id === PROBABILITIES ? node.id : isGradient(node) ? gradientOf(node).split(".").at(-1)! : node.site.split(":")[0]!);

/** The step or parameter that a gradient is of. */
export const gradientOf = ({ id }: Pick<TraceNode, "id">) => id.replace(/\.grad(?=\.|$).*/, "");

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
  embedding_norm: "Embedding norm",
  positions: "Positions",
  sum: "Embedding + position",
  norm: "Norm",
  final_norm: "Final norm",
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
  w_gate: "Gate",
  w_in: "Hidden projection",
  hidden: "Activation",
  pooled: "Pooled",
  pooler: "Pooler",
  pooler_hidden: "Pooler activation",
  head: "Classifier head",
  mlm_transform: "Head projection",
  mlm_hidden: "Head activation",
  head_norm: "Head norm",
  logits: "Logits",
  [PROBABILITIES]: "Probabilities",
  softmax: "All probabilities",
  targets: "Targets",
  cross_entropy: "Cross-entropy",
  mean_loss: "Loss",
  error: "Error",
};

const LOSS_TITLES: Record<string, string> = { loss: "mean_loss", "loss.each": "cross_entropy" };

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

export const title = (node: TraceNode) => (isGradient(node) ? gradientTitle(node) : entryOf(TITLES, node) ?? node.id);

/** The title of the step whose gradient a node is, "Queries Q"; of a parameter its name within its layer. */
function gradientTitle(node: TraceNode): string {
  const of = gradientOf(node);
  const names = [LOSS_TITLES[of] ?? role(node), leaf(node)];
  const found = /\.(weight|bias)$/.test(of) ? of.replace(/^\w+\.layers\.\d+\./, "")
    : names.map((name) => TITLES[name] ?? Object.entries(TITLES).find(([key]) => key.startsWith(`${name}:`))?.[1]).find(Boolean) ?? of;
  const part = node.id.slice(of.length + ".grad.".length);
  return part ? `${found}, part from ${part}` : found;
}

/** Sequential for weights, masks and ids, signed for other values. */
export const scaleOfNode = (node: TraceNode) =>
  !node.attrs.difference && !isGradient(node) && (node.op === "softmax" || node.op === "mask" || node.dtype === "i32") ? "sequential" as const : "signed" as const;
