/**
 * What the page is told about one forward pass: the one truth that Python (explain/manifest.py) and the page share.
 *
 * A manifest holds no tensors. Tensors are fetched one at a time by node id or parameter id (`source.ts`).
 */
import type { Op } from "./sites";

export type { Op } from "./sites";

/** The stream of tokens an axis runs along. A classifier and a language model have "text" alone. */
export type StreamName = "text" | "source" | "target";

export type AxisName =
  | "token" // positions of `stream` (queries, in attention)
  | "key" // positions of `stream` that are attended to
  | "head"
  | "feature" // D
  | "head_feature" // E, inside one head
  | "heads_features" // H·E, heads side by side
  | "hidden" // F
  | "pooled" // D or 2D
  | "class"
  | "vocab"
  | "ngram"
  | "bigram"
  | "out" // rows of a weight
  | "in"; // columns of a weight

export interface Axis {
  name: AxisName;
  size: number;
  stream?: StreamName;
}

export interface SourceLine {
  file: string; // relative to the package: "nn/attention.py"
  line: number; // 1-based, of the first line of `code`
  mark: number; // 1-based line that computes this node
  code: string; // a few lines around it
}

export interface TraceNode {
  /** "encoder.0.self.weights", "decoder.1.cross.q", "embedding.sum", "logits": see explain/capture/wiring.py. */
  id: string;
  op: Op;
  inputs: string[];
  /** role ("weight", "bias") to parameter id */
  params: Record<string, string>;
  attrs: Record<string, number | string | boolean>;
  axes: Axis[];
  dtype: "f32" | "i32" | "u8";
  /** Of the finite values; null when the tensor is empty. */
  min: number | null;
  max: number | null;
  source: SourceLine | null;
  stack: "source" | "target" | "text" | "encoder" | "decoder" | "head"; // source/target/text: that stream's embedding
  layer: number | null; // 0-based
  block: "self" | "cross" | "ff" | null;
}

export interface Param {
  axes: Axis[];
}

export interface Stream {
  name: StreamName;
  ids: number[];
  pieces: string[]; // as a person would write them: "▁" for a space; "refunds [UNK]" where an unknown word is spelled
  special: boolean[]; // [BOS], [EOS], [PAD], [MASK]
  unknown: boolean[];
  padding: boolean[];
  /** Word each token belongs to (0, 1, …), -1 for special tokens. */
  words: number[];
  /** The words as written, for clicking and erasing. */
  word_texts: string[];
  /** Characters of `text` each token stands for; null for special tokens. */
  spans: ([number, number] | null)[];
  text: string;
  /** How many of the tokens are the prompt (language model) or forced prefix; the model wrote the rest. */
  n_given: number;
  /** The n-grams that spell each token, "<ref" or "0xE2" for a byte; and their numbers, 0 where it has fewer than others. null: the model reads none. */
  ngrams: string[][] | null;
  ngram_ids: number[][] | null;
  /** The pair of words that each token ends, "" where it has no row; and its row, 0 for none. null: the model reads no pairs. */
  bigrams: string[] | null;
  bigram_ids: number[] | null;
}

export interface Candidate {
  id: number;
  piece: string;
  logit: number;
  log_prob: number;
}

/** What the model says after one position (or of the whole text, for a classifier: position null). */
export interface Prediction {
  position: number | null;
  logsumexp: number;
  top: Candidate[]; // at most 50, best first; all classes, for a classifier (id = class, piece = label)
  /** The token that in fact follows, with its rank (0 = best). */
  actual: (Candidate & { rank: number }) | null;
}

export interface BeamCandidate {
  parent: number; // row among the live hypotheses of the step before (step 0: always 0)
  id: number;
  piece: string;
  log_prob: number; // of this token
  total: number; // sum of log-probabilities so far
  score: number; // total / length ** length_penalty
  /** Row among the live hypotheses after this step; null: pruned, or finished. */
  row: number | null;
  finished: boolean;
}

