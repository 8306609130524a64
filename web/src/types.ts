/** Made by `make web` from explain/typescript.py and the classes it names: change it there. */
import type { Op } from "./sites";

export type { Op } from "./sites";

/** The stream of tokens an axis runs along. A classifier and a language model have "text" alone. */
export type StreamName = "text" | "source" | "target";

export type AxisName =
  | "token" // positions of its stream: queries, in attention
  | "key" // positions that are attended to
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

/** The line of this package that computes a record. */
export interface SourceLine {
  /** Relative to the package: "nn/attention.py". */
  file: string;
  /** Number of the first line of `code`, from 1. */
  line: number;
  /** Number of the line that does it, from 1. */
  mark: number;
  /** That line with a few around it, not indented. */
  code: string;
}

/** A step of the forward pass, without its values. */
export interface TraceNode {
  /** "encoder.0.self.weights", "decoder.1.cross.q", "embedding.sum", "logits": see explain/capture/wiring.py. */
  id: string;
  op: Op;
  inputs: string[];
  /** Role ("weight", "bias") to parameter id. */
  params: Record<string, string>;
  attrs: Record<string, number | string | boolean>;
  axes: Axis[];
  dtype: "f32" | "i32" | "u8";
  /** Of the finite values; null when the tensor is empty. */
  min: number | null;
  max: number | null;
  source: SourceLine | null;
  /** source, target, text: that stream's embedding. */
  stack: StreamName | "encoder" | "decoder" | "head";
  /** From 0. */
  layer: number | null;
  block: "self" | "cross" | "ff" | null;
}

/** A parameter that some node names. */
export interface Param {
  axes: Axis[];
}

/** One stream of tokens. */
export interface Stream {
  name: StreamName;
  ids: number[];
  /** As a person would write them: "▁" for a space, "refunds [UNK]" where an unknown word is spelled. */
  pieces: string[];
  /** [BOS], [EOS], [PAD], [MASK]. */
  special: boolean[];
  unknown: boolean[];
  padding: boolean[];
  /** The word each token belongs to, from 0; -1 for special tokens. */
  words: number[];
  /** The words as written, for clicking and erasing. */
  word_texts: string[];
  /** Characters of `text` each token stands for; null for special tokens. */
  spans: ([number, number] | null)[];
  text: string;
  /** How many of the tokens are the prompt, or a forced prefix; the model wrote the rest. */
  n_given: number;
  /** The n-grams that spell each token, "<ref" or "0xE2" for a byte; null: the model reads none. */
  ngrams: string[][] | null;
  /** Their numbers, 0 where a token has fewer than others. */
  ngram_ids: number[][] | null;
  /** The pair of words that each token ends, "" where it has no row; null: the model reads no pairs. */
  bigrams: string[] | null;
  /** The rows of the pairs, 0 for none. */
  bigram_ids: number[] | null;
}

/** A class or token with its logit and log-probability (nats). */
export interface Candidate {
  id: number;
  /** The class, or the token as a person would write it. */
  piece: string;
  logit: number;
  log_prob: number;
}

/** The token that follows. */
export interface NextToken extends Candidate {
  /** How many the model ranks before it. */
  rank: number;
}

/** What the model says after one position, or of a whole text. */
export interface Prediction {
  /** null: of the whole text, as a classifier does. */
  position: number | null;
  logsumexp: number;
  /** At most 50, best first; all classes, for a classifier. */
  top: Candidate[];
  /** The token that in fact follows. */
  actual: NextToken | null;
}

/** One extension of one hypothesis. */
export interface BeamCandidate {
  /** Row among the live hypotheses of the step before; of the first step always 0. */
  parent: number;
  id: number;
  piece: string;
  /** Of this token. */
  log_prob: number;
  /** Sum of log-probabilities so far. */
  total: number;
  /** total / length ** length_penalty. */
  score: number;
  /** Row among the live hypotheses after this step; null: pruned, or finished. */
  row: number | null;
  finished: boolean;
}

/** How the target came about. */
export interface DecodeLog {
  /** given: the user named the target; none: a classifier. */
  kind: "beam" | "sample" | "given" | "none";
  /** What it was decoded with. */
  settings: DecodeSettings;
  /** Best first: the `n_best` answers, then whatever else a beam finished on its way. */
  hypotheses: Hypothesis[];
  /** Of a beam search: the candidates looked at in each step, best first. */
  steps: BeamCandidate[][];
  /** Ids that were forced. */
  prefix: number[];
}

/** Where the model's own writing begins, and what it may not write. */
export interface Wrote {
  /** Position after which the first token stands that the model chose itself, or, where a whole translation was given, that it was asked about; 0 for a classifier, which writes nothing. */
  first: number;
  /** Tokens of the last stream that no prefix can change: [BOS], or the prompt as it was typed. */
  n_fixed: number;
  /** Ids that are never written. */
  banned: number[];
}

/** Ids of the tokens that are no words. */
export interface SpecialIds {
  pad: number;
  unk: number;
  bos: number;
  eos: number;
  mask: number;
}

