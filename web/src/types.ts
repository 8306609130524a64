/** Made by `make web` from explain/page/typescript.py and the classes it names: change it there. */
/** The stream of tokens an axis runs along. A classifier and a language model have "text" alone. */
export type StreamName = "text" | "source" | "target";
export type AxisName = "token" | "key" | "head" | "feature" | "head_feature" | "heads_features" | "hidden" | "pooled" | "class" | "vocab" | "ngram" | "bigram" | "out" | "in";

/** An expression: a name, a number, or a word with its arguments. */
export type Tree = string | number | [string, ...Tree[]];

/** All that the page needs to know of one forward pass. Tensors are fetched one at a time, by node or parameter id. */
export interface Manifest {
  format: "glassformer-trace-1";
  id: string;
  model: ModelInfo;
  request: TraceRequest;
  /** ["text"], or ["source", "target"]. */
  streams: Stream[];
  answer: Answer;
  /** Of a classifier of several labels all of them, and which is looked at; null for any other. */
  labels: Labels | null;
  /** Of a classifier the one that was fitted on the validation texts; null where none was, or to other weights. */
  temperature: number | null;
  /** The answer of all members of an ensemble; null: a single model. */
  together: Answer | null;
  /** In order of computation, with an answer to learn up to its loss. */
  nodes: TraceNode[];
  /** Those of the loss, of steps and parameters, in order of computation: from the loss to the first step. Empty without an answer to learn. */
  gradients: TraceNode[];
  /** The parameters that some node uses. */
  params: Record<string, { axes: Axis[] }>;
  predictions: Prediction[];
  decode: DecodeLog;
  checks: { name: string; value: number; ok: boolean; meaning: string }[];
  /** "3 of 9 tokens are unknown to the model", "cut to 256 tokens"; of a long text what is not shown. */
  warnings: string[];
  /** Why "edits", and so sweeps, "contributions" or "learn" are refused for this text, a sentence each. */
  refused: Record<string, string>;
  seconds: number;
  /** What the edits of the request change; null without edits. */
  edited: WhatIf | null;
  /** What is learned of the answer of the request, and how; null without one. */
  learning: LearningFacts | null;
}

/** The model: task, checkpoint, size, hyperparameters and special tokens. */
export interface ModelInfo {
  task: string;
  family: "encoder" | "encoder-decoder" | "decoder";
  /** The folder's name, not its path. */
  run: string;
  /** "model" (the best) or "step-00001000". */
  checkpoint: string;
  step: number | null;
  n_params: number;
  n_layers: number;
  n_decoder_layers: number;
  d_model: number;
  n_heads: number;
  d_head: number;
  d_ff: number;
  pre_norm: boolean;
  vocab_size: number;
  label_names: string[] | null;
  special_ids: Record<"pad" | "unk" | "bos" | "eos" | "mask", number>;
  /** Number of models in the ensemble, 1 of a single model. */
  n_members: number;
}

/** One text to explain. */
export interface TraceRequest {
  /** The text, the source sentence or the prompt. */
  text: string;
  /** A translation to explain instead of the model's own. */
  target?: string;
  /** Ids that the translation must start with, or that follow the prompt. */
  prefix?: number[];
  /** Fields of `DecodeConfig` that differ from the run's. */
  decode?: Partial<DecodeSettings>;
  /** "model" (the best weights) or a checkpoint's name; nothing else is ever used in a path. */
  checkpoint?: string;
  /** Model of an ensemble to trace, counted from 0. */
  member?: number;
  /** Edits of the forward pass; the tokens are those that are decoded without them. */
  edits?: string[];
  /** A second text, whose values the edits with =B take. */
  other_text?: string;
  /** Of several labels the one that is looked at; null: that of the answer, or the most probable one. Of a tagger the word, or its number from 1; null: the first whose tag is not O. */
  label?: string;
  /** The answer to learn: a class, a number, a translation, the next words, the words at [MASK]. */
  answer?: string;
  /** Steps of the optimizer on the answer, before the pass that is shown. */
  learn_steps?: number;
  /** Learning rate of these steps; null: that of the run. */
  lr?: number;
  /** Optimizer of these steps; null: that of the run. */
  optimizer?: string;
}

