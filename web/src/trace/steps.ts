/**
 * The nodes of a trace as steps to walk through: of each its name, one sentence and its formula, and the groups they
 * stand in. What a step computes is in `operations.ts`.
 */
import { number, place } from "../tensors/format";
import type { Manifest, ModelInfo, TraceNode } from "../types";
import { PROBABILITIES, times } from "./stepData";

/** The step's part of a node id: "self.q_proj" of "encoder.0.self.q_proj", "rows" of "src_embedding.rows". */
export function role(node: TraceNode): string {
  const id = node.id.replace(/@\d+$/, "");
  const parts = id.split(".");
  if (node.layer !== null) return parts.slice(2).join(".");
  if (parts[1] === undefined) return id;
  return /embedding$/.test(parts[0] ?? "") ? parts[1] : parts[1] === "norm" ? "final_norm" : id;
}

/** The last name alone: "q_proj", whichever block it is in. */
export const leaf = (node: TraceNode) => role(node).split(".").at(-1)!;

type Words = [title: string, says: string, formula: string];

const split: Words = ["", "Feature h·{d_head} + e belongs to head h. Heads look independently of each other.", "#_t^{(h)} = #_t [h E : (h + 1) E]"];
const turned = "Pairs of features turn by an angle that grows with the position: query · key depends on the distance.";
const turn = "#_j^′ = #_j cos~θ_{t,j} ∓ #_{j ± E/2} sin~θ_{t,j}";
const rms = "y = \\frac{x}{\\sqrt{mean(x^2) + ε}} · γ";
const scaled = "is divided by its root mean square, then scaled feature by feature as trained.";
const summed = "What the block found is added to what was there. Nothing is overwritten: later layers still see the earlier ones.";
const last = "One last normalisation of every token's vector before the output reads it.";
const pooled = "All token vectors become one vector for the whole text.";

/**
 * By the last name of its id with its kind ("k:rotate"), else its part of the id ("ff.out"), else its last name ("k").
 * {words} are put in from the model's facts; # is the letter of queries, keys or values, % the amplitude of positions. Formulas: see `Formula.tsx`.
 */
