/** Arranges the nodes of a trace in columns: per stack its embedding, the blocks of its layers and its final norm. */
import { leaf, role } from "../../trace/steps";
import type { Manifest, Stream, TraceNode } from "../../types";

export interface Block {
  key: string;
  layer: number;
  kind: "self" | "cross" | "ff";
  /** By last part of the id: norm, q_proj, weights, out, residual … */
  parts: Record<string, TraceNode>;
  /** Pre-norm: the norm is first, inside the branch. Post-norm: after the residual sum. */
  normFirst: boolean;
}

export interface Column {
  stack: "encoder" | "decoder";
  stream: Stream;
  embedding: Record<string, TraceNode>;
  blocks: Block[];
  end: TraceNode | null;
}

function column(trace: Manifest, stack: "encoder" | "decoder"): Column | null {
  const nodes = trace.nodes.filter((node) => node.stack === stack);
  const name = nodes.flatMap((node) => node.axes).find((axis) => axis.name === "token")?.stream;
  const stream = trace.streams.find((one) => one.name === name);
  if (!stream) return null;
  const embedding = Object.fromEntries(trace.nodes.filter((node) => node.stack === name).map((node) => [leaf(node), node]));
  const blocks: Block[] = [];
  for (const node of nodes) {
    if (node.layer === null || node.block === null) continue;
    const key = `${stack}.${node.layer}.${node.block}`;
    let block = blocks.at(-1);
    if (block?.key !== key) {
      block = { key, layer: node.layer, kind: node.block, parts: {}, normFirst: leaf(node) === "norm" };
      blocks.push(block);
    }
    block.parts[leaf(node)] = node;
  }
  return { stack, stream, embedding, blocks, end: nodes.find((node) => role(node) === "final_norm") ?? null };
}

/**
 * The trace with a gradient in the place of each step, or without that step where it has none. Token ids and masks stay:
 * the former begin a column, the latter name what a block does.
 */
export function withGradients(trace: Manifest): Manifest {
  const known = new Map(trace.gradients.map((one) => [one.id, one]));
  const nodes = trace.nodes.flatMap((node): TraceNode[] => {
    const gradient = known.get(`${node.id}.grad`);
    if (!gradient) return node.op === "ids" || node.op === "mask" ? [node] : [];
    return [{ ...node, id: gradient.id, inputs: [], min: gradient.min, max: gradient.max }];
  });
  return { ...trace, nodes };
}

export function columnsOf(trace: Manifest): Column[] {
  return (["encoder", "decoder"] as const).map((stack) => column(trace, stack)).filter((one) => one !== null);
}

/** The nodes after the last stack: pooled, head, logits; and the loss. */
export const outputOf = (trace: Manifest) => trace.nodes.filter((node) => node.stack === "head" && !/^loss\.(?!grad)/.test(node.id));
