/**
 * One matrix of weights in full: heat map and arcs side by side, the row pointed at in words, and both drawings to
 * save. The screens decide which matrix that is and what its numbers mean.
 */
import { useMemo, useState } from "preact/hooks";
import { hoveredToken, report, selection, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { percent } from "../../tensors/format";
import { asTensor, at, type Grid, mayAttend, pick, pickMask } from "../../tensors/grid";
import { type Label, shownLabels } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { Matrix } from "../../views/Matrix";
import { Arcs, type Point } from "./Arcs";
import { drawArcs, drawMatrix, type Drawn, saveDrawing } from "./drawing";

export interface FigureProps {
  manifest: Manifest;
  title: string;
  node: string;
  slice: string;
  grid: Grid;
  mask: Grid | null;
  rows: Label[];
  cols: Label[];
  /** Without special tokens and padding. */
  hide: boolean;
  rowName: string;
  colName: string;
  /** "takes most from", "is aligned with": what a row does with its columns. */
  verb: string;
}

export function Figure(props: FigureProps) {
  const { manifest, title, hide, rowName, colName } = props;
  const [point, setPoint] = useState<Point | null>(null);
  const cell = useValue(selection);
  const [rowsShown, colsShown] = [shownLabels(props.rows, hide), shownLabels(props.cols, hide)];
  const { grid, mask, value, maskValue } = useMemo(() => {
    const [some, may] = [pick(props.grid, rowsShown, colsShown), pickMask(props.mask, rowsShown, colsShown)];
    return { grid: some, mask: may, value: asTensor(some), maskValue: may && asTensor(may) };
  }, [props.grid, props.mask, hide]);
  if (grid.rows * grid.cols === 0) return <p class="note">No tokens are left to show.</p>;
  const rows = rowsShown.map((row) => props.rows[row]!);
  const cols = colsShown.map((col) => props.cols[col]!);
  const row = rowsShown.indexOf(cell.row ?? -1);
  const col = colsShown.indexOf(cell.col ?? 0);
  const chosen = row < 0 ? null : row;
  const pointTo = (next: Point | null) => {
    if (next?.side === point?.side && next?.at === point?.at) return;
    setPoint(next);
    const label = next && (next.side === "query" ? rows : cols)[next.at];
    hoveredToken.now = label ? { stream: label.stream, index: label.index } : null;
  };
  const choose = (r: number, c: number) => setParams({ cell: `${rowsShown[r]},${colsShown[c]}` });
  const pointed = point?.side === "query" ? point.at : null;
  const drawn: Drawn = {
    title, caption: `${manifest.model.run}, ${manifest.model.checkpoint}`, grid, mask,
    rows: rows.map((label) => label.text), cols: cols.map((label) => label.text),
  };
  return (
    <div class="attention-figure" data-view="figure">
      <Matrix
        node={props.node} slice={props.slice} value={value} mask={maskValue} scale="sequential"
        rowLabels={drawn.rows} colLabels={drawn.cols} rowName={rowName} colName={colName}
        cell={[Math.max(0, row), Math.max(0, col)]} onSelect={choose} litRow={pointed}
        onHover={(r) => pointTo(r === null ? null : { side: "query", at: r })} numbers="toggle" label={title}
      />
      <div class="attention-beside">
        <Reading {...{ grid, mask, rows, cols }} row={Math.min(pointed ?? chosen ?? 0, rows.length - 1)} verb={props.verb} />
        <Arcs
          {...{ grid, mask, rows, cols, rowName, colName, point, chosen }} onPoint={pointTo}
          onChoose={({ side, at: i }) => (side === "query" ? choose(i, byWeight(grid, mask, i)[0] ?? 0) : choose(chosen ?? 0, i))}
        />
      </div>
      <Save drawn={drawn} name={`${manifest.model.run} ${title}`.replace(/\W+/g, "-").toLowerCase()} />
    </div>
  );
}

/** The keys a row may attend to, the heaviest first. */
function byWeight(grid: Grid, mask: Grid | null, row: number): number[] {
  return [...Array(grid.cols).keys()].filter((col) => mayAttend(mask, row, col)).sort((a, b) => at(grid, row, b) - at(grid, row, a));
}

interface ReadingProps extends Pick<FigureProps, "grid" | "mask" | "rows" | "cols" | "verb"> {
  row: number;
}

function Reading({ grid, mask, rows, cols, row, verb }: ReadingProps) {
  const keys = byWeight(grid, mask, row);
  const rest = keys.slice(5);
  /** A token that occurs more than once is told by its place. */
  const name = ({ text, index }: Label) =>
    cols.some((label) => label.text === text && label.index !== index) ? `${text} · ${index + 1}` : text;
  return (
    <div class="attention-reading">
      <h3>Row {row + 1}, <bdi class="quoted">{rows[row]!.text}</bdi>, {verb}</h3>
      <Bars
        label={`Heaviest weights of row ${row + 1}`} limit={at(grid, row, keys[0] ?? 0) || 1}
        bars={keys.slice(0, 5).map((col) => ({ key: col, label: name(cols[col]!), value: at(grid, row, col) }))}
      />
      {rest.length > 0 && <p class="note">{`${percent(rest.reduce((sum, col) => sum + at(grid, row, col), 0))} from the other ${rest.length}.`}</p>}
    </div>
  );
}

const DRAWINGS = [["matrix", "Save the matrix:", drawMatrix], ["arcs", "the lines:", drawArcs]] as const;

function Save({ drawn, name }: { drawn: Drawn; name: string }) {
  return (
    <p class="attention-save">
      {DRAWINGS.map(([what, words, draw]) => (
        <span key={what}>
          {words}
          {(["svg", "png"] as const).map((format) => (
            <button key={format} type="button" class="quiet" onClick={() => saveDrawing(draw(drawn), `${name}-${what}`, format).catch(report)}>
              {format.toUpperCase()}
            </button>
          ))}
        </span>
      ))}
    </p>
  );
}