/** One stream of tokens. */
export interface Stream {
  name: StreamName;
  ids: number[];
  /** The tokens in readable form: "▁" for a space, "refunds [UNK]" for an unknown word read by its n-grams. */
  pieces: string[];
  /** True for [BOS], [EOS], [PAD] and [MASK]. */
  special: boolean[];
  unknown: boolean[];
  padding: boolean[];
  /** Index of the word each token belongs to; -1 for special tokens. */
  words: number[];
  /** The words as written in the text. */
  word_texts: string[];
  /** Characters (start, end) of `text` each token stands for; null for special tokens. */
  spans: ([number, number] | null)[];
  text: string;
  /** Number of tokens of the prompt or the forced prefix; the model generated the rest. */
  n_given: number;
  /** The n-grams of each token, "<ref" or "0xE2" for a byte; null: the model reads none. */
  ngrams: string[][] | null;
  /** Ids of the n-grams, padded with 0. */
  ngram_ids: number[][] | null;
  /** The word bigram that ends at each token, "" where the table has no row; null: the model reads none. */
  bigrams: string[] | null;
  /** Rows of the bigrams in the table, 0 for none. */
  bigram_ids: number[] | null;
}

/** The model's output in one line, with its probability. */
export interface Answer {
  /** A class, a number, a translation, a continuation; of a bare encoder the first numbers of its vector. */
  headline: string;
  /** Its probability in percent, or its log-probability; of a vector its length; of a number mean + sd × output. */
  detail: string;
}

/** The labels of a text, in the order of the model, or its words, and which of them is looked at. */
export interface Labels {
  /** Its index. */
  shown: number;
  each: { name: string; probability: number; threshold: number | null; word: string | null }[];
}

/** A step of a forward pass; as JSON without its numbers. */
export interface TraceNode {
  /** "encoder.0.self.weights", "decoder.1.cross.q", "embedding.sum", "logits": see explain/trace.py. */
  id: string;
  /** What kind of step it is, a key of `SITES`: "weights", "residual:pre"; of the loss or a gradient its operation. */
  site: string;
  /** The operation, a key of `OPERATIONS`. */
  op: string;
  /** Ids of the steps it was computed from, in the order of the operation's arguments. */
  inputs: string[];
  /** Names of parameters or buffers by role ("weight", "bias"). */
  params: Record<string, string>;
  /** The operation's constants, such as a factor or an epsilon. */
  attrs: Record<string, number | string | boolean | (number | null)[]>;
  /** Those of `value`. */
  axes: Axis[];
  /** The tensor, detached, without a batch axis of size 1, on "meta" if the numbers are not kept; as JSON its type. */
  value: "f32" | "i32" | "u8";
  /** The line that computes it; None where the source is not available. */
  source: SourceLine | null;
  /** source, target, text: the embedding of that stream. */
  stack: StreamName | "encoder" | "decoder" | "head";
  /** Counted from 0. */
  layer: number | null;
  block: "self" | "cross" | "ff" | null;
  /** Whether the forward pass uses its numbers, so that an edit of them changes what follows; no mask. */
  editable: boolean;
  /** Minimum of the finite values, of a step without its numbers; null where there is none. */
  min: number | null;
  max: number | null;
}

/** One axis of a tensor; `stream` names the tokens along it. */
export interface Axis {
  name: AxisName;
  size: number;
  stream: StreamName | null;
}

/** The source line of this package that computes a record. */
export interface SourceLine {
  /** Path relative to the package: "nn/attention.py". */
  file: string;
  /** Line number of the first line of `code`. */
  line: number;
  /** Line number of the line that computes the record. */
  mark: number;
  /** That line with a few lines around it, dedented. */
  code: string;
}

/** The prediction at one position, or for a whole text. */
export interface Prediction {
  /** null: for the whole text, by a classifier. */
  position: number | null;
  logsumexp: number;
  /** At most 50, best first; all classes, for a classifier. */
  top: Candidate[];
  /** The token that actually follows. */
  actual: Candidate | null;
  /** Number of tokens with a larger logit than it. */
  rank: number | null;
}

/** A class or token with its logit and log-probability (nats). */
export interface Candidate {
  id: number;
  /** The class, or the token in readable form. */
  piece: string;
  logit: number;
  log_prob: number;
}

