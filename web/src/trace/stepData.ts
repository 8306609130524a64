/**
 * Access to the data of a step: inputs, parameters, one row or cell of them, and the tokens along its axes.
 * `operations.ts` computes with them.
 */
import { visible } from "../tensors/format";
import type { TensorValue } from "../tensors/tensor";
import type { Axis, Manifest, Prediction, Row, StreamName, TraceNode } from "../types";

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
export const width = (x: TensorValue) => x.shape.at(-1)!;
export const streamOf = (trace: Manifest, name: StreamName | undefined) => trace.streams.find((one) => one.name === name);

/** The tokens along an axis of a node. */
export function pieces({ trace }: Step, node: TraceNode | undefined, axis: number): string[] {
  const name = node?.axes.at(axis)?.stream;
  return streamOf(trace, name)?.pieces ?? [];
}

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

export const input = ({ node, get }: Step, i: number, slice = "") => get(node.inputs[i]!, slice);
export const inputData = async (step: Step, i: number, slice = "") => (await input(step, i, slice)).data;

/** A parameter's values, or some rows of them; null if the step has no parameter of this role. */
export async function param({ trace, node, get }: Step, role: string, rows?: readonly number[]) {
  const id = node.params[role];
  if (!id) return null;
  return (await get(id, rows && idsSlice(trace.params[id]?.axes[0]?.name ?? "out", rows))).data;
}

export async function requireParam(step: Step, role: string, rows?: readonly number[]) {
  const found = await param(step, role, rows);
  if (!found) throw new Unavailable(`the step has no parameter ${role}`);
  return found;
}

/** The slice of the row of a cell, of its head if there are heads. */
export function rowSlice({ node }: Step, { head, row }: Cell): string {
  const down = node.axes.at(-2)?.name;
  return down ? `${node.axes.length === 3 ? `head:${head};` : ""}${down}:${row}` : "";
}

/** The value of a cell, of the step itself or of input `i`. */
export async function cellValue(step: Step, cell: Cell, i?: number): Promise<number> {
  const slice = `${rowSlice(step, cell)};${step.node.axes.at(-1)?.name}:${cell.col}`;
  return (await step.get(i === undefined ? step.node.id : step.node.inputs[i]!, slice.replace(/^;/, ""))).data[0] ?? NaN;
}

/** The class or token to learn of each row of the logits; null where nothing is learned. */
export const labelsOf = ({ attrs }: TraceNode) => (attrs.labels ?? []) as (number | null)[];

const named = new WeakMap<Manifest, Map<number, string>>();

/** A token by its id, from all that the trace names; else the id. */
export function pieceOf(trace: Manifest, id: number): string {
  const { streams, predictions, learning, generation } = trace;
  let known = named.get(trace);
  if (!known) {
    const labels = generation.masked ? learning?.labels.filter((one) => one !== null) ?? [] : [];
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
