/**
 * Which rows and columns of a step are shown where an axis is a whole vocabulary: of logits and what is computed from
 * them the likeliest tokens and the right one, of tables the rows of the tokens of this text and the likeliest.
 */
import { labelsOf } from "../../trace/stepData";
import { type Cell, idsSlice, predictionAt, PROBABILITIES, rowOf } from "../../trace/stepData";
import type { Manifest, TraceNode } from "../../types";

export interface Places {
  /** Ids of the rows or columns shown, in ascending order; null: all. */
  rows: number[] | null;
  cols: number[] | null;
  /** The row of the prediction, where columns are tokens of the vocabulary. */
  row: number | null;
}

/** Most rows of a table. */
const MOST_ROWS = 64;
const ascending = (ids: Iterable<number>) => [...new Set(ids)].sort((a, b) => a - b);

/** Logits and probabilities are shown as candidates of one position (`Numbers.tsx`). */
export const hasCandidates = (node: TraceNode) => node.id === PROBABILITIES || (node.axes.at(-1)?.name === "vocab" && node.op === "linear");

export function placesOf(trace: Manifest, node: TraceNode, position: number): Places {
  const [first, last] = [node.axes[0]?.name, node.axes.at(-1)?.name];
  const labels = labelsOf(trace.nodes.find(({ op }) => op === "targets") ?? node);
  if (last === "vocab" && !hasCandidates(node)) {
    const prediction = predictionAt(trace, position);
    const row = prediction && node.axes.length > 1 ? rowOf(trace, prediction) : null;
    const right = labels[row ?? 0] ?? null;
    return { rows: null, cols: ascending([...(prediction?.top.map(({ id }) => id) ?? []), ...(right === null ? [] : [right])]), row };
  }
  const used = {
    vocab: [...trace.streams.flatMap(({ ids }) => ids), ...labels.filter((one) => one !== null), ...trace.predictions.flatMap(({ top }) => top.slice(0, 3).map(({ id }) => id))],
    ngram: trace.streams.flatMap(({ ngram_ids }) => ngram_ids ?? []).flat(),
    bigram: trace.streams.flatMap(({ bigram_ids }) => bigram_ids ?? []),
  }[first as "vocab"];
  const known = node.axes.length > 1 && used ? ascending(used).filter((id) => id < node.axes[0]!.size).slice(0, MOST_ROWS) : null;
  return { rows: known?.length ? known : null, cols: null, row: null };
}

/** The slice of a step that is shown. */
export function sliceOf(node: TraceNode, { rows, cols, row }: Places): string {
  const parts = [row === null ? "" : `token:${row}`, cols ? idsSlice("vocab", cols) : "", rows ? idsSlice(node.axes[0]!.name, rows) : ""];
  return parts.filter(Boolean).join(";");
}

/** The cell of the step for a cell of what is shown. */
export function wholeCell(cell: Cell, { rows, cols, row }: Places): Cell {
  const pick = (ids: number[] | null, i: number) => (ids ? ids[Math.min(i, ids.length - 1)]! : i);
  return { ...cell, row: row ?? pick(rows, cell.row), col: pick(cols, cell.col) };
}