const STEPS: Record<string, Words> = {
  ids: ["Token ids", "Each token's number in the vocabulary: all that the model is told.", "t_1, t_2, …, t_L = tokenizer(text)"],
  rows: ["Embedding rows", "Each id picks its row of the embedding table: a vector found by training.", "x_t = E[id_t]"],
  scaled: ["Embedding, scaled", "Times √d, as in the paper, so that the positions added next do not drown it.", "x_t · \\sqrt{d}"],
  spelling: ["N-grams", "How each token is spelled: its parts of 3 to 5 letters, < and > at its ends, or its bytes.", "g_t = spell(t)"],
  "spelling:hashed": ["N-grams", "The tokens before are read with each token: the n-grams it ends, each hashed to a row of a table.", "g_{t,n} = hash_n(t)"],
  "ngrams:sum": ["Sum of the n-grams", "The vectors of the n-grams that a token ends, added up: what stands before it is told before any layer looks back.", "s_t = ∑_n G[g_{t,n}]"],
  ngrams: ["Mean of the n-grams", "The vectors of a token’s n-grams, averaged: unknown words have them too.", "s_t = \\frac{1}{n} ∑_i G[g_{t,i}]"],
  spelled: ["Token + n-grams", "Token and n-grams in one vector.", "x_t = x_t + s_t"],
  pairs: ["Pairs of words", "The pair each token makes with the one before it, if it is a common one.", "b_t = pair(t − 1, t)"],
  bigrams: ["Rows of the pairs", "A common pair has a vector of its own: “not good” is not “not” and “good”. Zeros where there is none.", "w_t = W[b_t]"],
  paired: ["Word + pair", "Token and pair in one vector.", "x_t = x_t + w_t"],
  positions: ["Positions", "Attention does not see order, so every position has a vector of its own.", "p_t = P[t]"],
  "positions:sinusoidal": ["Positions", "Attention does not see order, so every position has a vector of its own.",
    "p_{t,2i} = %sin~\\frac{t}{10000^{2i/d}}\np_{t,2i+1} = %cos~\\frac{t}{10000^{2i/d}}"],
  sum: ["Embedding + position", "Token and position in one vector. Here the residual stream begins: every layer will add to it.", "x_t = x_t + p_t"],
  "norm:layer_norm": ["Norm", "Each token's vector is brought to mean 0 and variance 1, then scaled feature by feature as trained.",
    "y = \\frac{x − μ}{\\sqrt{σ^2 + ε}} · γ + β"],
  "norm:rms_norm": ["Norm", `Each token's vector ${scaled}`, rms],
  "final_norm:layer_norm": ["Final norm", last, "y = \\frac{x − μ}{\\sqrt{σ^2 + ε}} · γ + β"],
  "final_norm:rms_norm": ["Final norm", last, rms],
  q_proj: ["Queries, all heads", "A linear map of {stream} asks, for each token: what am I looking for?", "Q = x W_Q^T"],
  k_proj: ["Keys, all heads", "A linear map of {stream} offers, for each token: what can I be found by?", "K = x W_K^T"],
  v_proj: ["Values, all heads", "A linear map of {stream} holds, for each token: what do I hand over when I am looked at?", "V = x W_V^T"],
  q_heads: ["Queries by head", split[1], split[2]],
  k_heads: ["Keys by head", split[1], split[2]],
  q_norm: ["Queries, normalised", `Each head's query ${scaled}`, rms],
  k_norm: ["Keys, normalised", `Each head's key ${scaled}`, rms],
  q: ["Queries Q", split[1], split[2]],
  k: ["Keys K", split[1], split[2]],
  v: ["Values V", split[1], split[2]],
  "q:rms_norm": ["Queries Q", `Each head's query ${scaled}`, rms],
  "k:rms_norm": ["Keys K", `Each head's key ${scaled}`, rms],
  "q:rotate": ["Queries Q, rotated", turned, turn],
  "k:rotate": ["Keys K, rotated", turned, turn],
  products: ["Query · key", "Every query times every key, feature by feature, summed: large where they point the same way.", "P = Q K^T"],
  scores: ["Scores, scaled", "Divided by √d_head: sums over more features spread wider and would make the softmax too sharp.", "S = \\frac{Q K^T}{\\sqrt{d_{head}}}"],
  "scores:scaled": ["Scores, scaled", "Times a factor of its own: it sets how sharp the softmax will be.", "S = {factor} · Q K^T"],
  mask: ["Mask", "[PAD] tokens only fill up a batch; nobody may look at them.", "M_s = [t_s ≠ [PAD]]"],
  "mask:causal": ["Mask", "A token may look at itself and at what came before; the future is hatched.", "M_{t,s} = [s ≤ t]"],
  weights: ["Attention weights", "Softmax turns each row of scores into shares that sum to 1: how much this token takes from each other one.{cut}",
    "A_{t,s} = \\frac{e^{S_{t,s}}}{∑_r e^{S_{t,r}}}"],
  context: ["Weights · values", "Each token's new content in this head: the values of all tokens, averaged with its weights.", "C = A V"],
  concat: ["Heads side by side", "The heads' results side by side: one vector a token again.", "C = [C_1 ; … ; C_H]"],
  out: ["Output projection", "W_O mixes the heads into the width of the stream: what this attention has to say to each token.", "y = x W_O^T"],
  residual: ["Added to the stream", summed, "x ← x + Attention({x})"],
  "ff.residual": ["Added to the stream", summed, "x ← x + FeedForward({x})"],
  w_gate: ["Gate", "A second projection, which will open or close each hidden feature.", "g = x W_G^T"],
  w_in: ["Widened", "Each token by itself is widened from {d_model} to {d_ff} features.", "h = x W_1^T"],
  "hidden:relu": ["After the activation", "Negative features become 0: a feature speaks up or is silent.", "max(0, h)"],
  "hidden:gelu": ["After the activation", "GELU: like ReLU, but smooth; negative features fade to 0.", "h · Φ(h)"],
  "hidden:swiglu": ["After the activation", "The gate, through SiLU, multiplies the widened features.", "\\frac{g}{1 + e^{−g}} · h"],
  "ff.out": ["Narrowed again", "The hidden features are mapped back to the width of the stream.", "y = x W_2^T"],
  "pooled:mean": ["Pooled", pooled, "c = \\frac{1}{L} ∑_t x_t"],
  "pooled:max": ["Pooled", pooled, "c = max_t x_t"],
  "pooled:first": ["Pooled", pooled, "c = x_1"],
  "pooled:mean+max": ["Pooled", pooled, "c = [mean_t x_t ; max_t x_t]"],
  head: ["One score", "The pooled vector times one weight vector: a single score, whose sign is the decision.", "z = x w^T"],
  logits: ["Logits", "Each token's last vector is compared with every entry of the vocabulary: a score for each possible next token.", "z = x E^T"],
  "logits:untied": ["Logits", "Each token's last vector times an output matrix of its own: a score for each possible next token.", "z = x W^T"],
  "logits:class": ["Logits", "One score a class, any real number.", "z = x W^T"],
  "logits:pin_zero": ["Logits", "Two classes need one number: the first class's logit is fixed at 0, the second's is the score.", "z = (0, s)"],
  [PROBABILITIES]: ["Probabilities", "Softmax of the logits: the model's answer as shares that sum to 1.", "p_i = \\frac{e^{z_i}}{∑_j e^{z_j}}"],
};

