/**
 * The titles of steps. `descriptions.ts` explains them, `operations.ts` computes them.
 */
import { capital, visible } from "../tensors/format";
import type { TensorValue } from "../tensors/tensor";
import type { Axis, Manifest, ModelInfo, Prediction, Row, StreamName, TraceNode } from "../types";

/** Id of the last step, which has no node: the page computes probabilities from the logits. */
export const PROBABILITIES = "probabilities";

/** Every operation, and the gradient of each of its arguments: the table of Python, which is sent with the run. */
export const table: { rows: Record<string, Row> } = { rows: {} };

/** Thrown where a step cannot be recomputed, with the reason. */
export class Unavailable extends Error {}

export interface Cell {
  head: number;
  row: number;
  col: number;
  /** Position of the prediction, for logits and probabilities. */
  position: number;
}

export interface Term {
  label: string;
  /** Factors of a product. */
  a?: number;
  b?: number;
  value: number;
}

export interface Arithmetic {
  /** Lines of text before the terms or in place of them. */
  lines: string[];
  terms: Term[];
  /** Headings of label, a, b and value. */
  columns: [string, string, string, string];
  /** Added after the terms: a bias. */
  extra?: Term;
  /** Index of the term of the selected cell. */
  mark?: number;
  /** The recorded number that the sum is compared with. */
  value?: number;
}

/** Access to tensors. */
export interface TensorReader {
  /** True with a server: other texts can be traced. */
  readonly live: boolean;
  /** `slice`: "head:3;token:0-8" (see explain/record_store.py); an index drops its axis. */
  tensor(traceId: string, id: string, slice?: string): Promise<TensorValue>;
}

/** A step with access to its tensors. */
export interface Step {
  trace: Manifest;
  node: TraceNode;
  get: (id: string, slice?: string) => Promise<TensorValue>;
}

export function predictionAt(trace: Manifest, position: number): Prediction | undefined {
  return trace.predictions.find((one) => one.position === position) ?? trace.predictions[0];
}

/** Logits over a vocabulary and probabilities are shown, and computed again, as the candidates of one position. */
export const hasCandidates = (node: TraceNode) => node.id === PROBABILITIES || (node.axes.at(-1)?.name === "vocab" && node.op === "linear");

/** The stream of a node's tokens. */
export const tokensOf = ({ axes }: TraceNode) => axes.find((axis) => axis.name === "token")?.stream;

/** The position of a node's first row, not 0 with a cache. */
export const firstPosition = ({ node }: Pick<Step, "node">) => Number(node.attrs.first ?? 0);

/** Row of a prediction in the logits. */
export const rowOf = ({ predictions }: Manifest, prediction: Prediction) => (prediction.position ?? 0) - (predictions[0]?.position ?? 0);

/** A slice of ids, in ascending order; a single id as a range, which keeps the axis. */
export function idsSlice(axis: string, ids: readonly number[]): string {
  return ids.length === 1 ? `${axis}:${ids[0]}-${ids[0]! + 1}` : `${axis}:${ids.join(".")}`;
}

export const lastSize = (node: TraceNode) => node.axes.at(-1)!.size;
export const streamOf = (trace: Manifest, name: StreamName | null | undefined) => trace.streams.find((one) => one.name === name);

/** Labels along one axis: tokens or class names; undefined where it has none. */
export function axisLabels(trace: Manifest, axis: Axis): readonly string[] | undefined {
  const names = trace.model.label_names;
  if (axis.name === "class") return names?.length === axis.size ? names : undefined;
  if (!axis.stream || (axis.name !== "token" && axis.name !== "key")) return undefined;
  return streamOf(trace, axis.stream)?.pieces ?? [];
}

/** The n-grams of the token of a row. */
export const ngramsOf = (trace: Manifest, row: number) => trace.streams[0]?.ngrams?.[row] ?? [];

/** A step or gradient by its id. */
export const nodeOf = ({ nodes, gradients }: Pick<Manifest, "nodes" | "gradients">, id: string | undefined) =>
  nodes.find((one) => one.id === id) ?? gradients.find((one) => one.id === id);

