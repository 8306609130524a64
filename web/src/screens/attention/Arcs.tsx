/**
 * The weights of a head as lines between two columns of tokens, queries on the left and keys on the right. Pointing at
 * a token, or moving to it with the arrow keys, shows only its lines.
 */
import { useMemo } from "preact/hooks";
import { at, type Grid, mayAttend } from "../../tensors/grid";
import { magnitude } from "../../tensors/tensor";
import type { Label } from "../../trace/heads";
import { useArrowKeys } from "../../views/interaction";
import { type Arc, arcLine, arcsInWords, largestArcs } from "./lines";

export interface Point {
  side: "query" | "key";
  at: number;
}

export interface ArcsProps {
  grid: Grid;
  mask: Grid | null;
  rows: Label[];
  cols: Label[];
  rowName: string;
  colName: string;
  point: Point | null;
  onPoint: (point: Point | null) => void;
  /** A token was clicked or Enter pressed on it. */
  onChoose: (point: Point) => void;
  chosen: number | null; // row
  /** The weights are differences. */
  difference: boolean;
}

const WIDTH = 220;

export function Arcs(props: ArcsProps) {
  const { grid, mask, rows, cols, rowName, colName, point, chosen, difference } = props;
  const nRows = Math.max(rows.length, cols.length);
  const rowHeight = nRows > 48 ? 17 : 22;
  const limit = magnitude(grid.data) || 1;
  const line = (arc: Arc) => <path key={`${arc.query},${arc.key}`} class={difference ? `arc arc-${arc.weight < 0 ? "minus" : "plus"}` : "arc"} {...arcLine(arc, WIDTH, rowHeight, limit)} />;
  const { lines, words } = useMemo(() => {
    const found = largestArcs(grid, mask);
    return { lines: found.arcs.map(line), words: arcsInWords(found, difference) };
  }, [grid, mask]);
  const active = point ?? (chosen === null ? null : { side: "query" as const, at: chosen });
  const shared = { ...props, active, limit, rowHeight };
  return (
    <div class="arcs">
      <div class="arcs-heads" aria-hidden="true"><span>{rowName}</span><span>{colName}</span></div>
      <div class="arcs-scroll">
        <Column {...shared} side="query" labels={rows} name={rowName} />
        <svg height={nRows * rowHeight} viewBox={`0 0 ${WIDTH} ${nRows * rowHeight}`} preserveAspectRatio="none" aria-hidden="true">
          <g opacity={active ? 0.1 : 1}>{lines}</g>
          {active && arcsOf(grid, mask, active).map(line)}
        </svg>
        <Column {...shared} side="key" labels={cols} name={colName} />
      </div>
      <p class="note">
        {words}
        Point at a token to show all of its {difference ? "changes" : "weights"}.
      </p>
    </div>
  );
}

function arcsOf(grid: Grid, mask: Grid | null, { side, at: index }: Point): Arc[] {
  return Array.from({ length: side === "query" ? grid.cols : grid.rows }, (_, i) => {
    const [query, key] = side === "query" ? [index, i] : [i, index];
    return { query, key, weight: mayAttend(mask, query, key) ? at(grid, query, key) : 0 };
  }).filter(({ weight }) => Math.abs(weight) > 0.001);
}

interface ColumnProps extends ArcsProps {
  side: "query" | "key";
  labels: Label[];
  name: string;
  active: Point | null;
  limit: number;
  rowHeight: number;
}

function Column({ side, labels, name, active, limit, rowHeight, chosen, onPoint, onChoose, grid }: ColumnProps) {
  const last = labels.length - 1;
  const current = active?.side === side ? active.at : side === "query" ? chosen ?? 0 : 0;
  const arrows = useArrowKeys({ ArrowDown: 1, ArrowUp: -1 }, (by) => onPoint({ side, at: Math.max(0, Math.min(last, current + by)) }));
  /** The weight between this token and the highlighted one. */
  const weight = (i: number) =>
    !active || active.side === side ? 0 : side === "key" ? at(grid, active.at, i) : at(grid, i, active.at);
  return (
    <ol class={`arcs-${side}`} aria-label={name} {...arrows}>
      {labels.map((label, i) => {
        const here: Point = { side, at: i };
        return (
          <li key={i} style={{ height: `${rowHeight}px` }}>
            <button
              type="button" tabIndex={i === Math.min(current, last) ? 0 : -1} class={active?.side === side && active.at === i ? "lit" : undefined}
              aria-pressed={side === "query" ? chosen === i : undefined}
              onMouseEnter={() => onPoint(here)} onMouseLeave={() => onPoint(null)}
              onFocus={() => onPoint(here)} onBlur={() => onPoint(null)} onClick={() => onChoose(here)}
            >
              <span class="arcs-tint" style={{ opacity: Math.min(1, Math.abs(weight(i)) / limit) * 0.45 }} />
              <bdi class={label.special ? "arcs-special" : undefined}>{label.text}</bdi>
            </button>
          </li>
        );
      })}
    </ol>
  );
}
