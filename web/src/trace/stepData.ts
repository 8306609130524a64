/**
 * A step's way to its numbers: inputs, parameters, one row or one cell of them, and the tokens along its axes.
 * What is computed from them is in `operations.ts`.
 */
import type { TensorValue } from "../tensors/tensor";
import type { Axis, Manifest, Prediction, StreamName, TraceNode } from "../types";

/** The last step has no node: probabilities are computed from the logits here. */
export const PROBABILITIES = "probabilities";

/** Why something cannot be computed again, in words. */
export class Unavailable extends Error {}

export interface Cell {
  head: number;
  row: number;
  col: number;
  /** Whose next token is looked at, for logits and probabilities. */
  position: number;
}

export interface Term {
  label: string;
  /** Factors, if it is a product. */
  a?: number;
  b?: number;
  value: number;
}

export interface Arithmetic {
  /** Said before the terms or instead of them, one line each. */
  lines: string[];
  terms: Term[];
  /** Names of label, a, b and value. */
  heads: [string, string, string, string];
  /** Added after the terms: a bias. */
  extra?: Term;
  /** The term that is the chosen cell's own. */
  mark?: number;
}

/** Where numbers are read from. */
export interface Reads {
  /** True with a server: other texts can be traced. */
  readonly live: boolean;
  /** `slice`: "head:3;token:0-8" (see explain/record_store.py); an index drops its axis. */
  tensor(traceId: string, id: string, slice?: string): Promise<TensorValue>;
}

/** A step with the way to its numbers. */
export interface Step {
  trace: Manifest;
  node: TraceNode;
  get: (id: string, slice?: string) => Promise<TensorValue>;
}

export function predictionAt(trace: Manifest, position: number): Prediction | undefined {
  return trace.predictions.find((one) => one.position === position) ?? trace.predictions[0];
}

/** The window of a stream that is too long to be here; null where it is whole, as a short one beside a long one is. */
export function windowOf({ window, nodes, streams }: Pick<Manifest, "window" | "nodes" | "streams">, name: StreamName | undefined) {
  const length = streams.find((one) => one.name === name)?.pieces.length;
  const whole = nodes.some(({ axes }) => axes.some((axis) => axis.name === "token" && axis.stream === name && axis.size === length));
  return whole ? null : window;
}

/** Where what is here of a stream begins. */
export const startOf = (trace: Manifest, name: StreamName | undefined) => windowOf(trace, name)?.[0] ?? 0;

/** The stream of a node's tokens. */
export const tokensOf = ({ axes }: TraceNode) => axes.find((axis) => axis.name === "token")?.stream;

/** The position that a node's first row has: later in a window, and with a cache. */
export const firstOf = ({ trace, node }: Pick<Step, "trace" | "node">) => startOf(trace, tokensOf(node)) + Number(node.attrs.first ?? 0);

/** Row of the logits: those of a window begin later. */
export const rowOf = ({ predictions }: Manifest, prediction: Prediction) => (prediction.position ?? 0) - (predictions[0]?.position ?? 0);

/** Candidates of one position as a slice: ids ascending; one id is written as a range, which keeps the axis. */
export function idsSlice(axis: string, ids: readonly number[]): string {
  return ids.length === 1 ? `${axis}:${ids[0]}-${ids[0]! + 1}` : `${axis}:${ids.join(".")}`;
}

export const sizeOf = (node: TraceNode, name: string) => node.axes.find((axis) => axis.name === name)?.size ?? 1;
export const last = (node: TraceNode) => node.axes.at(-1)!.size;
export const width = (x: TensorValue) => x.shape.at(-1)!;
export const streamOf = (trace: Manifest, name: StreamName | undefined) => trace.streams.find((one) => one.name === name);

/** The tokens along an axis: of a node's own, or of an input's. */
export function pieces({ trace }: Step, node: TraceNode | undefined, axis: number): string[] {
  const name = node?.axes.at(axis)?.stream;
  return streamOf(trace, name)?.pieces.slice(startOf(trace, name)) ?? [];
}

/** The tokens along one axis, or the classes' names, as labels; undefined where the axis has none. In a window only its own. */
export function axisLabels(trace: Manifest, axis: Axis): readonly string[] | undefined {
  const names = trace.model.label_names;
  if (axis.name === "class") return names?.length === axis.size ? names : undefined;
  if (!axis.stream || (axis.name !== "token" && axis.name !== "key")) return undefined;
  const start = startOf(trace, axis.stream);
  return streamOf(trace, axis.stream)?.pieces.slice(start, start + axis.size) ?? [];
}

/** The n-grams that spell the token of a row. */
export const ngramsOf = (trace: Manifest, row: number) => trace.streams[0]?.ngrams?.[row + startOf(trace, trace.streams[0].name)] ?? [];

/** What sinusoids are multiplied by, where it is not 1. */
export const times = ({ attrs }: TraceNode) => (attrs.amplitude === 1 ? "" : `${attrs.amplitude} · `);

export const inputNode = ({ trace, node }: Step, i: number) => trace.nodes.find((one) => one.id === node.inputs[i]);
export const input = ({ node, get }: Step, i: number, slice = "") => get(node.inputs[i]!, slice);
export const data = async (step: Step, i: number, slice = "") => (await input(step, i, slice)).data;

/** A parameter's numbers, or some rows of it; null if the step has none of this role. */
export async function param({ trace, node, get }: Step, role: string, rows?: readonly number[]) {
  const id = node.params[role];
  if (!id) return null;
  return (await get(id, rows && idsSlice(trace.params[id]?.axes[0]?.name ?? "out", rows))).data;
}

export async function needed(step: Step, role: string, rows?: readonly number[]) {
  const found = await param(step, role, rows);
  if (!found) throw new Unavailable(`the ${role} is not named`);
  return found;
}

/** The slice of the row that a cell is in: of its head, if there are heads. */
export function rowSlice({ node }: Step, { head, row }: Cell): string {
  const down = node.axes.at(-2)?.name;
  return down ? `${node.axes.length === 3 ? `head:${head};` : ""}${down}:${row}` : "";
}

/** The chosen number of the step itself, or the number at its place in an input. */
export async function one(step: Step, cell: Cell, i?: number): Promise<number> {
  const slice = `${rowSlice(step, cell)};${step.node.axes.at(-1)?.name}:${cell.col}`;
  return (await step.get(i === undefined ? step.node.id : step.node.inputs[i]!, slice.replace(/^;/, ""))).data[0] ?? NaN;
}

/** Of a stream that is cut, what lies outside the window is not here, so sums over it cannot be made again. */
export function needAll({ trace }: Step, summed: TraceNode["axes"][number] | undefined) {
  if (windowOf(trace, summed?.stream)) throw new Unavailable("only a window of this long text is here, and this sum runs over all of it");
}
