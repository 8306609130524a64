/** A description and a formula for each step. `steps.ts` has the titles, which the first view needs. */
import { number } from "../tensors/format";
import type { Manifest, ModelInfo, TraceNode } from "../types";
import { entryOf, isGradient, leaf } from "./steps";
import { PROBABILITIES, times } from "./stepData";

type Words = [says: string, formula: string];

const split: Words = ["Head 0 gets the first {d_head} features, head 1 the next. Heads attend independently of each other.", "#_t^{(h)} = #_t [h E : (h + 1) E]"];
const rotated = "Rotary position embedding: pairs of features are rotated by an angle proportional to the position, so that query · key depends on the distance.";
const rotation = "#_j^′ = #_j cos~θ_{t,j} ∓ #_{j ± E/2} sin~θ_{t,j}";
const layer = "y = \\frac{x − μ}{\\sqrt{σ^2 + ε}} · γ + β";
const rms = "y = \\frac{x}{\\sqrt{mean(x^2) + ε}} · γ";
const scaled = "is divided by its root mean square and multiplied by a trained weight.";
const summed = "Residual connection: the output of the block is added to its input.";
const last = "Each token's vector is normalised before the output layer.";
const pooled = "The token vectors are pooled into one vector.";

/**
 * The key is the step with its variant ("k:rotate"), else with its block ("ff.out"), else alone ("k").
 * {name} is replaced by a field of the model; # is the letter of queries, keys or values, % the amplitude of positions.
 * For the syntax of formulas see `How.tsx`.
 */
