/**
 * The nodes of a trace as steps to walk through: their short names, one sentence each, and their groups.
 * What a step computes is in `formulas.tsx`, its numbers in `arithmetic.ts`.
 */
import { place } from "./format";
import { PROBABILITIES } from "./check";
import type { Manifest, ModelFacts, TraceNode } from "./types";

/** The step's part of a node id: "self.q_proj" of "encoder.0.self.q_proj", "rows" of "src_embedding.rows". */
export function role(node: TraceNode): string {
  const id = node.id.replace(/@\d+$/, "");
  if (node.layer !== null) return id.split(".").slice(2).join(".");
  const parts = id.split(".");
  if (parts.length === 1) return id;
  return /embedding$/.test(parts[0] ?? "") ? (parts[1] ?? id) : parts[1] === "norm" ? "final_norm" : id;
}

/** The last name alone: "q_proj", whichever block it is in. */
export const leaf = (node: TraceNode) => role(node).split(".").at(-1) ?? "";

const TITLES: Record<string, string> = {
  ids: "Token ids", rows: "Embedding rows", scaled: "Embedding, scaled", positions: "Positions", sum: "Embedding + position",
  final_norm: "Final norm", q_proj: "Queries, all heads", k_proj: "Keys, all heads", v_proj: "Values, all heads",
  q_heads: "Queries by head", k_heads: "Keys by head", q_norm: "Queries, normalised", k_norm: "Keys, normalised",
  q: "Queries Q", k: "Keys K", v: "Values V", products: "Query · key", scores: "Scores, scaled", mask: "Mask",
  weights: "Attention weights", context: "Weights · values", concat: "Heads side by side", out: "Output projection",
  residual: "Added to the stream", w_gate: "Gate", w_in: "Widened", hidden: "After the activation",
  pooled: "Pooled", head: "One score", logits: "Logits", [PROBABILITIES]: "Probabilities",
};

export function title(node: TraceNode): string {
  const name = leaf(node);
  if (role(node) === "final_norm") return "Final norm";
  if (name === "norm") return "Norm";
  if (role(node) === "ff.out") return "Narrowed again";
  if ((name === "q" || name === "k") && node.op === "rotate") return name === "q" ? "Queries Q, rotated" : "Keys K, rotated";
  return TITLES[name] ?? node.id;
}

const SAYS: Record<string, string> = {
  ids: "The tokenizer cut the text into tokens and gave each its number in the vocabulary. This is all the model is told.",
  rows: "Each id picks one row of the embedding table: a vector that training found for that token.",
  scaled: "The row is multiplied by √d, as in the paper, so that it is not drowned by the positions added next.",
  positions: "Attention does not see order, so every position has a vector of its own.",
  sum: "Token and position in one vector. Here the residual stream begins: every layer will add to it.",
  norm: "Each token's vector is shifted and stretched to mean 0 and variance 1, then scaled feature by feature as trained.",
  final_norm: "One last normalisation of every token's vector before the output reads it.",
  q_heads: "The same numbers, cut into one piece per head.", k_heads: "The same numbers, cut into one piece per head.",
  q_norm: "Each head's query is brought to length 1 times a trained scale.",
  k_norm: "Each head's key is brought to length 1 times a trained scale.",
  products: "Every query is multiplied with every key, feature by feature, and summed: large where they point the same way.",
  scores: "Divided by √d_head, since sums over more features would spread wider and make the softmax too sharp.",
  weights: "Softmax turns each row of scores into shares that sum to 1: how much this token takes from each other one.",
  context: "Each token's new content in this head: the values of all tokens, averaged with its weights.",
  concat: "The heads' results are laid side by side, back to one vector a token.",
  w_gate: "A second projection, which will open or close each hidden feature.",
  pooled: "All token vectors become one vector for the whole text.",
  head: "The pooled vector times one weight vector: a single score, whose sign is the decision.",
  [PROBABILITIES]: "Softmax of the logits: the model's answer as shares that sum to 1.",
};

/** Shares and counts grow from 0; everything else has a sign. */
export const scaleOfNode = (node: TraceNode) =>
  node.op === "softmax" || node.op === "mask" || node.op === "ids" ? "sequential" as const : "signed" as const;

/** One sentence on what the step does. */
export function sentence(node: TraceNode, model: ModelFacts): string {
  const name = leaf(node);
  const stream = model.pre_norm ? "the normalised stream" : "the stream";
  const from = node.block === "cross" ? "the encoder's output" : stream;
  switch (role(node) === "final_norm" ? "final_norm" : name) {
    case "q_proj":
      return `A linear map of ${stream} asks, for each token: what am I looking for?`;
    case "k_proj":
      return `A linear map of ${from} offers, for each token: what can I be found by?`;
    case "v_proj":
      return `A linear map of ${from} holds, for each token: what do I hand over when I am looked at?`;
    case "q": case "k":
      if (node.op === "rotate") return "Pairs of features are turned by an angle that grows with the position, so that query · key depends on the distance between tokens.";
      return `Head by head: feature h·${model.d_head} + e belongs to head h. Heads look independently of each other.`;
    case "v":
      return `Head by head: feature h·${model.d_head} + e belongs to head h.`;
    case "mask":
      return node.attrs.kind === "causal"
        ? "A token may look at itself and at what came before; the future is hatched."
        : "[PAD] tokens only fill up a batch; nobody may look at them.";
    case "norm":
      return model.norm === "rms" ? "Each token's vector is divided by its root mean square, then scaled feature by feature as trained." : (SAYS.norm ?? "");
    case "out":
      return node.block === "ff"
        ? "The hidden features are mapped back to the width of the stream."
        : "W_O mixes the heads into the width of the stream: what this attention has to say to each token.";
    case "w_in":
      return `Each token by itself is widened from ${model.d_model} to ${model.d_ff} features.`;
    case "hidden":
      return { relu: "Negative features become 0: a feature speaks up or is silent.",
        gelu: "GELU: like ReLU, but smooth; negative features fade to 0.",
        swiglu: "The gate, through SiLU, multiplies the widened features.", none: "" }[node.op === "relu" || node.op === "gelu" || node.op === "swiglu" ? node.op : "none"];
    case "residual":
      return "What the block found is added to what was there. Nothing is overwritten: later layers still see the earlier ones.";
    case "logits":
      if (node.op === "pin_zero") return "Two classes need one number: the first class's logit is fixed at 0, the second's is the score.";
      return node.axes.at(-1)?.name === "vocab"
        ? "Each token's last vector is compared with every entry of the vocabulary: one score for each possible next token."
        : "One score a class, any real number.";
    default:
      return SAYS[role(node) === "final_norm" ? "final_norm" : name] ?? "";
  }
}

/** All steps, with the probabilities at the end, which have no tensor of their own. */
export function stepsOf(trace: Manifest): TraceNode[] {
  const logits = trace.nodes.find((node) => node.id === "logits");
  if (!logits || !trace.predictions.length) return trace.nodes;
  return [...trace.nodes, { ...logits, id: PROBABILITIES, op: "softmax", inputs: ["logits"], params: {}, attrs: {}, source: null, min: 0, max: 1 }];
}

export interface Group {
  name: string;
  steps: TraceNode[];
}

/** Steps in their order, gathered by place: embedding, each block of each layer, output. */
export function groupsOf(steps: TraceNode[]): Group[] {
  const groups: Group[] = [];
  for (const step of steps) {
    const name = role(step) === "final_norm" ? groups.at(-1)?.name ?? place(step) : place(step);
    const last = groups.at(-1);
    if (last?.name === name) last.steps.push(step);
    else groups.push({ name, steps: [step] });
  }
  return groups;
}
