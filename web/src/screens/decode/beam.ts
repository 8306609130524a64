/**
 * The layout of the beam search tree: one column per step, candidates in order of probability, a line from the
 * hypothesis that each extends. `BeamTree.tsx` draws it.
 */
import { visible } from "../../tensors/format";
import type { BeamCandidate, DecodeLog } from "../../types";

/** The outcomes of a candidate. */
export const OUTCOMES = { kept: "kept", finished: "finished", pruned: "pruned" };
export type Outcome = keyof typeof OUTCOMES;

export interface BeamNode {
  step: number;
  /** "step.index", with the index in `steps[step]`. */
  key: string;
  candidate: BeamCandidate;
  parent: BeamNode | null; // null: the start
  outcome: Outcome;
  /** Part of the best hypothesis. */
  chosen: boolean;
  x: number;
  y: number;
  width: number;
}

export interface BeamLayout {
  columns: BeamNode[][];
  /** Left edge of each step's column. */
  edges: number[];
  width: number;
  height: number;
}

export const TOP = 30;
/** Width between two columns. */
export const GAP = 46;
const LEFT = 92;
const ROW_HEIGHT = 26;
const CHARACTER_WIDTH = 8.2;
const MARGIN = 12;

/** Longer tokens are truncated in the tree. */
const MAX_TOKEN_CHARS = 14;

export function outcomeOf(candidate: BeamCandidate): Outcome {
  return candidate.finished ? "finished" : candidate.row === null ? "pruned" : "kept";
}

/** A token, truncated for the tree. */
export function cut(piece: string): string {
  const letters = [...visible(piece)];
  return letters.length <= MAX_TOKEN_CHARS ? letters.join("") : `${letters.slice(0, MAX_TOKEN_CHARS - 1).join("")}…`;
}

/** Estimated width of a token, where no browser can measure it. */
const estimatedWidth = (piece: string) => [...piece].length * CHARACTER_WIDTH;

/** The layout of all candidates, with or without pruned ones. `widthOf` measures tokens. */
export function layoutBeam(log: DecodeLog, showPruned: boolean, widthOf = estimatedWidth): BeamLayout {
  const edges: number[] = [];
  let live: (BeamNode | null)[] = [null]; // by row; null is the start
  let x = LEFT;
  const columns = log.steps.map((candidates, step) => {
    const next: (BeamNode | null)[] = [];
    const column: BeamNode[] = [];
    candidates.forEach((candidate, index) => {
      const outcome = outcomeOf(candidate);
      if (outcome === "pruned" && !showPruned) return;
      const node: BeamNode = {
        step, key: `${step}.${index}`, candidate, outcome, chosen: false, parent: live[candidate.parent] ?? null, x,
        y: TOP + column.length * ROW_HEIGHT,
        width: widthOf(cut(candidate.piece)),
      };
      column.push(node);
      if (candidate.row !== null) next[candidate.row] = node;
    });
    edges.push(x);
    x += Math.max(CHARACTER_WIDTH, ...column.map((node) => node.width)) + MARGIN + GAP;
    live = next;
    return column;
  });
  const end = log.hypotheses[0]?.end?.join(".");
  const last = columns.flat().find((node) => node.key === end);
  if (last) for (const node of pathTo(last)) node.chosen = true;
  const maxRows = Math.max(1, ...columns.map((column) => column.length));
  return { columns, edges, width: x - GAP + MARGIN, height: TOP + maxRows * ROW_HEIGHT + MARGIN };
}

/** The hypothesis of a candidate, from the first step. */
export function pathTo(node: BeamNode): BeamNode[] {
  return [...(node.parent ? pathTo(node.parent) : []), node];
}

/** The target of an arrow key: left to the parent, right to the best extension, up and down in the column. */
export function neighbour({ columns }: BeamLayout, node: BeamNode, key: string): BeamNode | null | undefined {
  const column = columns[node.step]!;
  const at = column.indexOf(node);
  switch (key) {
    case "ArrowLeft":
      return node.parent;
    case "ArrowRight":
      return columns[node.step + 1]?.find((next) => next.parent === node);
    case "ArrowUp":
      return column[at - 1];
    case "ArrowDown":
      return column[at + 1];
    case "Home":
      return columns[0]?.[0];
    case "End":
      return columns.flat().filter((one) => one.chosen).at(-1);
  }
  return null;
}