/** How the text was decoded: where generated tokens begin, and how they were found. */
export interface DecodeLog {
  /** given: the target was part of the request; none: a classifier. */
  kind: "beam" | "sample" | "given" | "none";
  /** Settings of decoding. */
  settings: DecodeSettings;
  /** Best first: the `n_best` results, then the other finished hypotheses of a beam search. */
  hypotheses: Hypothesis[];
  /** The candidates of each step of a beam search, best first. */
  steps: BeamCandidate[][];
  /** Ids of the forced prefix. */
  prefix: number[];
  /** Position before the first generated token, or, for a given translation, before its first token; 0 for a classifier. */
  first: number;
  /** Number of tokens of the last stream that no prefix can change: [BOS], or the prompt. */
  n_fixed: number;
  /** Ids that are never generated. */
  suppressed: number[];
  /** Positions of [MASK], where the model predicts the token itself; null: it predicts the next token, or a class. */
  masked: number[] | null;
}

/** Decoding of a translator or a language model. */
export interface DecodeSettings {
  /** Beam size; 1 is greedy. */
  beam_size: number;
  /** Exponent of the length by which scores are divided. */
  length_penalty: number;
  /** Number of hypotheses returned per input. */
  n_best: number;
  /** Maximum number of generated tokens. */
  max_new_tokens: number;
  /** Sample instead of beam search (a language model always samples). */
  sample: boolean;
  /** Divisor of the logits before sampling; 0 is greedy. */
  temperature: number;
  /** Number of most probable tokens to sample from; 0 for all. */
  top_k: number;
  /** Probability mass of the most probable tokens to sample from (nucleus sampling). */
  top_p: number;
  /** Minimum probability of a token, relative to the most probable one. */
  min_p: number;
  /** Seed of sampling; the text for a prompt does not depend on the other prompts. */
  decode_seed: number;
}

/** One decoded text. */
export interface Hypothesis {
  ids: number[];
  pieces: string[];
  text: string;
  score: number;
  log_prob: number;
  finished: boolean;
  /** Step, and index among the candidates of that step, of its last candidate. */
  end: [number, number] | null;
}

/** One extension of one hypothesis. */
export interface BeamCandidate {
  /** Row among the live hypotheses of the previous step; 0 in the first step. */
  parent: number;
  id: number;
  piece: string;
  /** Log-probability of this token. */
  log_prob: number;
  /** Sum of log-probabilities so far. */
  total: number;
  /** total / length ** length_penalty. */
  score: number;
  /** Row among the live hypotheses after this step; null: pruned or finished. */
  row: number | null;
  finished: boolean;
}

/** The result of edits on one explanation. */
export interface WhatIf {
  /** The edits, as text. */
  edits: string[];
  /** The steps that they edit, in the order of application. */
  applied: { edit: number; step: string; slice: string; kind: "set" | "scale" | "B" | "mean" | "blocked" | "skip"; number: number; source: string }[];
  /** Edits that changed no number. */
  unchanged: string[];
  /** The class, or the text that was decoded, without edits. */
  answer_before: string;
  /** The same with edits; null where it was not decoded again. */
  answer_after: string | null;
  /** Why it was not decoded again; empty if it was. */
  why_not: string;
  /** Ids of the steps whose numbers are the same with edits, to the bit. */
  same: string[];
  /** What changes at each position that is predicted. */
  effects: Effect[];
  /** The member of an ensemble that is edited and gives both answers, alone; null: a single model. */
  member: number | null;
}

/** What edits change in one prediction. */
export interface Effect {
  /** Position of the prediction; null for the whole text, by a classifier. */
  position: number | null;
  /** The class or token that is followed: the model's own prediction, or the token that follows in the text. */
  target: string;
  /** What it is compared with: what the edited model predicts instead, else the second most probable. */
  contrast: string;
  /** The most probable class or token without edits. */
  before: string;
  /** The same with edits. */
  after: string;
  /** Logit of the target minus that of the contrast, without edits. */
  difference_before: number;
  /** The same with edits. */
  difference_after: number;
  /** Log-probability of the target without edits, in nats. */
  log_prob_before: number;
  /** The same with edits. */
  log_prob_after: number;
  /** Number of classes or tokens with a larger logit than the target, with edits. */
  rank_after: number;
}

/** What is learned and how, and what the steps taken changed. */
export interface LearningFacts {
  /** The answer to learn, as the model's vocabulary writes it. */
  answer: string;
  /** For each position the class or token that is right; null where nothing is learned. Empty for a number. */
  labels: (number | null)[];
  /** Of a number what the output should be, its distance from the mean of the training numbers in standard deviations; null for classes and tokens. */
  target: number | null;
  /** Its loss before the first step, in nats per label, or as the square of the output's error. */
  loss: number;
  /** The label smoothing of both losses; 0 for none, and of a number. */
  smoothing: number;
  /** The norm of all gradients from which they are clipped; 0 for no clipping. */
  max_grad_norm: number;
  /** The parameters by how the optimizer treats them. */
  groups: ParameterGroup[];
  /** What the run's training has, and learning here has not, in words. */
  left_out: string[];
  /** What the steps taken changed; null before the first. */
  learned: Learned | null;
}

