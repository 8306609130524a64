/** One matrix of weights in full: heat map, lines, and the largest weights of the selected row. */
import { useMemo, useState } from "preact/hooks";
import { hoveredToken, selection, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { percent, points } from "../../tensors/format";
import { toTensorValue, at, type Grid, mayAttend, selectCells, selectMask } from "../../tensors/grid";
import { magnitude } from "../../tensors/tensor";
import { type Label, visibleIndices } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { Matrix } from "../../views/Matrix";
import { Arcs, type Point } from "./Arcs";

export interface FigureProps {
  manifest: Manifest;
  title: string;
  node: string;
  slice: string;
  grid: Grid;
  mask: Grid | null;
  rows: Label[];
  cols: Label[];
  /** Hide special tokens and padding. */
  hide: boolean;
  rowName: string;
  colName: string;
  /** "attends most to", "is aligned with"; of a difference "changes most at". */
  verb: string;
  /** The values are differences of weights. */
  difference?: boolean;
}

export function Figure(props: FigureProps) {
  const { title, hide, rowName, colName, difference = false } = props;
  const [point, setPoint] = useState<Point | null>(null);
  const cell = useValue(selection);
  const [rowsShown, colsShown] = [visibleIndices(props.rows, hide), visibleIndices(props.cols, hide)];
  const { grid, mask, value, maskValue } = useMemo(() => {
    const [some, may] = [selectCells(props.grid, rowsShown, colsShown), selectMask(props.mask, rowsShown, colsShown)];
    return { grid: some, mask: may, value: toTensorValue(some), maskValue: may && toTensorValue(may) };
  }, [props.grid, props.mask, hide]);
  if (grid.rows * grid.cols === 0) return <p class="note">There are no tokens to show.</p>;
  const rows = rowsShown.map((row) => props.rows[row]!);
  const cols = colsShown.map((col) => props.cols[col]!);
  const row = rowsShown.indexOf(cell.row ?? -1);
  const col = colsShown.indexOf(cell.col ?? 0);
  const chosen = row < 0 ? null : row;
  const pointTo = (next: Point | null) => {
    if (next?.side === point?.side && next?.at === point?.at) return;
    setPoint(next);
    const label = next && (next.side === "query" ? rows : cols)[next.at];
    hoveredToken.value = label ? { stream: label.stream, index: label.index } : null;
  };
  const choose = (r: number, c: number) => setParams({ cell: `${rowsShown[r]},${colsShown[c]}` });
  const pointed = point?.side === "query" ? point.at : null;
  return (
    <div class="attention-figure" data-view="figure">
      <Matrix
        node={props.node} slice={props.slice} value={value} mask={maskValue} scale={difference ? "signed" : "sequential"}
        rowLabels={rows.map((label) => label.text)} colLabels={cols.map((label) => label.text)} rowName={rowName} colName={colName}
        cell={[Math.max(0, row), Math.max(0, col)]} onSelect={choose} litRow={pointed}
        onHover={(r) => pointTo(r === null ? null : { side: "query", at: r })} numbers="toggle" label={title}
      />
      <div class="attention-beside">
        <Reading {...{ grid, mask, rows, cols, difference }} row={Math.min(pointed ?? chosen ?? 0, rows.length - 1)} verb={props.verb} />
        <Arcs
          {...{ grid, mask, rows, cols, rowName, colName, point, chosen, difference }} onPoint={pointTo}
          onChoose={({ side, at: i }) => (side === "query" ? choose(i, byWeight(grid, mask, i)[0] ?? 0) : choose(chosen ?? 0, i))}
        />
      </div>
    </div>
  );
}

/** The unmasked keys of a row, by descending magnitude. */
function byWeight(grid: Grid, mask: Grid | null, row: number): number[] {
  const size = (col: number) => Math.abs(at(grid, row, col));
  return [...Array(grid.cols).keys()].filter((col) => mayAttend(mask, row, col)).sort((a, b) => size(b) - size(a));
}

interface ReadingProps extends Pick<FigureProps, "grid" | "mask" | "rows" | "cols" | "verb"> {
  row: number;
  difference: boolean;
}

function Reading({ grid, mask, rows, cols, row, verb, difference }: ReadingProps) {
  const keys = byWeight(grid, mask, row);
  const rest = keys.slice(5).map((col) => at(grid, row, col));
  const limit = Math.abs(at(grid, row, keys[0] ?? 0)) || 1;
  const still = difference && keys.every((col) => at(grid, row, col) === 0);
  /** Adds the index to tokens that occur more than once. */
  const name = ({ text, index }: Label) =>
    cols.some((label) => label.text === text && label.index !== index) ? `${text} · ${index}` : text;
  return (
    <div class="attention-reading">
      <h3>Row {row}, <bdi class="quoted">{rows[row]!.text}</bdi>, {still ? "does not change" : verb}</h3>
      {!still && <Bars
        label={difference ? `Largest changes of row ${row}` : `Largest weights of row ${row}`} limit={limit} signs={difference}
        bars={keys.slice(0, 5).map((col) => {
          const value = at(grid, row, col);
          return { key: col, label: name(cols[col]!), value, text: difference ? points(value) : undefined };
        })}
      />}
      {!still && rest.length > 0 && (
        <p class="note">{difference ? `The other ${rest.length} change by at most ${points(magnitude(rest)).replace("+", "")}.` : `${percent(rest.reduce((sum, one) => sum + one, 0))} on the other ${rest.length}.`}</p>
      )}
    </div>
  );
}