/** The value of a cell, of the step itself or of input `i`. */
export async function cellValue({ node, get }: Step, { head, row, col }: Cell, i?: number): Promise<number> {
  const indices = [head, row, col].slice(-node.axes.length);
  const slice = node.axes.map(({ name }, axis) => `${name}:${indices[axis]}`).join(";");
  return (await get(i === undefined ? node.id : node.inputs[i]!, slice)).data[0] ?? NaN;
}

/** The class or token to learn of each row of the logits; null where nothing is learned. */
export const labelsOf = ({ attrs }: TraceNode) => (attrs.labels ?? []) as (number | null)[];

const named = new WeakMap<Manifest, Map<number, string>>();

/** A token by its id, from all that the trace names; else the id. */
export function pieceOf(trace: Manifest, id: number): string {
  const { streams, predictions, learning, decode } = trace;
  let known = named.get(trace);
  if (!known) {
    const labels = decode.masked ? learning?.labels.filter((one) => one !== null) ?? [] : [];
    const answer = learning?.answer.split(" ") ?? [];
    known = new Map([
      ...labels.map((label, i): [number, string] => [label, answer[i] ?? ""]),
      ...predictions.flatMap(({ actual, top }) => [...top, ...(actual ? [actual] : [])]).map((one): [number, string] => [one.id, one.piece]),
      ...streams.flatMap(({ ids, pieces }) => ids.map((one, i): [number, string] => [one, pieces[i]!])),
    ]);
    named.set(trace, known);
  }
  return known.get(id) ?? `#${id}`;
}

/** The class or token that a column of a step stands for. */
export const nameOf = (trace: Manifest, node: TraceNode, col: number) => visible(axisLabels(trace, node.axes.at(-1)!)?.[col] ?? pieceOf(trace, col));

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

/** The key is the step with its variant ("k:rotate"), else with its block ("ff.out"), else alone ("k"). A step without an entry is called as it is: "final_norm" "Final norm". */
const TITLES: Record<string, string> = {
  ids: "Token ids",
  rows: "Embedding rows",
  scaled: "Embedding, scaled",
  ngram_ids: "N-gram ids",
  ngrams: "N-gram embedding",
  with_ngrams: "Token + n-grams",
  bigrams: "Bigram embedding",
  with_bigrams: "Token + bigram",
  segments: "Segment embedding",
  with_segments: "Token + segment",
  sum: "Embedding + position",
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
  weights: "Attention weights",
  context: "Weights · values",
  concat: "Heads concatenated",
  out: "Output projection",
  residual: "Residual sum",
  w_gate: "Gate",
  w_in: "Hidden projection",
  hidden: "Activation",
  pooler_hidden: "Pooler activation",
  head: "Classifier head",
  mlm_transform: "Head projection",
  mlm_hidden: "Head activation",
  softmax: "All probabilities",
  cross_entropy: "Cross-entropy",
  mean_loss: "Loss",
};

const LOSS_TITLES: Record<string, string> = { loss: "mean_loss", "loss.each": "cross_entropy" };

/** The keys of a step in tables of titles and descriptions: with its variant, with its block, alone. */
function keysOf(node: TraceNode, model?: ModelInfo): string[] {
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

export const title = (node: TraceNode) => (isGradient(node) ? gradientTitle(node) : entryOf(TITLES, node) ?? plain(role(node)));

const plain = (name: string) => capital(name.split(".").at(-1)!.replaceAll("_", " "));

/** The title of the step whose gradient a node is, "Queries Q"; of a parameter its name within its layer. */
function gradientTitle(node: TraceNode): string {
  const of = gradientOf(node);
  const names = [LOSS_TITLES[of] ?? role(node), leaf(node)];
  const found = /\.(weight|bias)$/.test(of) ? of.replace(/^\w+\.layers\.\d+\./, "")
    : names.map((name) => TITLES[name] ?? Object.entries(TITLES).find(([key]) => key.startsWith(`${name}:`))?.[1]).find(Boolean) ?? plain(names[0]!);
  const part = node.id.slice(of.length + ".grad.".length);
  return part ? `${found}, part from ${part}` : found;
}

/** Sequential for weights, masks and ids, signed for other values. */
export const scaleOfNode = (node: TraceNode) =>
  !node.attrs.difference && !isGradient(node) && (node.op === "softmax" || node.op === "mask" || node.value === "i32") ? "sequential" as const : "signed" as const;