/** The parameters that the optimizer treats alike. */
export interface ParameterGroup {
  /** "adamw", "adam", "sgd" or "muon"; with Muon the parameters that it leaves out have "adamw". */
  optimizer: string;
  /** The numbers of the formula, by PyTorch's names: lr, beta1, beta2, eps, weight_decay, momentum. */
  constants: Record<string, number>;
  /** The names of the parameters. */
  params: string[];
  /** The type in which Muon multiplies matrices, "float32" or "bfloat16"; all else is float32. */
  dtype: string;
}

/** What some steps of learning changed. */
export interface Learned {
  /** The steps taken. */
  steps: { loss: number; grad_norm: number; clipped: number; right: boolean }[];
  /** The loss after them, in nats per label, or as a squared error. */
  loss: number;
  /** Whether after them every label is the most probable one, or the number within 0.1 standard deviations. */
  right: boolean;
  /** For each parameter the norm of its change divided by its own. */
  moved: Record<string, number>;
  /** Texts whose answers were not learned. */
  others: OtherText[];
}

/** A text that the run was evaluated on and that is not learned here: learning one may be forgetting another. */
export interface OtherText {
  /** The text. */
  text: string;
  /** The answer that it should have. */
  answer: string;
  /** The loss of that answer before the steps, as that of the answer to learn, but without label smoothing. */
  loss_before: number;
  /** The same after them. */
  loss_after: number;
}

/** Description of a run, sent before anything is traced (GET /api/run). */
export interface RunInfo {
  model: ModelInfo;
  /** Example texts, from the evaluation of the run where it has been evaluated. */
  examples: string[];
  /** Oldest first, "model" last. */
  checkpoints: { name: string; step: number | null }[];
  /** Maximum traces kept, and bytes of a text. */
  limits: Record<"max_traces" | "max_text_bytes", number>;
  learn: LearnDefaults;
  /** The table of operations and gradients, by which the page computes a step again and writes its formula. */
  operations: Record<string, Row>;
  /** Requests given on the command line: none, one text, or two to compare. Only the server sends it. */
  start?: TraceRequest[];
}

/** How the run was trained, for steps of learning, and texts of its evaluation with their right answers. */
export interface LearnDefaults {
  optimizer: "adamw" | "adam" | "sgd" | "muon";
  lr: number;
  /** Learning rate of the matrices with Muon; it grows and shrinks with that of the request. */
  matrix_lr: number;
  examples: (Record<"text" | "answer", string>)[];
}

/** An operation or a gradient, ready to be executed: its arguments, definitions and expression as trees. `optional` are the arguments that a step may lack. */
export interface Row {
  arguments: string[];
  optional: string[];
  where: Record<string, Tree>;
  gives: Tree;
}

/** The prediction to explain, and the method; or the tokens to erase, and the prediction to repeat without them. */
export interface AttributeRequest {
  trace: string;
  method?: "erase" | "integrated_gradients";
  /** Index into `predictions`; default: the first generated token. */
  prediction?: number;
  /** Class or token id; default: the predicted class, or the token that follows. */
  target?: number;
  /** Class or token id to contrast with; default: the second most probable class, or none for tokens. */
  foil?: number;
  /** Positions of the tokens to erase, by stream. */
  erase?: Partial<Record<StreamName, number[]>>;
}

/** The scores of an attribution, with their error and faithfulness. */
export interface Attribution {
  method: "erase" | "integrated_gradients";
  /** "logit of pos minus logit of neg", "log p of 'Hunde'", "the number". */
  quantity: string;
  target: Candidate;
  foil: Candidate | null;
  /** The quantity for the text itself. */
  value: number;
  /** Score of each token by stream, in the units of the quantity: logits for a difference, nats for a log-probability. Special tokens, which are never erased, and tokens after the explained position score 0. */
  scores: Partial<Record<StreamName, number[]>>;
  /** The words of each stream as far as the explained position reads them: of the answer only what is before it. The empty text for a word that it does not read. */
  word_texts: Partial<Record<StreamName, string[]>>;
  /** Only for integrated gradients. */
  completeness: Completeness | null;
  /** Drop of the quantity when the top-ranked words are erased: higher is better. */
  comprehensiveness: Faithfulness;
  /** Drop of the quantity when only they are kept: lower is better. */
  sufficiency: Faithfulness;
  /** Number of random rankings it is compared with. */
  n_random: number;
  /** "[MASK]" or "[UNK]". */
  erased_with: string;
  warnings: string[];
  /** Index into `predictions` of the one that is explained; 0 for a classifier. */
  prediction: number;
}

