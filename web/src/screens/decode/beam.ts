/**
 * The beam as a picture: a column a step, its candidates from the most probable down, a line to each from the
 * hypothesis it extends. Places only; drawing is in `BeamTree.tsx`.
 */
import { visible } from "../../tensors/format";
import type { BeamCandidate, DecodeLog } from "../../types";

/** What becomes of a candidate, in words. */
export const FATES = { lives: "goes on", finished: "ends here", pruned: "is pruned" };
export type Fate = keyof typeof FATES;

export interface BeamNode {
  step: number;
  /** "step.place", with the place in `steps[step]`, best first. */
  key: string;
  candidate: BeamCandidate;
  parent: BeamNode | null; // null: the start
  fate: Fate;
  /** On the way to the hypothesis that was answered. */
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
/** Room for lines between two columns. */
export const GAP = 46;
const LEFT = 92;
const ROW_HEIGHT = 26;
const CHARACTER_WIDTH = 8.2;
const MARGIN = 12;

/** Pieces longer than this are cut in the picture. */
const LONGEST_PIECE = 14;

export function fateOf(candidate: BeamCandidate): Fate {
  return candidate.finished ? "finished" : candidate.row === null ? "pruned" : "lives";
}

/** A piece as it is written in the picture, where its title has all of it. */
export function cut(piece: string): string {
  const letters = [...visible(piece)];
  return letters.length <= LONGEST_PIECE ? letters.join("") : `${letters.slice(0, LONGEST_PIECE - 1).join("")}…`;
}

/** As wide as so many letters usually are; a browser can tell better. */
const usualWidth = (piece: string) => [...piece].length * CHARACTER_WIDTH;

/** Every candidate with its place; without the pruned ones if not wanted. `widthOf` measures pieces as they are written. */
export function layoutBeam(log: DecodeLog, showPruned: boolean, widthOf = usualWidth): BeamLayout {
  const edges: number[] = [];
  let live: (BeamNode | null)[] = [null]; // by row; before the first step there is the start alone
  let x = LEFT;
  const columns = log.steps.map((candidates, step) => {
    const next: (BeamNode | null)[] = [];
    const column: BeamNode[] = [];
    candidates.forEach((candidate, index) => {
      const fate = fateOf(candidate);
      if (fate === "pruned" && !showPruned) return;
      const node: BeamNode = {
        step, key: `${step}.${index}`, candidate, fate, chosen: false, parent: live[candidate.parent] ?? null, x,
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
  const mostRows = Math.max(1, ...columns.map((column) => column.length));
  return { columns, edges, width: x - GAP + MARGIN, height: TOP + mostRows * ROW_HEIGHT + MARGIN };
}

/** From the first step to this candidate. */
export function pathTo(node: BeamNode): BeamNode[] {
  return [...(node.parent ? pathTo(node.parent) : []), node];
}

/** Where an arrow key leads: left to the parent, right to its best continuation, up and down in the column. */
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