/** What is known of the model itself. */
export interface ModelInfo {
  task: string;
  family: "encoder" | "encoder-decoder" | "decoder";
  /** The folder's name, not its path. */
  run: string;
  recipe: string;
  /** "model" (the best) or "step-00001000". */
  checkpoint: string;
  step: number | null;
  sha256: string | null;
  n_params: number;
  /** Of the ensemble; 1: a single model. */
  members: number;
  n_layers: number;
  n_decoder_layers: number;
  d_model: number;
  n_heads: number;
  d_head: number;
  d_ff: number;
  pre_norm: boolean;
  norm: string;
  positions: string;
  activation: string;
  qk_norm: boolean;
  pooling: string | null;
  vocab_size: number;
  max_len: number;
  label_names: string[] | null;
  word_mask_prob: number;
  tokenizer: string;
  special_ids: SpecialIds;
  versions: Record<string, string>;
}

/** A comparison of two ways to compute the same: how far apart they are, and how far they may be. */
export interface Check {
  name: string;
  value: number;
  tolerance: number;
  ok: boolean;
  /** One sentence. */
  meaning: string;
}

/** In a line, and how sure of it the model is. */
export interface Answer {
  /** A class, a translation, a continuation. */
  headline: string;
  /** Its probability in per cent, or its log-probability. */
  detail: string;
}

/** Which model of an ensemble is looked into. */
export interface EnsembleMember {
  /** How many models there are. */
  size: number;
  /** Which of them this is, counted from 1. */
  member: number;
  /** What this one says by itself, while the answer of an explanation is that of all of them. */
  own: Answer;
}

/** Something that is not shown, and the reason, a sentence each. */
export interface Omitted {
  what: string;
  why: string;
}

/** One text to look at. */
export interface TraceRequest {
  /** The text, the source sentence or the prompt. */
  text: string;
  /** A translation to look at instead of the model's own. */
  target?: string;
  /** Ids that the translation must begin with, or that follow the prompt. */
  prefix?: number[];
  /** Fields of `DecodeConfig` that differ from the run's. */
  decode?: Partial<DecodeSettings>;
  /** [PAD] tokens to append, to see that they change nothing. */
  pad?: number;
  /** "model" (the best weights) or a checkpoint's name. */
  checkpoint?: string;
  /** Which model of an ensemble, counted from 1. */
  member?: number;
  /** First position shown of a text too long to be shown whole. */
  window_start?: number;
}

/** Everything a page is told about one forward pass at once. Tensors are fetched one at a time, by node or parameter id. */
export interface Manifest {
  format: "glassformer-trace-1";
  id: string;
  model: ModelInfo;
  request: TraceRequest;
  /** In this order: ["text"], or ["source", "target"]. */
  streams: Stream[];
  answer: Answer;
  /** Of an ensemble: which of its models this is; `answer` is that of all. null: a single model. */
  together: EnsembleMember | null;
  /** In the order they are computed. */
  nodes: TraceNode[];
  params: Record<string, Param>;
  predictions: Prediction[];
  decode: DecodeLog;
  wrote: Wrote;
  checks: Check[];
  omitted: Omitted[];
  /** "3 of 9 tokens are unknown to the model", "cut to 256 tokens". */
  warnings: string[];
  /** Beyond 512 tokens only these positions, from a start to an end not included, of every token and key axis are shown; null: all. */
  window: [number, number] | null;
  seconds: number;
}

/** What to explain, and how. */
export interface AttributeRequest {
  trace: string;
  method: "erase" | "integrated_gradients";
  /** Which of `predictions`; the first token the model wrote itself when absent. */
  prediction?: number;
  /** Class or token id; what the model said, or the token that follows, when absent. */
  target?: number;
  /** Class or token id to contrast with; a classifier's runner-up, or nothing, when absent. */
  foil?: number;
}

/** A mean fall beside that of random rankings. */
export interface Faithfulness {
  value: number;
  random_mean: number;
  /** Where the middle 95% of random rankings begin. */
  random_low: number;
  /** Where they end. */
  random_high: number;
  /** The value lies beyond that band, on the good side. */
  beats_random: boolean;
}

/** How far the scores miss their sum, which must be f(x) − f(x') (completeness, section 3 of the paper). */
export interface Completeness {
  /** |sum of scores − (f(x) − f(x'))|, in the units of the question. */
  error: number;
  /** That, over |f(x) − f(x')|. */
  relative: number;
  /** Points of the path at which a gradient was taken. */
  n_steps: number;
  /** The relative error is at most 2%. */
  ok: boolean;
  /** Largest error of a single token's score, which the sum cannot see where errors cancel: how far it is from what a second rule gives, with points of its own and one more in each panel. */
  token_error: number;
}