/** The difference of the sum of the scores from f(x) − f(x'), to which it must be equal (section 3 of the paper). */
export interface Completeness {
  /** |sum of scores − (f(x) − f(x'))|, divided by |f(x) − f(x')|. */
  relative: number;
  /** Number of points of the path at which a gradient was computed. */
  n_steps: number;
  /** The relative error is at most 2%. */
  ok: boolean;
  /** Estimate of the largest error of a token's score, as errors can cancel in the sum: the difference from a second quadrature rule with one more point in each panel. */
  token_error: number;
}

/** A mean drop, compared with that of random rankings. */
export interface Faithfulness {
  value: number;
  random_mean: number;
  /** 2.5th percentile of random rankings. */
  random_low: number;
  /** 97.5th percentile of random rankings. */
  random_high: number;
  /** The value is better than that interval. */
  beats_random: boolean;
}

/** The prediction with some tokens erased. */
export interface Erased {
  prediction: Prediction;
  /** The quantity of an attribution with the tokens erased. */
  value: number;
  /** The quantity for the text itself. */
  original: number;
}

/** The same kind of edit all over a model, or the parts of a sum. */
export interface Sweep {
  /** In order of computation; checkpoints in that of training. */
  rows: SweepRow[];
  /** The class or token that is followed, of several the first; or "number". Of states the answer to this text. */
  target: string;
  /** Of contributions what it is compared with; for a number "mean of the training numbers". Of states the answer to the second text. */
  contrast: string;
  /** Position of the first prediction that is followed; null for a classifier or a number. */
  position: number | null;
  /** What is followed, without these edits; of contributions and states a logit difference, or the number minus that mean. */
  value: number;
  /** Of contributions their sum minus the value, which only rounding should leave. */
  error: number | null;
}

/** What one set of edits changes in what is followed of a text. */
export interface SweepRow {
  /** What is edited: a part ("encoder.0.self.head2", "encoder.0.ff"), an attention ("encoder.0.self"), a checkpoint; of layers the last state that is read; of states the state ("embedding", "encoder.0.state"). */
  name: string;
  /** The edits; none where nothing switches a part off. */
  edits: string[];
  /** What is followed, without edits: the sum over the predictions, or the number. */
  value_before: number;
  /** The same with edits. */
  value_after: number;
  /** The most probable class or token without edits where the log-probability falls most; the number, or an answer. */
  before: string;
  /** The same with edits. */
  after: string;
  /** Number of predictions that differ; a number differs where its text does, a checkpoint where its answer does. */
  n_changed: number;
  /** Position where the log-probability falls most; null for a classifier or a number. Of states that of the token. */
  position: number | null;
  /** Of layers the effect on each prediction. */
  effects: Effect[];
  /** Of a head the effect of switching off the other heads of the same block; null where there are none. */
  alone: SweepRow | null;
  /** Of a state what the state of this text changes in the second one; null in other sweeps. */
  back: SweepRow | null;
  /** Of contributions the term of the sum, with all norms held; null in other sweeps. */
  direct: number | null;
}

/** The data of a saved page. */
export interface SavedPageData {
  run: RunInfo;
  /** One trace, then that with edits or after steps of learning, then a second one to compare with. */
  traces: Manifest[];
  /** By trace id, then node, gradient or parameter id. Parameters that two traces of the same weights share are stored under the first. */
  tensors: Record<string, Record<string, { dtype: "f16" | "f32" | "i32" | "u8"; shape: number[]; data: string }>>;
  /** The weights of words, with the requests that they answer. */
  attributions: { request: AttributeRequest; attribution: Attribution }[];
  /** What is answered with a word erased, each alone. */
  erased: { request: AttributeRequest; erased: Erased }[];
  /** What the file lacks, and how to see it, a sentence each. */
  dropped: string[];
  /** The curves of the training, and what the model answered at each snapshot. */
  training?: { now: TrainingNow; texts: string[]; answers: ProbeAnswer[] };
  /** The address within the page that it begins at, "#/step?node=…"; default: Flow. */
  view?: string;
}