const STEPS: Record<string, Words> = {
  ids: ["The tokenizer maps the text to token ids, the input of the model.", "t_0, t_1, … = tokenizer(text)"],
  rows: ["Each id selects a row of the embedding table, a trained vector.", "x_t = E[id_t]"],
  scaled: ["Multiplied by √d, as in the paper (section 3.4).", "x_t · \\sqrt{d}"],
  ngram_ids: ["Character n-grams of 3 to 5 letters of each token, with < and > at its ends, or its bytes.", "g_t = ngrams(t)"],
  "ngram_ids:hashed": ["The n-grams of tokens that end at each token, each hashed to a row of a table.", "g_{t,n} = hash_n(t)"],
  "ngrams:sum": ["The sum of the vectors of a token’s n-grams, which include the tokens before it.", "s_t = ∑_n G[g_{t,n}]"],
  ngrams: ["The mean of the vectors of a token’s n-grams, which unknown words have, too.", "s_t = \\frac{1}{n} ∑_i G[g_{t,i}]"],
  with_ngrams: ["The n-gram embedding is added to the token embedding.", "x_t = x_t + s_t"],
  bigram_ids: ["The bigram of each token and the one before it, if it is in the bigram table; else 0.", "b_t = bigram(t − 1, t)"],
  bigrams: ["Each bigram id selects a row of the bigram table; zeros where there is no bigram.", "w_t = W[b_t]"],
  with_bigrams: ["The bigram embedding is added to the token embedding.", "x_t = x_t + w_t"],
  segment_ids: ["The segment of each token: 1 in the second text of a pair, else 0.", "s_t ∈ {0, 1}"],
  segments: ["Each segment id selects a row of the segment table.", "e_t = S[s_t]"],
  with_segments: ["The segment embedding is added to the token embedding.", "x_t = x_t + e_t"],
  "embedding_norm:layer_norm": ["The sum is normalised, then multiplied by a trained weight and shifted by a bias, as in BERT.", layer],
  "embedding_norm:rms_norm": [`The sum ${scaled}`, rms],
  positions: ["Attention ignores order, so each position has a vector (here trained).", "p_t = P[t]"],
  "positions:sinusoidal": ["Attention ignores order, so each position has a vector: sinusoids of its index (paper, section 3.5).",
    "p_{t,2i} = %sin~\\frac{t}{10000^{2i/d}}\np_{t,2i+1} = %cos~\\frac{t}{10000^{2i/d}}"],
  sum: ["The position vector is added. The sum is the start of the residual stream, to which every layer adds.", "x_t = x_t + p_t"],
  "norm:layer_norm": ["Each token's vector is normalised to mean 0 and variance 1, then multiplied by a trained weight and shifted by a bias.",
    layer],
  "norm:rms_norm": [`Each token's vector ${scaled}`, rms],
  "final_norm:layer_norm": [last, layer],
  "final_norm:rms_norm": [last, rms],
  q_proj: ["A linear projection of {stream}: what each token looks for.", "Q = x W_Q^T"],
  k_proj: ["A linear projection of {stream}: what each token is found by.", "K = x W_K^T"],
  v_proj: ["A linear projection of {stream}: what each token passes on to those that attend to it.", "V = x W_V^T"],
  q_heads: split,
  k_heads: split,
  q: split,
  k: split,
  v: split,
  "q:rotate": [rotated, rotation],
  "k:rotate": [rotated, rotation],
  products: ["The dot product of every query with every key.", "P = Q K^T"],
  scores: ["Divided by √d_head, since the variance of a dot product grows with d_head, which would saturate the softmax.", "S = \\frac{Q K^T}{\\sqrt{d_{head}}}"],
  "scores:scaled": ["Multiplied by a scale, which sets how sharp the softmax is.", "S = {factor} · Q K^T"],
  mask: ["[PAD] tokens only fill a batch and are masked.", "M_s = [t_s ≠ [PAD]]"],
  "mask:word": ["Only the first token of the word that is tagged goes into the head.", "M_s = [s = w]"],
  "mask:given": ["The mask that the model was called with.", "M_{t,s}"],
  "mask:causal": ["A token attends to itself and to earlier tokens. Masked positions are hatched.", "M_{t,s} = [s ≤ t]"],
  weights: ["Softmax of each row of scores: nonnegative weights that sum to 1.",
    "A_{t,s} = \\frac{e^{S_{t,s}}}{∑_r e^{S_{t,r}}}"],
  context: ["The output of each head: the mean of the values, weighted by attention.", "C = A V"],
  concat: ["The outputs of all heads are concatenated to one vector per token.", "C = [C_0 ; … ; C_{H−1}]"],
  out: ["A linear projection of the concatenated heads to the width of the residual stream.", "y = x W_O^T"],
  residual: [summed, "x ← x + Attention({read})"],
  "ff.residual": [summed, "x ← x + FeedForward({read})"],
  w_gate: ["A second projection, which gates each hidden feature.", "g = x W_G^T"],
  w_in: ["A linear projection of each token from {d_model} to {d_ff} features.", "h = x W_1^T"],
  "hidden:relu": ["ReLU: negative values become 0.", "max(0, h)"],
  "hidden:gelu": ["GELU: a smooth version of ReLU.", "h · Φ(h)"],
  "hidden:gelu_tanh": ["GELU with Φ approximated by a hyperbolic tangent, as in GPT-2.", "\\frac{h}{2} (1 + tanh(\\sqrt{2/π} (h + 0.044715 h^3)))"],
  "hidden:silu": ["SiLU: a smooth version of ReLU.", "\\frac{h}{1 + e^{−h}}"],
  "hidden:swiglu": ["SwiGLU: the SiLU of the gate multiplies the hidden projection.", "\\frac{g}{1 + e^{−g}} · h"],
  "ff.out": ["A linear projection back to the width of the residual stream.", "y = x W_2^T"],
  "pooled:mean": [pooled, "c = \\frac{1}{L} ∑_t x_t"],
  "pooled:max": [pooled, "c = max_t x_t"],
  "pooled:first": [pooled, "c = x_0"],
  "pooled:mean+max": [pooled, "c = [mean_t x_t ; max_t x_t]"],
  pooler: ["A linear projection of the pooled vector, before the classifier head.", "h = c W^T"],
  "pooler_hidden:tanh": ["The hyperbolic tangent: values from −1 to 1.", "tanh(h)"],
  "pooler_hidden:relu": ["ReLU: negative values become 0.", "max(0, h)"],
  head: ["The pooled vector times one weight vector: a single logit, whose sign decides the class.", "z = x w^T"],
  mlm_transform: ["A linear projection of each token’s final vector, before the token at its position is predicted.", "h = x W^T"],
  mlm_hidden: ["GELU: a smooth version of ReLU.", "h · Φ(h)"],
  "head_norm:layer_norm": ["Each token’s vector is normalised before the output layer.", layer],
  "head_norm:rms_norm": ["Each token’s vector is normalised before the output layer.", rms],
  logits: ["Each token's final vector times the embedding table: one logit per token of the vocabulary.", "z = x E^T"],
  "logits:untied": ["Each token's final vector times an output matrix: one logit per token of the vocabulary.", "z = x W^T"],
  "logits:class": ["A linear projection of the pooled vector: one logit per class, or a number.", "z = x W^T"],
  "logits:pin_zero": ["Two classes need only one logit: that of the first class is fixed at 0.", "z = (0, s)"],
  [PROBABILITIES]: ["Softmax of the logits: the predicted probabilities.", "p_i = \\frac{e^{z_i}}{∑_j e^{z_j}}"],
};

