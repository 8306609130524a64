/** Names of classes and tokens by their id, and which of them are to be learned. */
import { visible } from "../tensors/format";
import type { Manifest, TraceNode } from "../types";
import { axisLabels } from "./stepData";

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