/** A training so far (GET /api/training); of lists of steps those after the requested one. */
export interface TrainingNow {
  state: "waiting" | "running" | "paused" | "finished" | "stopped" | "gone";
  /** The folder's name, not its path. */
  run: string;
  /** Another one than before: what was received is of an earlier log, and is to be dropped. */
  generation: number;
  /** The last step logged; 0: none. */
  step: number;
  seconds: number | null;
  /** Its budget in steps; null: in epochs. */
  steps: number | null;
  /** The score that chooses the weights. */
  metric: string;
  higher_is_better: boolean;
  /** Values of the same steps; null: not finite. */
  curve: Record<"step" | "seconds" | "loss" | "lr" | "grad_norm", number[]>;
  validations: StepMetrics[];
  /** The first and every fiftieth step, with the `update_ratios` of each matrix. */
  updates: StepMetrics[];
  /** What `glassformer doctor` says of the log so far. */
  findings: { matter: string; remedy: string; place: string; numbers: Record<string, number>; grade: "stop" | "look" | "know"; at: string }[];
  /** Snapshots and checkpoints of the weights, oldest first. */
  snapshots: { name: string; step: number | null }[];
  /** Whether the weights with the best validation are saved, as `model`. */
  has_model: boolean;
  /** Whether the page may pause and stop it now. */
  control: boolean;
  /** Why it may not, a sentence; null: it may, or nothing runs. */
  refused: string | null;
}

/** Metrics of an optimizer step and of the validation after it, if any; its line in `metrics.jsonl`. Attributes: loss: nats per label. lr, grad_norm (before clipping), tokens_per_s. padding: share of the batch. seconds: of training since the run began, those before a resume included. threads: of the CPU; fewer while other programs use it. valid: validation scores by name. update_ratios: ‖Δw‖ / ‖w‖ of this step by the name of each trained matrix; in the first and every fiftieth step. clipped: share of the steps since the last with ratios whose gradient was clipped. wait: share of this step's time that the main process spent making batches. best: the validation is the best so far, so that its weights are kept; logged where it is. paused: training pauses after this step, as `control.json` asks; logged where it does. progress: share of the budget that is used, and the seconds left; these two are not logged. */
export interface StepMetrics {
  step: number;
  loss: number;
  lr: number;
  grad_norm: number;
  padding: number;
  seconds: number;
  progress: number;
  update_ratios: Record<string, number> | null;
  clipped: number | null;
  wait: number | null;
  valid: Record<string, number> | null;
  best: boolean;
  paused: boolean;
}

/** What the model at a snapshot makes of a text. */
export interface ProbeAnswer {
  text: string;
  checkpoint: string;
  headline: string;
  detail: string;
  /** Of the answer, that of all its tokens together; null: of a bare encoder, or of masked tokens. */
  probability: number | null;
  /** Of a continuation the geometric mean of the probabilities of its tokens; null: of any other answer. */
  per_token: number | null;
  /** null: the text is too long to draw. */
  map: { step: string; rows: string[]; columns: string[]; weights: number[][] } | null;
}

/** Return `Explanation.sweep`; `trace` and `other` are ids of traces. */
export interface SweepRequest {
  trace: string;
  kind: "parts" | "keys" | "layers" | "contributions" | "states" | "checkpoints";
  other?: string;
  prediction?: number;
}

/** Ask the training for something, and return nothing. */
export interface ControlRequest {
  action: "pause" | "step" | "continue" | "stop";
}

/** Return the answer of a snapshot to a text; nothing is kept. */
export interface ProbeRequest {
  text: string;
  checkpoint: string;
}

export type FieldKind = "text" | "number" | "flag" | "numbers" | "words";

export const REQUEST_FIELDS: Partial<Record<FieldKind, string[]>> = {
  text: ["text", "target", "checkpoint", "other_text", "label", "answer", "optimizer"],
  numbers: ["prefix"],
  number: ["member", "learn_steps", "lr"],
  words: ["edits"],
};

export const SETTING_FIELDS: Partial<Record<FieldKind, string[]>> = {
  number: ["beam_size", "length_penalty", "n_best", "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "decode_seed"],
  flag: ["sample"],
};