const words = (node: TraceNode, model?: ModelInfo): Words =>
  (isGradient(node) ? GRADIENTS[gradientKey(node)] : LOSS[node.op] ?? (node.id === "loss.probabilities" ? STEPS[PROBABILITIES] : entryOf(STEPS, node, model))) ?? ["", ""];

/** The steps of the loss, by operation. */
const LOSS: Record<string, Words> = {
  targets: ["The target distribution: all on the right answer, but for the label smoothing ε.", "q_i = (1 − ε) [i = y] + \\frac{ε}{V}"],
  cross_entropy: ["How far the predicted probabilities are from the target, in nats. Without smoothing it is −log of the right answer’s probability.", "ℓ = − ∑_i q_i log~p_i"],
  mean_loss: ["The loss: the mean over all labels.", "L = \\frac{1}{n} ∑_t ℓ_t"],
  error: ["The output minus the right one.", ""],
  square: ["The loss: the squared error.", ""],
};

/** Which description a gradient has: that of its operation, and where that has several uses that of the use. */
function gradientKey({ op, inputs }: TraceNode): string {
  if (op === "sum" && inputs.length === 1) return "same";
  return op.replace("layer_norm.bias", "linear.bias").replace("padded_", "").replace(/(pool|embedding_bag):[^.]*/, "$1");
}

const slope = (name: string, tex: string): Words => [`The gradient times the slope of ${name} at its input x.`, `g_x = g · ${tex}`];

