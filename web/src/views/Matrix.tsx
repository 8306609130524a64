/**
 * A matrix as a heat map with labels and, under it, the numbers themselves: a window of cells that is walked
 * with the arrow keys and moves along. The canvas is for eyes and pointers; the table says the same to everyone.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useTensor } from "../state/resource";
import { useValue } from "../state/signals";
import { palette } from "../state/theme";
import { number, visible } from "../tensors/format";
import { asGrid } from "../tensors/grid";
import { drawHeat } from "../tensors/heat";
import { magnitude, type TensorValue } from "../tensors/tensor";
import { useHeld } from "./habits";
import { NumberGrid } from "./NumberGrid";
import { Thumb } from "./Thumb";

export interface MatrixProps {
  /** Node (or parameter) whose numbers are shown; fetched unless `value` is given. */
  node: string;
  slice?: string;
  /** Already at hand, 2-D (1-D is one row). */
  value?: TensorValue | null;
  rowLabels?: readonly string[];
  colLabels?: readonly string[];
  /** What a row and a column are: "token", "feature". */
  rowName?: string;
  colName?: string;
  /** 1 where a cell may be attended to; one row is repeated for all. Masked cells are hatched. */
  mask?: TensorValue | null;
  /** From the numbers when absent: sequential if none is negative. */
  scale?: "signed" | "sequential";
  /** Magnitude of the full colour; the largest when absent. */
  limit?: number;
  /** Chosen cell; kept here when absent. */
  cell?: readonly [number, number] | null;
  onSelect?: (row: number, col: number) => void;
  onHover?: (row: number | null, col: number | null) => void;
  /** A row pointed at, here or elsewhere: framed. */
  litRow?: number | null;
  /** Heat map alone, this many CSS pixels wide and high. */
  mini?: { width: number; height: number };
  /** The numbers: always (default), or behind a button. */
  numbers?: "always" | "toggle";
  /** Name for assistive technology. */
  label: string;
}

export function Matrix(props: MatrixProps) {
  const fetched = useTensor(props.value === undefined ? props.node : null, props.slice);
  const value = props.value ?? fetched.value;
  const { node, slice = "", mini, label } = props;
  const held = useHeld(!mini && !value && !fetched.error);
  const figure = held.ref;
  const refocus = useRef(false);
  // Another head or layer: its numbers are fetched, and whoever walked the grid goes on in the new one.
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
        : value ? (mini ? <Mini {...props} value={value} /> : <Large {...props} value={value} />) : null}
    </figure>
  );
}

type Ready = MatrixProps & { value: TensorValue };

function fullMask(mask: TensorValue | null | undefined, size: number): Uint8Array | null {
  if (!mask) return null;
  return Uint8Array.from({ length: size }, (_, i) => Number(mask.data[i % mask.data.length] !== 0));
}

function useHeat(props: Ready, cellWidth: number, cellHeight: number, cell: readonly [number, number] | null) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useValue(palette);
  const { value, limit, scale } = props;
  const { rows, cols } = asGrid(value);
  useEffect(() => {
    if (!canvas.current) return;
    drawHeat(canvas.current, {
      rows, cols, data: value.data, mask: fullMask(props.mask, value.data.length),
      scale: scale ?? scaleOf(value), limit: limit ?? magnitude(value.data), cellWidth, cellHeight, colours, cell,
    });
  }, [value, props.mask, scale, limit, cellWidth, cellHeight, colours, cell?.[0], cell?.[1]]);
  return canvas;
}

export function scaleOf(value: TensorValue): "signed" | "sequential" {
  for (const x of value.data) if (x < 0) return "signed";
  return "sequential";
}

function Mini({ value, mask, scale = scaleOf(value), mini }: Ready) {
  return <Thumb grid={asGrid(value)} mask={mask ? asGrid(mask) : null} scale={scale} {...mini!} />;
}

const LABEL_WIDTH = 92;

