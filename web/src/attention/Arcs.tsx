/**
 * A head as lines between two columns of tokens: queries on the left, keys on the right, the heavier the thicker.
 * Pointing at a token, or moving to it with the arrow keys, leaves its lines alone.
 */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { arcPath, heaviest, type Arc, type ArcLayout } from "./arcLayout";
import { at, largest, mayAttend, type Grid } from "./grid";
import type { Label } from "./labels";

export interface Point {
  side: "query" | "key";
  at: number;
}

export interface ArcsProps {
  grid: Grid;
  mask: Grid | null;
  rows: Label[];
  cols: Label[];
  point: Point | null;
  onPoint: (point: Point | null) => void;
  /** A token was clicked or Enter pressed on it. */
  onChoose: (point: Point) => void;
  chosen: number | null; // row
  queryName: string;
  keyName: string;
}

export const LEAST = 0.03;
export const MOST = 8;
const WIDTH = 220;

export function Arcs(props: ArcsProps) {
  const { grid, mask, rows, cols, point, chosen } = props;
  const layout: ArcLayout = { width: WIDTH, rowHeight: Math.max(rows.length, cols.length) > 48 ? 17 : 22, left: 2, right: WIDTH - 2 };
  const limit = largest(grid) || 1;
  const { lines, share } = useMemo(() => {
    const found = heaviest(grid, mask, LEAST, MOST);
    return { lines: found.arcs.map((arc) => line(arc, layout, limit)), share: found.share };
  }, [grid, mask]);
  const active = point ?? (chosen === null ? null : { side: "query" as const, at: chosen });
  const own = active ? ownArcs(grid, mask, active) : [];
  const height = Math.max(rows.length, cols.length) * layout.rowHeight;
  return (
    <div class="arcs">
      <div class="arcs-heads" aria-hidden="true"><span>{props.queryName}</span><span>{props.keyName}</span></div>
      <div class="arcs-scroll">
        <Column {...props} side="query" labels={rows} rowHeight={layout.rowHeight} active={active} />
        <svg width={WIDTH} height={height} viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" aria-hidden="true" class="arcs-lines">
          <g opacity={active ? 0.1 : 1}>{lines}</g>
          <g>{own.map((arc) => line(arc, layout, limit))}</g>
        </svg>
        <Column {...props} side="key" labels={cols} rowHeight={layout.rowHeight} active={active} />
      </div>
      <p class="note">
        {`For each token the ${MOST} heaviest lines of at least ${LEAST * 100}%: ${Math.round(share * 100)}% of the weight shown. `}
        {"A token pointed at shows all of its own."}
      </p>
    </div>
  );
}

function ownArcs(grid: Grid, mask: Grid | null, { side, at: index }: Point): Arc[] {
  const count = side === "query" ? grid.cols : grid.rows;
  const arcs: Arc[] = [];
  for (let i = 0; i < count; i++) {
    const [query, key] = side === "query" ? [index, i] : [i, index];
    if (query >= grid.rows || key >= grid.cols || !mayAttend(mask, query, key)) continue;
    const weight = at(grid, query, key);
    if (weight > 0.001) arcs.push({ query, key, weight });
  }
  return arcs.sort((a, b) => a.weight - b.weight);
}

function line(arc: Arc, layout: ArcLayout, limit: number) {
  const share = Math.min(1, arc.weight / limit);
  const key = `${arc.query},${arc.key}`;
  return <path key={key} d={arcPath(arc, layout)} class="arc" stroke-width={0.7 + 3.3 * share} stroke-opacity={0.12 + 0.8 * share} />;
}

type ColumnProps = ArcsProps & { side: "query" | "key"; labels: Label[]; rowHeight: number; active: Point | null };

function Column({ side, labels, rowHeight, active, chosen, onPoint, onChoose, grid, ...rest }: ColumnProps) {
  const list = useRef<HTMLOListElement>(null);
  const moved = useRef(false);
  const current = active?.side === side ? active.at : side === "query" ? chosen ?? 0 : 0;
  useEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    list.current?.querySelector<HTMLElement>("button[tabindex='0']")?.focus();
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    moved.current = true;
    onPoint({ side, at: Math.max(0, Math.min(labels.length - 1, current + by)) });
  };
  const limit = largest(grid) || 1;
  return (
    <ol ref={list} class={`arcs-tokens arcs-${side}`} aria-label={side === "query" ? rest.queryName : rest.keyName} onKeyDown={onKeyDown}>
      {labels.map((label, i) => {
        const weight = active && active.side !== side
          ? side === "key" ? at(grid, active.at, i) : at(grid, i, active.at)
          : 0;
        const lit = active?.side === side && active.at === i;
        return (
          <li key={i} style={{ height: `${rowHeight}px` }}>
            <button
              type="button" tabIndex={i === Math.min(current, labels.length - 1) ? 0 : -1} class={lit ? "lit" : undefined}
              aria-pressed={side === "query" ? chosen === i : undefined}
              onMouseEnter={() => onPoint({ side, at: i })} onMouseLeave={() => onPoint(null)}
              onFocus={() => onPoint({ side, at: i })} onBlur={() => onPoint(null)} onClick={() => onChoose({ side, at: i })}
            >
              <span class="arcs-tint" style={{ opacity: Math.min(1, Math.max(0, weight / limit)) * 0.45 }} />
              <bdi class={label.special ? "arcs-special" : undefined}>{label.text}</bdi>
            </button>
          </li>
        );
      })}
    </ol>
  );
}