/** By operation: g is the gradient of the result of the step, g_x that of its input x. */
const GRADIENTS: Record<string, Words> = {
  one: ["The backward pass starts here: the loss with respect to itself.", "g = 1"],
  "mean_loss.x": ["Each label has the same part in the mean.", "g_t = \\frac{g}{n}"],
  "cross_entropy.logits": ["Probabilities minus targets: the right answer’s logit should grow, all others shrink.", "g_z = (p − q) g"],
  "pin_zero.x": ["The logit of the first class is fixed and learns nothing.", "g_x = g_2"],
  sum: ["Several steps use this; what they pass back is added.", "g_x = ∑_y g_{x←y}"],
  same: ["An addition or subtraction passes its gradient back unchanged; so does each sum of the residual stream, which makes it easy to learn through.", "g_x = g"],
  "scale.x": ["The gradient times the same factor as in the forward pass.", "g_x = {factor} · g"],
  "linear.x": ["Each input gets the gradients of all outputs, times the weights that lead to them.", "g_x = g W"],
  "linear.weight": ["Each token adds the gradient of the output times its input: the weight between two features learns where both are large.", "g_W = g^T x = ∑_t g_t x_t^T"],
  "linear.bias": ["A bias is added to each token’s vector: it gets the sum over tokens.", "g_b = ∑_t g_t"],
  "lookup.weight": ["The gradient of each token goes to the row of its id; all other rows get 0.", "g_{E[i]} = ∑_{t: id = i} g_t"],
  "embedding_bag.weight": ["The gradient of each token goes to the rows of its n-grams.", "g_{G[i]} = ∑_t \\frac{g_t}{n_t}"],
  "positions:learned.weight": ["The gradient of each token goes to the row of its position.", "g_{P[t]} = g_t"],
  "layer_norm.x": ["What would change only the mean or the length of x is lost, since the norm removes it. z is the normalised x, ĝ = g · γ.", "g_x = \\frac{1}{σ} (ĝ − mean~ĝ − z · mean(ĝ z))"],
  "rms_norm.x": ["What would change only the length of x is lost, since the norm removes it. z is the normalised x, ĝ = g · γ.", "g_x = \\frac{1}{σ} (ĝ − z · mean(ĝ z))"],
  "layer_norm.weight": ["The sum over tokens of the gradient times the normalised input z.", "g_γ = ∑_t g_t z_t"],
  "rms_norm.weight": ["The sum over tokens of the gradient times the normalised input z.", "g_γ = ∑_t g_t z_t"],
  "concat_heads.x": ["The gradient of the concatenated heads, head by head.", "g^{(h)} = g [h E : (h + 1) E]"],
  "split_heads.x": ["The gradients of all heads, side by side.", "g = [g_0 ; … ; g_{H−1}]"],
  "rotate.x": ["Rotated back by the same angles.", "g_j^′ = g_j cos~θ_{t,j} ± g_{j ± E/2} sin~θ_{t,j}"],
  "mix.weights": ["How much each weight matters: the gradient of the output times the value it would add.", "g_A = g V^T"],
  "dot.q": ["Each query gets the keys, weighted by the gradients of its scores.", "g_Q = g K"],
  "mix.v": ["Each value gets the gradients of the queries that attend to it, by their weights.", "g_V = A^T g"],
  "dot.k": ["Each key gets the queries, weighted by the gradients of their scores with it.", "g_K = g^T Q"],
  "softmax.scores": ["A score matters as far as its gradient differs from the mean that the weights give; where the weight is 0 nothing is learned.", "g_S = A (g − ∑_r g_r A_r)"],
  "relu.x": ["Passed on where the input was positive, else 0.", "g_x = g [x > 0]"],
  "gelu.x": slope("GELU", "(Φ(x) + x φ(x))"),
  "gelu_tanh.x": slope("GELU", "(\\frac{1 + t}{2} + \\frac{x}{2} (1 − t^2) u^′)"),
  "silu.x": slope("SiLU", "s (1 + x (1 − s))"),
  "square.x": slope("the square", "2 x"),
  "tanh.x": slope("the hyperbolic tangent", "(1 − tanh^2 x)"),
  "swiglu.gate": ["The gate gets the gradient times the other branch h and the slope of SiLU; s is the sigmoid of the gate.", "g_u = g h · s (1 + u (1 − s))"],
  "swiglu.x": ["The hidden projection gets the gradient times the SiLU of the gate.", "g_h = g · \\frac{u}{1 + e^{−u}}"],
  "pool.x": ["Each token gets its share of the pooled vector’s gradient: of a mean 1/L, of a maximum all where it is the largest.", "g_{x_t} = s_t · g"],
};

/** A short description of a step; of a difference, of what the two passes compute. */
export function sentence(node: TraceNode, { model }: Pick<Manifest, "model">): string {
  const memory = node.block === "cross" && leaf(node) !== "q_proj";
  const stream = memory ? "the encoder's output" : model.pre_norm ? "the normalised residual stream" : "the residual stream";
  const says = node.attrs.difference && leaf(node) === "weights" ? "Softmax of each row of scores; what one weight of a row gains, the others lose."
    : words(node, model)[0].replace(/{(\w+)}/g, (_, name: string) => String({ ...model, stream }[name as keyof ModelInfo]));
  return node.attrs.difference ? `The change of this step, after minus before. In each of the two: ${says}` : says;
}

/** The formula, with its bias if the step has one. */
export function formula(node: TraceNode, model: ModelInfo): string {
  const put: Record<string, string> = { read: model.pre_norm ? "Norm(x)" : "x", factor: number(Number(node.attrs.factor)) };
  return words(node, model)[1].replace(/#/g, leaf(node)[0]!).replace(/%/g, times(node)).replace(/{(read|factor)}/g, (_, name: string) => put[name]!)
    + (node.op === "linear" && node.params.bias ? " + b" : "");
}

/** The pieces of a formula between which it may break: it breaks before its operators, outside of groups and brackets. */
export function piecesOf(tex: string): string[] {
  const pieces = [""];
  let depth = 0;
  for (const token of tex.match(/\\\w+|\s+|./gu) ?? []) {
    if (/^[{([]$/.test(token)) depth++;
    if (/^[})\]]$/.test(token)) depth--;
    if (depth === 0 && /^[=+∓·←]$/.test(token)) pieces.push("");
    pieces[pieces.length - 1] += token;
  }
  return pieces.filter((piece) => piece.trim());
}
