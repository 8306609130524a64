/** A sentence for each step, and its formula, which is that of the table of operations. `steps.ts` has the titles, which the first view needs. */
import { number } from "../tensors/format";
import type { Manifest, ModelInfo, TraceNode, Tree } from "../types";
import { argumentsOf, rowOfStep } from "./operations";
import { entryOf, isGradient, leaf, PROBABILITIES } from "./steps";

const SPLIT = "Head 0 gets the first {d_head} features, head 1 the next. Heads attend independently of each other.";
const ROTATED = "Rotary position embedding: pairs of features are rotated by an angle proportional to the position, so that query · key depends on the distance.";
const ROOT = "is divided by its root mean square and multiplied by a trained weight.";
const NORMALISED = "is normalised (LayerNorm) to mean 0 and variance 1, then multiplied by a trained weight and shifted by a bias.";
const LAST = "Each token's vector is normalised before the output layer.";

/** {name} is replaced by a field of the model. For the keys see `steps.ts`. */
const STEPS: Record<string, string> = {
  ids: "The tokenizer maps the text to token ids, the input of the model.",
  rows: "Each id selects a row of the embedding table, a trained vector.",
  scaled: "Multiplied by √d, as in the paper (section 3.4).",
  ngram_ids: "Character n-grams of 3 to 5 letters of each token, with < and > at its ends, or its bytes.",
  "ngram_ids:hashed": "The n-grams of tokens that end at each token, each hashed to a row of a table.",
  "ngrams:sum": "The sum of the vectors of a token’s n-grams, which include the tokens before it.",
  ngrams: "The mean of the vectors of a token’s n-grams, which unknown words have, too.",
  with_ngrams: "The n-gram embedding is added to the token embedding.",
  bigram_ids: "The bigram of each token and the one before it, if it is in the bigram table; else 0.",
  bigrams: "Each bigram id selects a row of the bigram table; zeros where there is no bigram.",
  with_bigrams: "The bigram embedding is added to the token embedding.",
  segment_ids: "The segment of each token: 1 in the second text of a pair, else 0.",
  segments: "Each segment id selects a row of the segment table.",
  with_segments: "The segment embedding is added to the token embedding.",
  "embedding_norm:rms_norm": `The sum ${ROOT}`,
  embedding_norm: `The sum ${NORMALISED}`,
  positions: "Attention ignores order, so each position has a vector (here trained).",
  "positions:sinusoidal": "Attention ignores order, so each position has a vector: sinusoids of its index (paper, section 3.5).",
  sum: "The position vector is added. The sum is the start of the residual stream, to which every layer adds.",
  "norm:rms_norm": `Each token's vector ${ROOT}`,
  norm: `Each token's vector ${NORMALISED}`,
  final_norm: LAST,
  head_norm: LAST,
  q_proj: "A linear projection of {stream}: what each token looks for.",
  k_proj: "A linear projection of {stream}: what each token is found by.",
  v_proj: "A linear projection of {stream}: what each token passes on to those that attend to it.",
  q_heads: SPLIT,
  k_heads: SPLIT,
  q: SPLIT,
  k: SPLIT,
  v: SPLIT,
  "q:rotate": ROTATED,
  "k:rotate": ROTATED,
  products: "The dot product of every query with every key.",
  scores: "Divided by √d_head, since the variance of a dot product grows with d_head, which would saturate the softmax.",
  "scores:scaled": "Multiplied by a scale, which sets how sharp the softmax is.",
  mask: "[PAD] tokens only fill a batch and are masked.",
  "mask:word": "Only the first token of the word that is tagged goes into the head.",
  "mask:given": "The mask that the model was called with.",
  "mask:causal": "The causal mask: a token attends to itself and to earlier tokens. Masked positions are hatched.",
  weights: "Softmax of each row of scores: nonnegative weights that sum to 1.",
  context: "The output of each head: the mean of the values, weighted by attention.",
  concat: "The outputs of all heads are concatenated to one vector per token.",
  out: "A linear projection of the concatenated heads to the width of the residual stream.",
  residual: "Residual connection: the output of the block is added to its input.",
  w_gate: "A second projection, which gates each hidden feature.",
  w_in: "A linear projection of each token from {d_model} to {d_ff} features.",
  hidden: "A smooth version of ReLU.",
  "hidden:relu": "ReLU: negative values become 0.",
  "hidden:gelu_tanh": "GELU with Φ approximated by a hyperbolic tangent, as in GPT-2.",
  "hidden:swiglu": "SwiGLU: the SiLU of the gate multiplies the hidden projection.",
  "ff.out": "A linear projection back to the width of the residual stream.",
  pooled: "The token vectors are pooled into one vector.",
  pooler: "A linear projection of the pooled vector, before the classifier head.",
  "pooler_hidden:tanh": "The hyperbolic tangent: values from −1 to 1.",
  pooler_hidden: "ReLU: negative values become 0.",
  head: "The pooled vector times one weight vector: a single logit, whose sign decides the class.",
  mlm_transform: "A linear projection of each token’s final vector, before the token at its position is predicted.",
  mlm_hidden: "GELU: a smooth version of ReLU.",
  logits: "Each token's final vector times the embedding table: one logit per token of the vocabulary.",
  "logits:untied": "Each token's final vector times an output matrix: one logit per token of the vocabulary.",
  "logits:class": "A linear projection of the pooled vector: one logit per class, or a number.",
  "logits:pin_zero": "Two classes need only one logit: that of the first class is fixed at 0.",
  [PROBABILITIES]: "Softmax of the logits: the predicted probabilities.",
};