export interface Hypothesis {
  ids: number[];
  pieces: string[];
  text: string;
  score: number;
  log_prob: number;
  finished: boolean;
  /** step and index in `steps[step]` of the candidate it ended with. */
  end: [number, number] | null;
}

export interface DecodeSettings {
  sample: boolean;
  beam_size: number;
  n_best: number;
  length_penalty: number;
  max_new_tokens: number;
  temperature: number;
  top_k: number; // 0: off
  top_p: number; // 1: off
  min_p: number; // 0: off
  decode_seed: number;
}

/** How the target came about. */
export interface DecodeLog {
  kind: "beam" | "sample" | "given" | "none"; // none: a classifier; given: the user named the target
  settings: DecodeSettings;
  steps: BeamCandidate[][]; // beam only: the candidates looked at in each step, best first
  hypotheses: Hypothesis[];
  prefix: number[]; // forced ids
}

/** Where the model's own writing begins, and what it may not write. */
export interface Wrote {
  /** Position after which the first token stands that the model chose itself; 0 where all was given, and for a classifier. */
  first: number;
  n_fixed: number; // tokens of the last stream that no prefix can change: [BOS], or the prompt as it was typed
  banned: number[]; // ids that are never written
}

export interface ModelFacts {
  task: "classify" | "translate" | "lm";
  family: "encoder" | "encoder-decoder" | "decoder";
  run: string; // the folder's name, not its path
  recipe: string;
  checkpoint: string; // "model" (the best) or "step-00001000"
  step: number | null;
  sha256: string | null;
  n_params: number;
  members: number; // of the ensemble; 1: a single model
  n_layers: number;
  n_decoder_layers: number;
  d_model: number;
  n_heads: number;
  d_head: number;
  d_ff: number;
  pre_norm: boolean;
  norm: "layer" | "rms";
  positions: "sinusoidal" | "learned" | "rotary" | "none";
  activation: "relu" | "gelu" | "swiglu";
  qk_norm: boolean;
  pooling: string | null;
  vocab_size: number;
  max_len: number;
  label_names: string[] | null;
  word_mask_prob: number;
  tokenizer: string;
  special_ids: Record<"pad" | "unk" | "bos" | "eos" | "mask", number>;
  versions: Record<string, string>;
}

export interface Check {
  name: string; // "explicit against fused attention"
  value: number;
  tolerance: number;
  ok: boolean;
  meaning: string; // one sentence
}

export interface Manifest {
  format: "glassformer-trace-1";
  id: string;
  model: ModelFacts;
  request: TraceRequest;
  /** In this order: ["text"], or ["source", "target"]. */
  streams: Stream[];
  answer: { headline: string; detail: string }; // "pos" / "87.2%"; the translation / its score; the continuation
  /** Of an ensemble: which of its models this is; `answer` is that of all. null: a single model. */
  together: Together | null;
  nodes: TraceNode[]; // in the order they are computed
  params: Record<string, Param>;
  predictions: Prediction[];
  decode: DecodeLog;
  wrote: Wrote;
  checks: Check[];
  omitted: { what: string; why: string }[];
  warnings: string[]; // "3 of 9 tokens are unknown to the model", "cut to 256 tokens"
  /** Beyond 512 tokens only this window [start, end) of every token and key axis is shown; null: everything. */
  window: [number, number] | null;
  seconds: number;
}

export interface Together {
  size: number;
  member: number; // which of them this trace is of, counted from 1
  own: Manifest["answer"]; // what this one says by itself
}

export interface TraceRequest {
  text: string;
  target?: string; // translate: teacher-force this translation instead of decoding
  prefix?: number[]; // ids the target must begin with (translate), or that follow the prompt (lm)
  decode?: Partial<DecodeSettings>;
  pad?: number; // [PAD] tokens to append, to see that they change nothing
  checkpoint?: string;
  member?: number; // of an ensemble, counted from 1
  window_start?: number;
}