/** Scores with what is needed to judge them. */
export interface Attribution {
  method: "erase" | "integrated_gradients";
  /** "logit of pos minus logit of neg", "log p of 'Hunde'". */
  quantity: string;
  target: Candidate;
  foil: Candidate | null;
  /** The quantity, of the text as it is. */
  value: number;
  /** With everything erased. */
  baseline_value: number;
  /** One number a token of each stream, in the units of the quantity: logits of a difference, nats of a log-probability. Special tokens, which are never erased, score 0, and so does what follows the position asked about. */
  scores: Partial<Record<StreamName, number[]>>;
  /** Of integrated gradients. */
  completeness: Completeness | null;
  /** Fall of the quantity when the best-ranked words are erased: more is better. */
  comprehensiveness: Faithfulness;
  /** Fall when only they are kept: less is better. */
  sufficiency: Faithfulness;
  /** Random rankings beside which this one is judged. */
  n_random: number;
  /** "[MASK]" or "[UNK]". */
  erased_with: string;
  warnings: string[];
  seconds: number;
}

/** What to say again with some tokens erased. */
export interface EraseRequest {
  /** Their positions, by stream. */
  erase: Partial<Record<StreamName, number[]>>;
  trace: string;
  prediction?: number;
  target?: number;
  foil?: number;
}

/** What the model says with some tokens erased. */
export interface Erased {
  prediction: Prediction;
  /** The quantity of an attribution, with the tokens erased. */
  value: number;
  /** The same of the text as it is. */
  original: number;
}

/** Where an alignment can be read. */
export interface ReadingPosition {
  layer: number;
  /** Where the token is the decoder's input, not where it is predicted. */
  shifted: boolean;
}

/** A place, and how well what is read there agrees with erasing. */
export interface ReadingScore {
  layer: number;
  shifted: boolean;
  /** Share of the written tokens whose aligned word is the one whose erasing costs them most; null: none is missed. */
  agreement: number | null;
}

/** Where the alignment of a translation can be read, the best place first (GET /api/trace/{id}/alignment). */
export interface Alignments {
  best: ReadingPosition;
  /** What the best of as many readings of this sentence would agree by chance; null: no token misses a word. */
  chance: number | null;
  readings: ReadingScore[];
}

/** A set of weights, and the update at which they stood. */
export interface CheckpointInfo {
  name: string;
  step: number | null;
}

/** Tokens of the longest texts kept whole and looked at by layers; traces that are kept; bytes of a text. */
export interface Limits {
  full: number;
  layered: number;
  max_traces: number;
  max_text_bytes: number;
}

/** What the page needs before anything is traced (GET /api/run). */
export interface RunInfo {
  model: ModelInfo;
  /** Texts to start with, real ones where the run has them. */
  examples: string[];
  /** Oldest first, "model" last. */
  checkpoints: CheckpointInfo[];
  defaults: DecodeSettings;
  limits: Limits;
  version: string;
  /** What the command was asked to show first: nothing, one text, or two to compare. The server alone sends it. */
  start?: TraceRequest[];
}

/** The weights of words, and what was asked. */
export interface Weighed {
  request: AttributeRequest;
  attribution: Attribution;
}

/** What is said with a word erased, and which one was. */
export interface WordErased {
  request: EraseRequest;
  erased: Erased;
}

/** A tensor in a file: little-endian, in base64. */
export interface Packed {
  dtype: "f16" | "f32" | "i32" | "u8";
  shape: number[];
  data: string;
}

/** What a saved page holds instead of a server. */
export interface ReportData {
  run: RunInfo;
  /** One, or two to compare. */
  traces: Manifest[];
  /** By trace id, then node or parameter id. Parameters that two traces of one checkpoint share are stored under the first. */
  tensors: Record<string, Record<string, Packed>>;
  attributions: Weighed[];
  /** Every word erased alone. */
  erased: WordErased[];
  /** By trace id, of translations. */
  alignments?: Record<string, Alignments>;
  /** Sentences: what did not fit, and how to see it. */
  dropped: string[];
}

/** Every error of the server, which has its HTTP status. */
export interface ApiError {
  error: ApiProblem;
}

/** One axis of a tensor; `stream` is that of the tokens along it. */
export interface Axis {
  name: AxisName;
  size: number;
  stream?: StreamName;
}

/** One text the model wrote. */
export interface Hypothesis {
  ids: number[];
  pieces: string[];
  text: string;
  score: number;
  log_prob: number;
  finished: boolean;
  /** Step, and index in that step's candidates, of the one it ended with. */
  end: [number, number] | null;
}

/** How a translator or a language model writes. */
export interface DecodeSettings {
  /** Hypotheses kept a step; 1 is greedy. */
  beam_size: number;
  /** Scores are divided by length ** this. */
  length_penalty: number;
  /** Hypotheses returned for each input. */
  n_best: number;
  /** Most tokens to write. */
  max_new_tokens: number;
  /** Sample instead of searching (a language model always samples). */
  sample: boolean;
  /** Logits are divided by this before sampling; 0 is greedy. */
  temperature: number;
  /** Sample among the k most probable tokens; 0 for all. */
  top_k: number;
  /** Sample among the fewest tokens that hold this share of the probability. */
  top_p: number;
  /** Drop tokens less probable than this share of the most probable one's. */
  min_p: number;
  /** Seed of sampling; the text for one prompt does not depend on the others. */
  decode_seed: number;
}

/** What went wrong, in a sentence, and what to do. */
export interface ApiProblem {
  kind: string;
  message: string;
  hint: string;
}