/** By operation: the steps of the loss, and the gradients, where g is the gradient of the result of the step. */
const OTHERS: Record<string, string> = {
  targets: "The target distribution: all on the right answer, but for the label smoothing.",
  cross_entropy: "How far the predicted probabilities are from the target, in nats. Without smoothing it is −log of the right answer’s probability.",
  mean_loss: "The loss: the mean over all labels.",
  error: "The output minus the right one.",
  square: "The loss: the squared error.",
  one: "The backward pass starts here: the loss with respect to itself.",
  "mean_loss.x": "Each label has the same part in the mean.",
  "cross_entropy.logits": "Probabilities minus targets: the right answer’s logit should grow, all others shrink.",
  "pin_zero.x": "The logit of the first class is fixed and learns nothing.",
  sum: "Several steps use this; what they pass back is added.",
  same: "An addition or subtraction passes its gradient back unchanged; so does each sum of the residual stream, which makes it easy to learn through.",
  "scale.x": "The gradient times the same factor as in the forward pass.",
  "linear.x": "Each input gets the gradients of all outputs, times the weights that lead to them.",
  "linear.weight": "Each token adds the gradient of the output times its input: the weight between two features learns where both are large.",
  bias: "A bias is added to each token’s vector: it gets the sum over tokens.",
  "lookup.weight": "The gradient of each token goes to the row of its id; all other rows get 0.",
  "embedding_bag.weight": "The gradient of each token goes to the rows of its n-grams.",
  "positions.weight": "The gradient of each token goes to the row of its position.",
  "norm.x": "What would change only the length of x (and its mean, where the norm removes that, too) is lost.",
  "norm.weight": "The sum over tokens of the gradient times the normalised input.",
  "concat_heads.x": "The gradient of the concatenated heads, head by head.",
  "split_heads.x": "The gradients of all heads, side by side.",
  "rotate.x": "Rotated back by the same angles.",
  "mix.weights": "How much each weight matters: the gradient of the output times the value it would add.",
  "dot.q": "Each query gets the keys, weighted by the gradients of its scores.",
  "mix.v": "Each value gets the gradients of the queries that attend to it, by their weights.",
  "dot.k": "Each key gets the queries, weighted by the gradients of their scores with it.",
  "softmax.scores": "A score matters as far as its gradient differs from the mean that the weights give; where the weight is 0 nothing is learned.",
  "relu.x": "Passed on where the input was positive, else 0.",
  "swiglu.gate": "The gate gets the gradient times the other branch and the slope of SiLU.",
  "swiglu.x": "The hidden projection gets the gradient times the SiLU of the gate.",
  "pool.x": "Each token gets its share of the pooled vector’s gradient: of a mean 1/L, of a maximum all where it is the largest.",
};

const SLOPE = "The gradient times the slope of the function at its input.";

function says(node: TraceNode, model: ModelInfo): string {
  const { op, inputs, id } = node;
  if (isGradient(node)) {
    const key = op === "sum" && inputs.length === 1 ? "same" : op.replace(/(layer|rms)_norm/, "norm").replace("padded_", "").replace(/:[^.]*/, "");
    return OTHERS[op.endsWith(".bias") ? "bias" : key] ?? SLOPE;
  }
  return OTHERS[op] ?? (id === "loss.probabilities" ? STEPS[PROBABILITIES] : entryOf(STEPS, node, model)) ?? "";
}

/** A short description of a step; of a difference, of what the two passes compute. */
export function sentence(node: TraceNode, { model }: Pick<Manifest, "model">): string {
  const memory = node.block === "cross" && leaf(node) !== "q_proj";
  const stream = memory ? "the encoder's output" : model.pre_norm ? "the normalised residual stream" : "the residual stream";
  const words = node.attrs.difference && leaf(node) === "weights" ? "Softmax of each row of scores; what one weight of a row gains, the others lose."
    : says(node, model).replace(/{(\w+)}/g, (_, name: string) => String({ ...model, stream }[name as keyof ModelInfo]));
  return node.attrs.difference ? `The change of this step, after minus before. In each of the two: ${words}` : words;
}