function Large(props: Ready) {
  const { value, rowLabels, colLabels, onSelect, onHover } = props;
  const { rows, cols } = asGrid(value);
  const [room, measure] = useRoom();
  const [own, setOwn] = useState<readonly [number, number]>([0, 0]);
  const [open, setOpen] = useState(false);
  const wanted = props.cell ?? own;
  const cell: [number, number] = [Math.min(wanted[0], rows - 1), Math.min(wanted[1], cols - 1)];
  const across = Math.max(120, room - LABEL_WIDTH - 2);
  const named = colLabels !== undefined;
  const cellWidth = Math.max(named ? 15 : cols > 192 ? 2 : 5, Math.min(named ? 28 : 22, Math.floor(across / Math.max(1, cols))));
  const cellHeight = rows > 40 ? 15 : Math.max(18, Math.min(26, named ? cellWidth : 200 / rows)); // the numbers below stay in sight
  const canvas = useHeat(props, cellWidth, cellHeight, cell);
  const choose = (row: number, col: number) => {
    setOwn([row, col]);
    onSelect?.(row, col);
  };
  const at = (event: MouseEvent): [number, number] => [
    Math.min(rows - 1, Math.floor(event.offsetY / cellHeight)), Math.min(cols - 1, Math.floor(event.offsetX / cellWidth)),
  ];
  const width = LABEL_WIDTH + cols * cellWidth;
  const always = props.numbers !== "toggle";
  const beside = room - width > 430 && always;
  const scrolls = cols * cellWidth > across || rows * cellHeight + 112 > Math.min(0.7 * innerHeight, 640); // labels: 7rem at most
  return (
    <div ref={measure} class={beside ? "matrix-body matrix-beside" : "matrix-body"}>
      <div class="matrix-scroll" tabIndex={scrolls ? 0 : undefined} role="group" aria-label={`${props.label}: heat map`}>
        <div class="matrix-grid" style={{ gridTemplateColumns: `${LABEL_WIDTH}px auto` }} aria-hidden="true">
          <div class="matrix-corner">
            {props.rowName && <span>{props.rowName} ↓</span>}
            {props.colName && <span>{props.colName} →</span>}
          </div>
          <ColumnLabels cols={cols} width={cellWidth} labels={colLabels} chosen={cell[1]} />
          <RowLabels rows={rows} height={cellHeight} labels={rowLabels} chosen={cell[0]} />
          <canvas
            ref={canvas}
            onClick={(event) => choose(...at(event))}
            onMouseMove={(event) => onHover?.(...at(event))}
            onMouseLeave={() => onHover?.(null, null)}
          />
          {props.litRow != null && props.litRow < rows && <span class="matrix-lit" style={{ height: `${cellHeight}px`, top: `${props.litRow * cellHeight}px` }} />}
        </div>
        <Legend limit={props.limit ?? magnitude(value.data)} scale={props.scale ?? scaleOf(value)} masked={Boolean(props.mask)} />
      </div>
      {!always && <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide the numbers" : "Show the numbers"}</button>}
      {(always || open) && (
        <NumberGrid
          value={value} rows={rows} cols={cols} cell={cell} onSelect={choose} room={beside ? room - width - 40 : room} scale={props.scale ?? scaleOf(value)} label={props.label}
          mask={fullMask(props.mask, value.data.length)} rowLabels={rowLabels} colLabels={colLabels}
        />
      )}
    </div>
  );
}

/** What the colours mean. */
function Legend({ limit, scale, masked }: { limit: number; scale: "signed" | "sequential"; masked: boolean }) {
  return (
    <p class="legend" aria-hidden="true">
      <span>{scale === "signed" ? number(-limit) : 0}</span>
      <span class={`legend-bar legend-${scale}`} />
      <span>{scale === "signed" ? `+${number(limit)}` : number(limit)}</span>
      {masked && <><span class="legend-mask" /><span>masked</span></>}
    </p>
  );
}

function ColumnLabels({ cols, width, labels, chosen }: { cols: number; width: number; labels?: readonly string[]; chosen: number }) {
  if (labels) {
    return (
      <div class="matrix-cols">
        {Array.from({ length: cols }, (_, i) => (
          <span key={i} class={i === chosen ? "lit" : ""} style={{ width: `${width}px` }}><bdi>{visible(labels[i])}</bdi></span>
        ))}
      </div>
    );
  }
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step * width >= 34) ?? 2000;
  return (
    <div class="matrix-ticks" style={{ width: `${cols * width}px` }}>
      {Array.from({ length: Math.ceil(cols / every) }, (_, i) => (
        <span key={i} style={{ left: `${i * every * width}px` }}>{i * every}</span>
      ))}
    </div>
  );
}

function RowLabels({ rows, height, labels, chosen }: { rows: number; height: number; labels?: readonly string[]; chosen: number }) {
  return (
    <div class="matrix-rows">
      {Array.from({ length: rows }, (_, i) => (
        <span key={i} class={i === chosen ? "lit" : ""} style={{ height: `${height}px`, lineHeight: `${height}px` }}>
          <bdi>{labels ? visible(labels[i]) : rows > 1 ? i : ""}</bdi>
        </span>
      ))}
    </div>
  );
}

/** Width the widget may take, followed as the window changes. */
function useRoom(): [number, (element: HTMLElement | null) => void] {
  const [room, setRoom] = useState(640);
  const element = useRef<HTMLElement | null>(null);
  useLayoutEffect(() => { // before anything is seen, so that nothing jumps
    const box = element.current;
    if (!box) return;
    const observer = new ResizeObserver(() => setRoom(box.clientWidth));
    observer.observe(box);
    setRoom(box.clientWidth);
    return () => observer.disconnect();
  }, []);
  return [room, (box) => void (element.current = box)];
}
