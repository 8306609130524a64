/**
 * A matrix as a heat map with labels and a grid of its numbers around the selected cell. The canvas is hidden from
 * assistive technology, which reads the grid.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useMask, useTensor } from "../state/resource";
import { palette } from "../state/settings";
import { useValue } from "../state/signals";
import { exact, number, visible } from "../tensors/format";
import { css, drawHeat, shade } from "../tensors/heat";
import { BLOCKED, type Grid, magnitude, mayAttend, type TensorValue, toGrid } from "../tensors/tensor";
import type { Manifest } from "../types";
import { useArrowKeys, useStableHeight } from "./interaction";

type HeatScale = "signed" | "sequential";

/** The height for square cells, within limits. */
export function thumbHeight(width: number, rows: number, cols: number): number {
  return width * Math.max(0.4, Math.min(1.6, rows / Math.max(1, cols)));
}

/** The picture of a grid, of a size in CSS pixels. */
export function Thumb({ grid, mask, scale = "sequential", width, height }: { grid: Grid; mask: Grid | null; scale?: HeatScale; width: number; height: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useValue(palette);
  const { rows, cols, data } = grid;
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context || rows * cols === 0) return;
    const wide = (canvas.current.width = Math.ceil(Math.min(cols, width * devicePixelRatio)));
    const high = (canvas.current.height = Math.ceil(Math.min(rows, height * devicePixelRatio)));
    const image = context.createImageData(wide, high);
    const limit = magnitude(data);
    const seen = new Float32Array(wide * high);
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        const value = data[row * cols + col]!;
        const pixel = Math.floor((row * high) / rows) * wide + Math.floor((col * wide) / cols);
        if (!mayAttend(mask, row, col) || (scale === "sequential" && value < seen[pixel]!)) continue;
        seen[pixel] = value;
        image.data.set([...shade(value, limit, scale, colours), 255], 4 * pixel);
      }
    }
    context.putImageData(image, 0, 0);
  }, [data, mask?.data, width, height, colours]);
  return <canvas ref={canvas} class="thumb" aria-hidden="true" style={{ width: `${width}px`, height: `${height}px` }} />;
}

interface MatrixProps {
  /** Node (or parameter) whose numbers are shown; fetched unless `value` is given. */
  node: string;
  slice?: string;
  /** The values, 2-D (1-D is one row). */
  value?: TensorValue | null;
  rowLabels?: readonly string[];
  colLabels?: readonly string[];
  /** What a row and a column are: "token", "feature". */
  rowName?: string;
  colName?: string;
  /** The trace, by default that which is shown. */
  of?: Manifest;
  /** 0 for masked cells, which are hatched; one row is repeated. By default that of the step. */
  mask?: TensorValue | null;
  /** Default: sequential if no value is negative. */
  scale?: HeatScale;
  /** Magnitude of the full colour, by default the largest. */
  limit?: number;
  /** Selected cell; by default local state. */
  cell?: readonly [number, number] | null;
  onSelect?: (row: number, col: number) => void;
  /** Only the heat map, with this size in CSS pixels. */
  mini?: { width: number; height: number };
  /** Show numbers always (default) or on demand. */
  numbers?: "always" | "toggle";
  /** Accessible name. */
  label: string;
}

export function Matrix(props: MatrixProps) {
  const { node, slice = "", mini, label, of } = props;
  const fetched = useTensor(props.value === undefined ? node : null, slice, of);
  const found = useMask(props.mask === undefined ? node : null, slice, of);
  const value = props.value ?? fetched.value, mask = props.mask ?? found;
  const held = useStableHeight(!mini && !value && !fetched.error);
  const figure = held.ref;
  const refocus = useRef(false);
  // Keep the focus in the grid when another head or layer is loaded.
  if (!value && figure.current?.contains(document.activeElement)) refocus.current = true;
  useLayoutEffect(() => {
    if (!value || !refocus.current) return;
    refocus.current = false;
    figure.current?.querySelector<HTMLElement>("td[tabindex='0']")?.focus();
  }, [value]);
  return (
    <figure {...held} class={mini ? "matrix matrix-mini" : "matrix"} data-node={node} data-slice={slice} aria-label={mini ? undefined : label}>
      {fetched.error
        ? <p class="note">{fetched.error.message}</p>
        : value ? (mini ? <Thumb grid={toGrid(value)} mask={mask && toGrid(mask)} scale={props.scale ?? scaleOf(value)} {...mini} />
        : <FullMatrix {...props} value={value} mask={mask} scale={props.scale ?? scaleOf(value)} limit={props.limit ?? magnitude(value.data)} />) : null}
    </figure>
  );
}

type MatrixData = MatrixProps & { value: TensorValue; scale: HeatScale; limit: number };

