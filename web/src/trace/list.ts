/** The steps of a trace in order, those of the forward pass or those of the backward pass, and in groups. */
import { nodeLocation } from "../tensors/format";
import type { Manifest, TraceNode } from "../types";
import { PROBABILITIES } from "./stepData";
import { gradientOf, role } from "./steps";

/** All nodes, with the probabilities after the logits; or all gradients, from the loss to the embedding. */
export function stepsOf(trace: Manifest, gradients = false): TraceNode[] {
  if (gradients) return gradientsOf(trace);
  const at = trace.nodes.findIndex((node) => node.id === "logits");
  const logits = trace.nodes[at];
  if (!logits || !trace.predictions.length) return trace.nodes;
  const shares: TraceNode = { ...logits, id: PROBABILITIES, op: "softmax", inputs: ["logits"], params: {}, attrs: logits.attrs.difference ? { difference: true } : {}, source: null, min: 0, max: 1 };
  return [...trace.nodes.slice(0, at + 1), shares, ...trace.nodes.slice(at + 1)];
}

/** The gradients in order of computation, those of parameters after that of the first step that uses them, and in its place. */
function gradientsOf({ nodes, gradients }: Manifest): TraceNode[] {
  const users = new Map([...nodes].reverse().flatMap((node) => Object.values(node.params).map((param): [string, TraceNode] => [param, node])));
  const ofSteps = gradients.filter((one) => !users.has(gradientOf(one)));
  return ofSteps.flatMap((one) => [one, ...(one.id === `${gradientOf(one)}.grad` ? gradients : []).flatMap((other) => {
    const user = users.get(gradientOf(other));
    return user?.id === gradientOf(one) ? [{ ...other, stack: user.stack, layer: user.layer, block: user.block }] : [];
  })]);
}

export interface Group {
  name: string;
  steps: TraceNode[];
}

/** Steps in order, grouped: embedding, each block of each layer, output. */
export function groupsOf(steps: TraceNode[]): Group[] {
  const groups: Group[] = [];
  for (const step of steps) {
    const last = groups.at(-1);
    const name = role(step) === "final_norm" && last ? last.name : nodeLocation(step);
    if (last?.name === name) last.steps.push(step);
    else groups.push({ name, steps: [step] });
  }
  return groups;
}