function words(node: TraceNode, model?: ModelInfo): Words {
  const { kind, scheme, how, factor } = node.attrs;
  const across = node.axes.at(-1)?.name;
  const scaled = leaf(node) === "scores" && Math.abs(Number(factor) * Math.sqrt(model?.d_head ?? NaN) - 1) > 1e-6;
  const untied = across === "vocab" && !/embedding\.weight$/.test(node.params.weight ?? "embedding.weight");
  const variant = scaled ? "scaled" : untied ? "untied" : kind ?? scheme ?? how ?? (node.op === "linear" ? across : node.op);
  return STEPS[`${leaf(node)}:${variant}`] ?? STEPS[role(node)] ?? STEPS[leaf(node)] ?? [node.id, "", ""];
}

export const title = (node: TraceNode) => words(node)[0];

/** Whether keys that were looked at are not here: of a long text only a window is. */
export function isCut({ streams }: Pick<Manifest, "streams">, { axes }: TraceNode): boolean {
  const keys = axes.find((axis) => axis.name === "key");
  return keys !== undefined && keys.size < (streams.find((one) => one.name === keys.stream)?.pieces.length ?? 0);
}

/** One sentence on what the step does, or two. */
export function sentence(node: TraceNode, trace: Pick<Manifest, "model" | "streams">): string {
  const { model } = trace;
  const memory = node.block === "cross" && leaf(node) !== "q_proj";
  const stream = memory ? "the encoder's output" : model.pre_norm ? "the normalised stream" : "the stream";
  const cut = isCut(trace, node) ? " Only the keys of this window are here, so that a row here sums to less." : "";
  return words(node, model)[1].replace(/{(\w+)}/g, (_, name: string) => String({ ...model, stream, cut }[name as keyof ModelInfo]));
}

/** With its bias, if the step has one. */
export function formula(node: TraceNode, model: ModelInfo): string {
  const put: Record<string, string> = { x: model.pre_norm ? "Norm(x)" : "x", factor: number(Number(node.attrs.factor)) };
  return words(node, model)[2].replace(/#/g, leaf(node)[0]!).replace(/%/g, times(node)).replace(/{(x|factor)}/g, (_, name: string) => put[name]!)
    + (node.op === "linear" && node.params.bias ? " + b" : "");
}

/** Shares and counts grow from 0; everything else has a sign. */
export const scaleOfNode = (node: TraceNode) =>
  node.op === "softmax" || node.op === "mask" || node.dtype === "i32" ? "sequential" as const : "signed" as const;

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
    const last = groups.at(-1);
    const name = role(step) === "final_norm" && last ? last.name : place(step);
    if (last?.name === name) last.steps.push(step);
    else groups.push({ name, steps: [step] });
  }
  return groups;
}