export interface AttributeRequest {
  trace: string;
  method: "erase" | "integrated_gradients";
  /** Position whose next token is explained (index into `predictions`); ignored by a classifier. */
  prediction?: number;
  /** Class or token id explained; the predicted class, or the token that follows, when absent. */
  target?: number;
  /** Class or token id to contrast with; the runner-up class when absent (classify); none otherwise. */
  foil?: number | null;
}

export interface Faithfulness {
  value: number;
  random_mean: number;
  random_low: number; // 2.5% and 97.5% of random rankings
  random_high: number;
  beats_random: boolean;
}

export interface Attribution {
  method: "erase" | "integrated_gradients";
  /** "logit of pos minus logit of neg", "log p of 'Hunde'" */
  quantity: string;
  target: Candidate;
  foil: Candidate | null;
  value: number; // the quantity on the text as it is
  baseline_value: number; // with everything erased
  /** One number a token of each stream, in the units of the quantity; 0 for special tokens, which are kept. */
  scores: Partial<Record<StreamName, number[]>>;
  /** Integrated gradients: how far the scores miss their sum, and the largest error of one token's score, which the sum cannot see where errors cancel. */
  completeness: { error: number; relative: number; n_steps: number; ok: boolean; token_error: number } | null;
  /** Fall of the quantity when the best-ranked words are erased (more is better), and when only they are kept (less is better). */
  comprehensiveness: Faithfulness;
  sufficiency: Faithfulness;
  n_random: number;
  erased_with: string; // "[MASK]" or "[UNK]"
  warnings: string[];
  seconds: number;
}

export interface EraseRequest {
  trace: string;
  /** Positions replaced by the mask token, by stream. */
  erase: Partial<Record<StreamName, number[]>>;
  prediction?: number;
  target?: number;
  foil?: number | null;
}

export interface Erased {
  prediction: Prediction; // with the words erased
  value: number; // the quantity of `AttributeRequest` with the words erased
  original: number;
}

/** GET /api/trace/{id}/alignment, of a translation: where its alignment can be read, the best place first. */
export interface Alignments {
  best: { layer: number; shifted: boolean };
  /** What the best of as many readings of this sentence would agree by chance; null: no token misses a word. */
  chance: number | null;
  readings: {
    layer: number;
    shifted: boolean; // where the token is the decoder's input, not where it is predicted
    /** Share of the written tokens whose aligned word is the one whose erasing costs them most; null: none is missed. */
    agreement: number | null;
  }[];
}

/** GET /api/run: what the page needs before anything is traced. */
export interface RunFacts {
  model: ModelFacts;
  examples: string[]; // texts to start with, real ones where the run has them
  checkpoints: { name: string; step: number | null }[]; // oldest first, "model" last
  defaults: DecodeSettings;
  limits: { full: number; layered: number; max_traces: number; max_text_bytes: number };
  version: string;
  /** What the command was asked to show first: nothing, one text, or two to compare. The server alone sends it. */
  start?: TraceRequest[];
}

/** Every error of the server, with its HTTP status. */
export interface ApiError {
  error: { kind: string; message: string; hint: string };
}

/** What a report.html holds instead of a server. Arrays are little-endian base64. */
export interface ReportData {
  run: RunFacts;
  traces: Manifest[]; // one, or two to compare
  /** Parameters that two traces of one checkpoint share are stored under the first. */
  tensors: Record<string, Record<string, { dtype: "f16" | "f32" | "i32" | "u8"; shape: number[]; data: string }>>; // by trace id, then node or parameter id
  attributions: { request: AttributeRequest; attribution: Attribution }[];
  erased: { request: EraseRequest; erased: Erased }[]; // every word erased alone
  alignments?: Record<string, Alignments>; // by trace id, of translations
  dropped: string[]; // sentences: what did not fit, and how to see it
}