/** How the names of the table are written, where not as they are; and words around their arguments. */
const NAMES: Record<string, string> = {
  weight: "W", bias: "b", scores: "S", mask: "M", weights: "A", logits: "z", targets: "q", x_hat: "x̂", g_hat: "ĝ", variance: "σ^2", eps: "ε", e: "u", surprisal: "ℓ",
};
const WORDS: Record<string, (...x: string[]) => string> = {
  "+": (a, b) => `${a} + ${b}`, "-": (a, b) => `${a} − ${b}`, "*": (a, b) => `${a} · ${b}`, "/": (a, b) => `\\frac{${a}}{${b}}`, "@": (a, b) => `${a} ${b}`,
  T: (x) => `${x}^T`, exp: (x) => `e^{${x}}`, sq: (x) => `${x}^2`, rsqrt: (x) => `\\frac{1}{\\sqrt{${x}}}`, sum: (x) => `∑ ${x}`, max0: (x) => `max(0, ${x})`,
  positive: (x) => `[${x} > 0]`, nonzero: (x) => x!, atleast1: (x) => `max(1, ${x})`, peak_of: (x) => `max(${x})`, unmasked: (s, mask) => `(${s} where ${mask})`, gather: (table, ids) => `${table}[${ids}]`, flat: (x) => x!,
  row: (x) => x!, column_of: (g) => g!, by_row: (x) => x!, waves: () => "(sin, cos)~\\frac{t}{10000^{2i/C}}", cosines: () => "cos~θ_{t,j}", sines: () => "sin~θ_{t,j}",
};
/** Those whose arguments need no parentheses, and how tightly the others bind. */
const LOOSE = /^(\/|exp|unmasked|rsqrt|max0|positive|nonzero|atleast1|peak_of|gather|waves|cosines|sines|row|flat|column_of|by_row)$/;
const RANK: Record<string, number> = { "+": 1, "-": 1, "*": 2, "@": 2, sum: 2, T: 3, sq: 3 };

/** What is in the formula of a step that no expression gives. */
const SOURCES: Record<string, string> = {
  ids: "t_0, t_1, … = tokenizer(text)", ngram_ids: "g_t = ngrams(t)", bigram_ids: "b_t = bigram(t − 1, t)", segment_ids: "s_t = [t > separator]",
  causal: "M_{t,s} = [s ≤ t]", padding: "M_s = [t_s ≠ [PAD]]", word: "M_s = [s = w]", given: "M_{t,s}", one: "g = 1", targets: "q_i = (1 − ε) [i = y] + \\frac{ε}{V}", sum: "g = ∑ g_i",
};

/** The expression of a step in the subset of TeX of `How.tsx`, each definition that it uses on a line of its own. */
export function formula(node: TraceNode): string {
  const row = rowOfStep(node);
  if (!row?.gives) return SOURCES[String(node.attrs.kind)] ?? SOURCES[node.op] ?? "";
  const given = argumentsOf(node, row), names = { ...NAMES };
  const isMissing = (tree: Tree) => typeof tree === "string" && row.optional.includes(tree) && !(tree in given);
  const tex = (tree: Tree, rank = 0): string => {
    if (typeof tree === "number") return number(tree);
    if (typeof tree === "string") return tree !== "eps" && typeof node.attrs[tree] === "number" ? number(node.attrs[tree]) : names[tree] ?? tree;
    const [word, first, second] = tree;
    if ((word === "+" || word === "unmasked") && isMissing(second!)) return tex(first!, rank);
    const own = RANK[word] ?? 4;
    const parts = tree.slice(1).map((part, i) => tex(part as Tree, LOOSE.test(word) || !RANK[word] ? 0 : own + Number(i > 0 && word === "-")));
    const text = WORDS[word] ? WORDS[word](...parts) : `${word.replaceAll("_", "~")}(${parts.join(", ")})`;
    return own < rank ? `(${text})` : text;
  };
  const of = node.op.split(".")[1]!, lines: string[] = [];
  for (const [name, tree] of Object.entries(row.where)) {
    const text = tex(tree);
    if (/^\w+$/.test(text)) names[name] = text; // another name for the same
    else lines.push(`${names[name] ?? name} = ${text}`);
  }
  return [...lines, `${isGradient(node) ? `g_{${names[of] ?? of}}` : "y"} = ${tex(row.gives)}`].join("\n");
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