/** Whether a cell is not masked; a mask of one row is repeated. */
const isSeen = ({ mask }: MatrixProps, i: number) => !mask || mask.data[i % mask.data.length] !== 0;

function scaleOf(value: TensorValue): HeatScale {
  for (const x of value.data) if (x < 0) return "signed";
  return "sequential";
}

/** Least and most room for the labels of the rows, and the width of a letter, in CSS pixels. */
const [LEAST, MOST, LETTER] = [92, 190, 8.6];

/** Labels need room for both tokens of a row; on a phone less is left beside the numbers. */
function labelWidth(labels: readonly string[] | undefined, room: number): number {
  const letters = Math.max(0, ...(labels ?? []).map((label) => visible(label).length));
  return Math.round(Math.min(Math.max(LEAST, letters * LETTER + 14), MOST, Math.max(LEAST, room * 0.36)));
}

function FullMatrix(props: MatrixData) {
  const { value, mask, scale, limit, rowLabels, colLabels, onSelect } = props;
  const { rows, cols } = toGrid(value);
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useValue(palette);
  const [room, measure] = useElementWidth();
  const [own, setOwn] = useState<readonly [number, number]>([0, 0]);
  const [open, setOpen] = useState(false);
  const wanted = props.cell ?? own;
  const cell: [number, number] = [Math.min(wanted[0], rows - 1), Math.min(wanted[1], cols - 1)];
  const labelled = labelWidth(rowLabels, room);
  const across = Math.max(120, room - labelled - 2);
  const named = colLabels !== undefined;
  const cellWidth = Math.max(named ? 15 : cols > 192 ? 2 : 5, Math.min(named ? 28 : 22, Math.floor(across / Math.max(1, cols))));
  const cellHeight = rows > 40 ? 15 : Math.max(18, Math.min(26, named ? cellWidth : 200 / rows)); // keeps the numbers below visible
  useEffect(() => {
    const seen = mask && Uint8Array.from(value.data, (_, i) => Number(isSeen(props, i)));
    drawHeat(canvas.current!, { rows, cols, data: value.data, mask: seen, scale, limit, cellWidth, cellHeight, colours, cell });
  }, [value, mask, scale, limit, cellWidth, cellHeight, colours, cell[0], cell[1]]);
  const choose = (row: number, col: number) => {
    setOwn([row, col]);
    onSelect?.(row, col);
  };
  const always = props.numbers !== "toggle";
  return (
    <div ref={measure} style={{ "--labels": `${labelled}px` }}>
      <Scroll class="matrix-scroll" label={`${props.label}: heat map`}>
        <div class="matrix-grid" aria-hidden="true">
          <div class="matrix-corner">
            {props.rowName && <span>{props.rowName} ↓</span>}
            {props.colName && <span>{props.colName} →</span>}
          </div>
          <ColumnLabels cols={cols} width={cellWidth} labels={colLabels} chosen={cell[1]} />
          <div class="matrix-rows">
            {Array.from({ length: rows }, (_, i) => (
              <span key={i} class={i === cell[0] ? "lit" : ""} style={{ height: `${cellHeight}px`, lineHeight: `${cellHeight}px` }}>
                <bdi>{rowLabels ? visible(rowLabels[i]) : rows > 1 ? i : ""}</bdi>
              </span>
            ))}
          </div>
          <canvas ref={canvas} onClick={({ offsetX, offsetY }) => choose(Math.min(rows - 1, Math.floor(offsetY / cellHeight)), Math.min(cols - 1, Math.floor(offsetX / cellWidth)))} />
        </div>
        <Legend limit={limit} scale={scale} masked={Boolean(mask)} />
      </Scroll>
      {!always && <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide numbers" : "Show numbers"}</button>}
      {(always || open) && <NumberGrid {...props} cell={cell} onSelect={choose} room={room} />}
    </div>
  );
}

/** A box that scrolls where its content is too large, and can then be reached and scrolled by keyboard. */
export function Scroll({ class: name, label, children }: { class: string; label: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useLayoutEffect(() => {
    const { scrollWidth, clientWidth, scrollHeight, clientHeight } = box.current!;
    setScrolls(scrollWidth > clientWidth || scrollHeight > clientHeight);
  });
  return <div ref={box} class={name} tabIndex={scrolls ? 0 : undefined} role="group" aria-label={label}>{children}</div>;
}

/** The colour scale. */
function Legend({ limit, scale, masked }: { limit: number; scale: HeatScale; masked: boolean }) {
  if (limit === Infinity) return null; // numbers that are no quantities have no colour
  return (
    <p class="legend" aria-hidden="true">
      <span>{scale === "signed" ? number(-limit) : 0}</span>
      <span class={`legend-bar legend-${scale}`} />
      <span>{scale === "signed" && limit > 0 ? `+${number(limit)}` : number(limit)}</span>
      {masked && <><span class="legend-mask" /><span>masked</span></>}
    </p>
  );
}

function ColumnLabels({ cols, width, labels, chosen }: { cols: number; width: number; labels?: readonly string[]; chosen: number }) {
  if (labels) {
    return (
      <div class="matrix-cols">
        {Array.from({ length: cols }, (_, i) => (
          <span key={i} class={i === chosen ? "lit" : ""} style={{ width: `${width}px` }}><bdi class={visible(labels[i])[1] ? undefined : "upright"}>{visible(labels[i])}</bdi></span>
        ))}
      </div>
    );
  }
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step * width >= 34) ?? 2000;
  return (
    <div class="matrix-ticks" style={{ width: `${cols * width}px` }}>
      {Array.from({ length: Math.ceil(cols / every) }, (_, i) => i * every).map((at) => (
        <span key={at} style={{ left: `${at * width}px` }}>{at}</span>
      ))}
    </div>
  );
}

/** The width of an element, updated when it is resized. */
function useElementWidth(): [number, (element: HTMLElement | null) => void] {
  const [room, setRoom] = useState(640);
  const element = useRef<HTMLElement | null>(null);
  useLayoutEffect(() => { // before painting, to avoid a layout shift
    const box = element.current;
    if (!box) return;
    const observer = new ResizeObserver(() => setRoom(box.clientWidth));
    observer.observe(box);
    setRoom(box.clientWidth);
    return () => observer.disconnect();
  }, []);
  return [room, (box) => void (element.current = box)];
}

const ROWS = 6;
/** How far a key moves the selected cell, down and across. */
const MOVES: Record<string, [number, number]> = {
  ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [ROWS, 0], PageUp: [-ROWS, 0], Home: [0, -Infinity], End: [0, Infinity],
};

/** First index of a window of `shown` indices with `at` near its middle. */
const first = (at: number, size: number, shown: number) => Math.max(0, Math.min(size - shown, at - Math.floor(shown / 2)));

/** `room` is the available width in pixels. */
function NumberGrid(props: MatrixData & { cell: readonly [number, number]; onSelect: (row: number, col: number) => void; room: number }) {
  const { value, cell, onSelect, rowLabels, colLabels, room, scale, label } = props;
  const { rows, cols } = toGrid(value);
  const { group, moved } = useArrowKeys(MOVES, ([down, across]) =>
    onSelect(Math.max(0, Math.min(rows - 1, cell[0] + down)), Math.max(0, Math.min(cols - 1, cell[1] + across))), true);
  const colours = useValue(palette);
  const limit = magnitude(value.data);
  const shownRows = Math.min(rows, ROWS);
  const shownCols = Math.min(cols, Math.max(2, Math.floor((room - 110) / 78)));
  const top = first(cell[0], rows, shownRows);
  const left = first(cell[1], cols, shownCols);
  const integers = value.dtype === "i32" || value.dtype === "u8";
  return (
    <div class="numbers">
      <table role="grid" aria-label={`${label}: numbers`} aria-rowcount={rows} aria-colcount={cols} {...group}>
        <thead>
          <tr>
            <td />
            {Array.from({ length: shownCols }, (_, c) => (
              <th key={c} scope="col"><bdi>{colLabels ? visible(colLabels[left + c]) : left + c}</bdi></th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: shownRows }, (_, r) => (
            <tr key={r} aria-rowindex={top + r + 1}>
              {rows > 1 || rowLabels
                ? <th scope="row"><bdi>{rowLabels ? visible(rowLabels[top + r]) : top + r}</bdi></th>
                : <td />}
              {Array.from({ length: shownCols }, (_, c) => {
                const [row, col] = [top + r, left + c];
                const at = row * cols + col;
                const x = value.data[at] ?? NaN;
                const masked = !isSeen(props, at);
                const off = masked || x < -BLOCKED;
                const chosen = row === cell[0] && col === cell[1];
                return (
                  <td
                    key={c} data-row={row} data-col={col} data-value={exact(x)} aria-colindex={col + 1}
                    aria-selected={chosen} tabIndex={chosen ? 0 : -1} class={off ? "masked" : undefined}
                    style={off || integers ? undefined : { boxShadow: `inset 0 -3px ${css(shade(x, limit, scale, colours))}` }}
                    onClick={() => {
                      moved.current = true;
                      onSelect(row, col);
                    }}
                  >
                    {masked ? "masked" : integers ? x : number(x)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {(shownRows < rows || shownCols < cols) && <p class="note">{`${rows} × ${cols} in total; the arrow keys move the window.`}</p>}
    </div>
  );
}
