/**
 * The beam as a picture: a column a step, its candidates from the most probable down, a line to each from the
 * hypothesis it extends. Places only; drawing is in `BeamTree.tsx`.
 */
import type { BeamCandidate, DecodeLog } from "../types";

export type Fate = "lives" | "finished" | "pruned";

export interface BeamNode {
  step: number;
  /** Place in `steps[step]`, best first. */
  index: number;
  candidate: BeamCandidate;
  parent: BeamNode | null; // null: the start
  fate: Fate;
  /** On the way to the hypothesis that was answered. */
  chosen: boolean;
  x: number;
  y: number;
}

export interface BeamLayout {
  columns: BeamNode[][];
  /** Left edge of each step's column, and the right edge of the last. */
  edges: number[];
  width: number;
  height: number;
  rowHeight: number;
}

export interface BeamSizes {
  rowHeight: number;
  characterWidth: number;
  /** Room for lines between two columns. */
  gap: number;
  top: number;
  left: number;
}

export const SIZES: BeamSizes = { rowHeight: 26, characterWidth: 8.2, gap: 46, top: 30, left: 92 };
const MARGIN = 12;

/** Pieces longer than this are cut in the picture (their title has all of it). */
export const LONGEST_PIECE = 14;

export function fateOf(candidate: BeamCandidate): Fate {
  return candidate.finished ? "finished" : candidate.row === null ? "pruned" : "lives";
}

/** Every candidate with its place; without the pruned ones if not wanted. */
export function layoutBeam(log: DecodeLog, showPruned: boolean, sizes: BeamSizes = SIZES): BeamLayout {
  const columns: BeamNode[][] = [];
  const edges: number[] = [];
  let live: (BeamNode | null)[] = [null]; // by row; before the first step there is the start alone
  let x = sizes.left;
  let mostRows = 1;
  log.steps.forEach((candidates, step) => {
    const next: (BeamNode | null)[] = [];
    const column: BeamNode[] = [];
    let longest = 1;
    candidates.forEach((candidate, index) => {
      const fate = fateOf(candidate);
      if (fate === "pruned" && !showPruned) return;
      const node: BeamNode = {
        step, index, candidate, fate, chosen: false, parent: live[candidate.parent] ?? null, x,
        y: sizes.top + column.length * sizes.rowHeight,
      };
      column.push(node);
      longest = Math.max(longest, Math.min(LONGEST_PIECE, [...candidate.piece].length));
      if (candidate.row !== null) next[candidate.row] = node;
    });
    columns.push(column);
    edges.push(x);
    mostRows = Math.max(mostRows, column.length);
    x += longest * sizes.characterWidth + MARGIN + sizes.gap;
    live = next;
  });
  edges.push(x - sizes.gap);
  markChosen(log, columns);
  return {
    columns, edges, width: Math.max(x - sizes.gap + MARGIN, sizes.left * 2),
    height: sizes.top + mostRows * sizes.rowHeight + MARGIN, rowHeight: sizes.rowHeight,
  };
}

function markChosen(log: DecodeLog, columns: BeamNode[][]): void {
  const end = log.hypotheses[0]?.end;
  let node = end ? columns[end[0]]?.find((n) => n.index === end[1]) : undefined;
  while (node) {
    node.chosen = true;
    node = node.parent ?? undefined;
  }
}

/** From the first step to this candidate. */
export function pathTo(node: BeamNode): BeamNode[] {
  const path: BeamNode[] = [];
  for (let at: BeamNode | null = node; at; at = at.parent) path.unshift(at);
  return path;
}

/** Where an arrow key leads: left to the parent, right to its best continuation, up and down in the column. */
export function neighbour(layout: BeamLayout, node: BeamNode, key: string): BeamNode | null {
  const column = layout.columns[node.step]!;
  switch (key) {
    case "ArrowLeft":
      return node.parent;
    case "ArrowRight": {
      const next = layout.columns[node.step + 1] ?? [];
      return next.find((n) => n.parent === node) ?? null;
    }
    case "ArrowUp":
      return column[column.indexOf(node) - 1] ?? null;
    case "ArrowDown":
      return column[column.indexOf(node) + 1] ?? null;
    case "Home":
      return layout.columns[0]?.[0] ?? null;
    case "End":
      return layout.columns.flat().filter((n) => n.chosen).at(-1) ?? null;
    default:
      return null;
  }
}
