/**
 * One matrix of weights in full: heat map and arcs side by side, the row pointed at in words, and both drawings to
 * save. The screens decide which matrix that is and what its numbers mean.
 */

import { useMemo, useState } from "preact/hooks";
import { Bars } from "../components/Bars";
import { Matrix } from "../components/Matrix";
import { percent } from "../format";
import { hoveredToken, report } from "../state";
import type { TensorValue } from "../tensor";
import { Arcs, LEAST, MOST, type Point } from "./Arcs";
import { drawArcs, drawMatrix, type DrawnMatrix } from "./drawing";
import { at, mayAttend, pick, pickMask, type Grid } from "./grid";
import type { Label } from "./labels";
import { saveDrawing } from "./save";

export interface FigureProps {
  /** For the saved file's name. */
  name: string;
  title: string;
  caption: string;
  node: string;
  slice: string;
  grid: Grid;
  mask: Grid | null;
  rowLabels: Label[];
  colLabels: Label[];
  rows: number[]; // shown
  cols: number[];
  rowName: string;
  colName: string;
  /** "takes", "was aligned with": what a row does with its columns. */
  verb: string;
  cell: [number, number] | null;
  onChoose: (row: number, col: number) => void;
}

export function toTensorValue(grid: Grid): TensorValue {
  return { shape: [grid.rows, grid.cols], data: Float32Array.from(grid.data), dtype: "f32" };
}

export function maskValue(mask: Grid | null): TensorValue | null {
  return mask && { shape: [mask.rows, mask.cols], data: Uint8Array.from(mask.data), dtype: "u8" };
}

export function Figure(props: FigureProps) {
  const { grid, rows, cols, cell, onChoose } = props;
  const [point, setPoint] = useState<Point | null>(null);
  const { shown, mask, value, maskedValue } = useMemo(() => {
    const [some, may] = [pick(grid, rows, cols), pickMask(props.mask, rows, cols)];
    return { shown: some, mask: may, value: toTensorValue(some), maskedValue: maskValue(may) };
  }, [grid, props.mask, rows.join(), cols.join()]);
  const rowLabels = rows.map((row) => props.rowLabels[row]!);
  const colLabels = cols.map((col) => props.colLabels[col]!);
  const row = cell ? rows.indexOf(cell[0]) : -1;
  const col = cell ? cols.indexOf(cell[1]) : -1;
  const chosen = row >= 0 ? row : null;
  const pointTo = (next: Point | null) => {
    setPoint(next);
    const label = next && (next.side === "query" ? rowLabels[next.at] : colLabels[next.at]);
    hoveredToken.value = label ? { stream: label.stream, index: label.index } : null;
  };
  const choose = (next: Point) =>
    next.side === "query"
      ? onChoose(rows[next.at]!, cols[heaviestKey(shown, next.at)] ?? 0)
      : onChoose(rows[chosen ?? 0]!, cols[next.at]!);
  const read = point?.side === "query" ? point.at : chosen ?? 0;
  const drawn: DrawnMatrix = {
    title: props.title, caption: props.caption, grid: shown, mask,
    rows: rowLabels.map((label) => label.text), cols: colLabels.map((label) => label.text),
  };
  if (rows.length === 0 || cols.length === 0) return <p class="note">No tokens are left to show.</p>;
  return (
    <div class="attention-figure">
      <div class="attention-matrix">
        <Matrix
          node={props.node} slice={props.slice} value={value} mask={maskedValue} scale="sequential"
          rowLabels={drawn.rows} colLabels={drawn.cols} rowName={props.rowName} colName={props.colName}
          cell={[Math.max(0, row), Math.max(0, col)]} onSelect={(r, c) => onChoose(rows[r]!, cols[c]!)}
          onHover={(r) => pointTo(r === null ? null : { side: "query", at: r })} numbers="toggle" label={props.title}
          litRow={point?.side === "query" ? point.at : null}
        />
      </div>
      <div class="attention-beside">
        <Reading {...props} shown={shown} mask={mask} row={Math.min(read, rows.length - 1)} rowLabels={rowLabels} colLabels={colLabels} />
        <Arcs
          grid={shown} mask={mask} rows={rowLabels} cols={colLabels} point={point} onPoint={pointTo} onChoose={choose}
          chosen={chosen} queryName={props.rowName} keyName={props.colName}
        />
      </div>
      <Save name={props.name} drawn={drawn} />
    </div>
  );
}

function heaviestKey(grid: Grid, row: number): number {
  let best = 0;
  for (let col = 1; col < grid.cols; col++) if (at(grid, row, col) > at(grid, row, best)) best = col;
  return best;
}

type ReadingProps = FigureProps & { shown: Grid; row: number };

function Reading({ shown, mask, row, rowLabels, colLabels, verb }: ReadingProps) {
  const open = colLabels.map((_, col) => col).filter((col) => mayAttend(mask, row, col));
  const top = [...open].sort((a, b) => at(shown, row, b) - at(shown, row, a)).slice(0, 5);
  const rest = Math.max(0, open.reduce((sum, col) => sum + at(shown, row, col), 0) - top.reduce((sum, col) => sum + at(shown, row, col), 0));
  return (
    <div class="attention-reading">
      <h3>Row {row + 1}, <bdi class="quoted">{rowLabels[row]?.text}</bdi>, {verb}</h3>
      <Bars
        label={`Heaviest weights of row ${row + 1}`} limit={Math.max(1e-9, ...top.map((col) => at(shown, row, col)))}
        bars={top.map((col) => ({ key: col, label: named(colLabels, col), value: at(shown, row, col) }))}
      />
      {open.length > top.length && <p class="note">{`${percent(rest)} from the other ${open.length - top.length}.`}</p>}
    </div>
  );
}

/** A token that occurs more than once is told by its place. */
function named(labels: Label[], at: number): string {
  const { text, index } = labels[at]!;
  return labels.some((label, i) => i !== at && label.text === text) ? `${text} · ${index + 1}` : text;
}

function Save({ name, drawn }: { name: string; drawn: DrawnMatrix }) {
  const save = (what: "matrix" | "arcs", format: "svg" | "png") => {
    const drawing = what === "matrix" ? drawMatrix(drawn) : drawArcs(drawn, LEAST, MOST);
    saveDrawing(drawing, `${name}-${what}`, format).catch(report);
  };
  return (
    <p class="attention-save">
      <span>Save the matrix:</span>
      <button type="button" class="quiet" onClick={() => save("matrix", "svg")}>SVG</button>
      <button type="button" class="quiet" onClick={() => save("matrix", "png")}>PNG</button>
      <span>the lines:</span>
      <button type="button" class="quiet" onClick={() => save("arcs", "svg")}>SVG</button>
      <button type="button" class="quiet" onClick={() => save("arcs", "png")}>PNG</button>
    </p>
  );
}
