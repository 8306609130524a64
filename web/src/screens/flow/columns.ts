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

export function columnsOf(trace: Manifest): Column[] {
  return (["encoder", "decoder"] as const).map((stack) => column(trace, stack)).filter((one) => one !== null);
}

/** The nodes after the last stack: pooled, head, logits. */
export const outputOf = (trace: Manifest) => trace.nodes.filter((node) => node.stack === "head");
