/** The Attention screen: all heads as small heat maps and one in full. */
import { useMemo, useState } from "preact/hooks";
import { useScreenKeys } from "../state/keys";
import { editable, edits, hoveredToken, hrefTo, route, selection, setParams, toggleEdit } from "../state/page";
import { useValue } from "../state/signals";
import { number, percent, points } from "../tensors/format";
import { at, type Grid, headOf, magnitude, mayAttend, selectCells, selectMask, toTensorValue } from "../tensors/tensor";
import { editText, headOff, maskOfHead } from "../trace/edits";
import {
  type AttentionGroup, type AttentionLayer, type Label, labelsOf, measure, measuresOf, rowLabelsOf, rowsWithoutPadding, type View, viewOf,
  visibleIndices,
} from "../trace/heads";
import type { Manifest } from "../types";
import { Bars } from "../views/Bars";
import { Choices } from "../views/Choices";
import { Switch } from "../views/EditBar";
import { Matrix, Thumb, thumbHeight } from "../views/Matrix";
import { Terms } from "../views/Terms";
import { useArrowKeys } from "../views/interaction";
import { type LayerValues, useWeights, Waiting } from "../views/weights";

interface Arc {
  query: number;
  key: number;
  /** Negative only of a difference. */
  weight: number;
}

/** Each query gets lines for its `MAX_ARCS` largest weights of at least `MIN_WEIGHT`. */
const MIN_WEIGHT = 0.03;
const MAX_ARCS = 8;

/**
 * The `max` largest weights of at least `minWeight` of each query, in ascending order, so that large ones are drawn on top.
 * `share` is their fraction of all weight. Of differences it is the magnitude that counts, also in the share.
 */
export function largestArcs(weights: Grid, mask: Grid | null, minWeight = MIN_WEIGHT, max = MAX_ARCS): { arcs: Arc[]; share: number } {
  const size = ({ weight }: Arc) => Math.abs(weight);
  const sum = (some: Arc[]) => some.reduce((total, arc) => total + size(arc), 0);
  const all: Arc[] = [];
  const arcs: Arc[] = [];
  for (let query = 0; query < weights.rows; query++) {
    const row = Array.from({ length: weights.cols }, (_, key) => ({ query, key, weight: at(weights, query, key) }));
    all.push(...row);
    const heavy = row.filter((arc) => size(arc) >= minWeight && mayAttend(mask, query, arc.key));
    arcs.push(...heavy.sort((a, b) => size(b) - size(a)).slice(0, max));
  }
  return { arcs: arcs.sort((a, b) => size(a) - size(b)), share: sum(arcs) / (sum(all) || 1) };
}

/** The SVG attributes of a line: a horizontal-ended curve, with width and opacity by weight; dashed below 0. */
export function arcLine(arc: Arc, width: number, rowHeight: number, limit: number) {
  const [from, to] = [arc.query, arc.key].map((index) => (index + 0.5) * rowHeight);
  const bend = Math.round(width * 0.45);
  const share = Math.min(1, Math.abs(arc.weight) / limit);
  return {
    d: `M0,${from}C${bend},${from} ${width - bend},${to} ${width},${to}`,
    "stroke-width": (0.7 + 3.3 * share).toFixed(2),
    "stroke-opacity": (0.12 + 0.8 * share).toFixed(2),
    ...(arc.weight < 0 && { "stroke-dasharray": "5 3" }),
  };
}

/** What the lines show, in words; a share of weight only where all weights are positive. */
export function arcsInWords({ arcs, share }: ReturnType<typeof largestArcs>, difference: boolean): string {
  if (!difference) return `The ${MAX_ARCS} largest weights of at least ${MIN_WEIGHT * 100}% per query: ${Math.round(share * 100)}% of all weight. `;
  if (!arcs.length) return `No weight changes by ${MIN_WEIGHT * 100} percentage points or more. `;
  return `The ${MAX_ARCS} largest changes of at least ${MIN_WEIGHT * 100} percentage points per query; dashed where the weight falls. `;
}

interface Point {
  side: "query" | "key";
  at: number;
}

/** A matrix of weights, or of their differences, as it is drawn, without what is hidden. */
interface Shown {
  grid: Grid;
  mask: Grid | null;
  rows: Label[];
  cols: Label[];
  names: Record<Point["side"], string>;
  difference: boolean;
}

/** What is pointed at and chosen, and what follows. */
interface Pointing {
  point: Point | null;
  onPoint: (point: Point | null) => void;
  /** A token was clicked or Enter pressed on it. */
  onChoose: (point: Point) => void;
  chosen: number | null; // row
}

const WIDTH = 220;

/**
 * The weights of a head as lines between two columns of tokens, queries on the left and keys on the right. Pointing at
 * a token, or moving to it with the arrow keys, shows only its lines.
 */
function Arcs({ shown, pointing }: { shown: Shown; pointing: Pointing }) {
  const { grid, mask, rows, cols, names, difference } = shown, { point, chosen } = pointing;
  const nRows = Math.max(rows.length, cols.length);
  const rowHeight = nRows > 48 ? 17 : 22;
  const limit = magnitude(grid.data) || 1;
  const line = (arc: Arc) => <path key={`${arc.query},${arc.key}`} class={difference ? `arc arc-${arc.weight < 0 ? "minus" : "plus"}` : "arc"} {...arcLine(arc, WIDTH, rowHeight, limit)} />;
  const { lines, words } = useMemo(() => {
    const found = largestArcs(grid, mask);
    return { lines: found.arcs.map(line), words: arcsInWords(found, difference) };
  }, [grid, mask]);
  const active = point ?? (chosen === null ? null : { side: "query" as const, at: chosen });
  /** The weight between a token of a column and the highlighted one. */
  const tint = (side: Point["side"], i: number) => {
    const weight = !active || active.side === side ? 0 : side === "key" ? at(grid, active.at, i) : at(grid, i, active.at);
    return Math.min(1, Math.abs(weight) / limit) * 0.45;
  };
  const column = (side: Point["side"], labels: Label[]) => <Column {...{ side, labels, active, tint, rowHeight, pointing }} name={names[side]} />;
  return (
    <div class="arcs">
      <div class="arcs-heads" aria-hidden="true"><span>{names.query}</span><span>{names.key}</span></div>
      <div class="arcs-scroll">
        {column("query", rows)}
        <svg height={nRows * rowHeight} viewBox={`0 0 ${WIDTH} ${nRows * rowHeight}`} preserveAspectRatio="none" aria-hidden="true">
          <g opacity={active ? 0.1 : 1}>{lines}</g>
          {active && arcsOf(grid, mask, active).map(line)}
        </svg>
        {column("key", cols)}
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

interface ColumnProps {
  side: Point["side"];
  labels: Label[];
  name: string;
  active: Point | null;
  tint: (side: Point["side"], index: number) => number;
  rowHeight: number;
  pointing: Pointing;
}

function Column({ side, labels, name, active, tint, rowHeight, pointing: { chosen, onPoint, onChoose } }: ColumnProps) {
  const last = labels.length - 1;
  const current = active?.side === side ? active.at : side === "query" ? chosen ?? 0 : 0;
  const { group } = useArrowKeys({ ArrowDown: 1, ArrowUp: -1 }, (by) => onPoint({ side, at: Math.max(0, Math.min(last, current + by)) }));
  return (
    <ol class={`arcs-${side}`} aria-label={name} {...group}>
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
              <span class="arcs-tint" style={{ opacity: tint(side, i) }} />
              <bdi class={label.special ? "arcs-special" : undefined}>{label.text}</bdi>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

interface FigureProps {
  view: View;
  title: string;
  whole: Grid;
  wholeMask: Grid | null;
  allRows: Label[];
  allCols: Label[];
}

/** The weights of a head in full: heat map, lines, and the largest weights of the selected row. */
function Figure({ view: { group, layer, head, hide, difference }, title, whole, wholeMask, allRows, allCols }: FigureProps) {
  const [point, setPoint] = useState<Point | null>(null);
  const cell = useValue(selection);
  const [rowsShown, colsShown] = [visibleIndices(allRows, hide), visibleIndices(allCols, hide)];
  const { grid, mask, value, maskValue } = useMemo(() => {
    const [some, may] = [selectCells(whole, rowsShown, colsShown), selectMask(wholeMask, rowsShown, colsShown)];
    return { grid: some, mask: may, value: toTensorValue(some), maskValue: may && toTensorValue(may) };
  }, [whole, wholeMask, hide]);
  if (grid.rows * grid.cols === 0) return <p class="note">There are no tokens to show.</p>;
  const [rows, cols] = [rowsShown.map((row) => allRows[row]!), colsShown.map((col) => allCols[col]!)];
  const names = group.queries === group.keys ? { query: "query", key: "key" } : { query: group.queries, key: group.keys };
  const [row, col] = [rowsShown.indexOf(cell.row ?? -1), colsShown.indexOf(cell.col ?? 0)];
  const chosen = row < 0 ? null : row;
  const onPoint = (next: Point | null) => {
    if (next?.side === point?.side && next?.at === point?.at) return;
    setPoint(next);
    const label = next && (next.side === "query" ? rows : cols)[next.at];
    hoveredToken.value = label ? { stream: label.stream, index: label.index } : null;
  };
  const choose = (r: number, c: number) => setParams({ cell: `${rowsShown[r]},${colsShown[c]}` });
  const onChoose = ({ side, at: i }: Point) => (side === "query" ? choose(i, byWeight(grid, mask, i)[0] ?? 0) : choose(chosen ?? 0, i));
  const pointed = point?.side === "query" ? point.at : null;
  const shown = { grid, mask, rows, cols, names, difference };
  return (
    <div class="attention-figure" data-view="figure">
      <Matrix
        node={layer.weights} slice={`head:${head}`} value={value} mask={maskValue} scale={difference ? "signed" : "sequential"}
        rowLabels={rows.map((label) => label.text)} colLabels={cols.map((label) => label.text)} rowName={names.query} colName={names.key}
        cell={[Math.max(0, row), Math.max(0, col)]} onSelect={choose} litRow={pointed}
        onHover={(r) => onPoint(r === null ? null : { side: "query", at: r })} numbers="toggle" label={title}
      />
      <div class="attention-beside">
        <Reading shown={shown} row={Math.min(pointed ?? chosen ?? 0, rows.length - 1)} />
        <Arcs shown={shown} pointing={{ point, chosen, onPoint, onChoose }} />
      </div>
    </div>
  );
}

/** The unmasked keys of a row, by descending magnitude. */
function byWeight(grid: Grid, mask: Grid | null, row: number): number[] {
  const size = (col: number) => Math.abs(at(grid, row, col));
  return [...Array(grid.cols).keys()].filter((col) => mayAttend(mask, row, col)).sort((a, b) => size(b) - size(a));
}

function Reading({ shown: { grid, mask, rows, cols, difference }, row }: { shown: Shown; row: number }) {
  const keys = byWeight(grid, mask, row);
  const rest = keys.slice(5).map((col) => at(grid, row, col));
  const limit = Math.abs(at(grid, row, keys[0] ?? 0)) || 1;
  const still = difference && keys.every((col) => at(grid, row, col) === 0);
  /** Adds the index to tokens that occur more than once. */
  const name = ({ text, index }: Label) =>
    cols.some((label) => label.text === text && label.index !== index) ? `${text} · ${index}` : text;
  return (
    <div class="attention-reading">
      <h3>Row {row}, <bdi class="quoted">{rows[row]!.text}</bdi>, {still ? "does not change" : difference ? "changes most at" : "attends most to"}</h3>
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

interface HeadGridProps {
  manifest: Manifest;
  view: View;
  layers: Map<string, LayerValues>;
  rows: Label[];
  cols: Label[];
}

interface Entry {
  layer: AttentionLayer;
  head: number;
  grid: Grid;
  mask: Grid | null;
  score: number | null;
}

function HeadGrid(props: HeadGridProps) {
  const { group, layer: chosenLayer, head: chosenHead, sort, difference } = props.view;
  const entries = useEntries(props);
  const ranked = sort !== "model";
  const total = group.layers.reduce((sum, layer) => sum + layer.nHeads, 0);
  const width = total <= 4 ? 150 : total <= 16 ? 116 : 92;
  const isChosen = ({ layer, head }: Entry) => layer.weights === chosenLayer.weights && head === chosenHead;
  const choose = ({ layer, head }: Entry) => setParams({ node: layer.weights, layer: layer.layer, head });
  const across = ranked ? 1 : chosenLayer.nHeads;
  const arrows = useArrowKeys({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }, (by) => {
    const next = entries[entries.findIndex(isChosen) + by];
    if (next) choose(next);
  });
  const button = (entry: Entry) => {
    const { layer, head, grid, mask, score } = entry;
    const largest = `${difference ? "±" : "≤"} ${number(magnitude(grid.data), 2)}`;
    const measured = ranked && score !== null ? score.toFixed(2) : largest;
    return (
      <button
        key={`${layer.weights}:${head}`} type="button" class="head-button" aria-pressed={isChosen(entry)} tabIndex={isChosen(entry) ? 0 : -1}
        aria-label={`Layer ${layer.layer}, head ${head}, ${ranked ? `${sort} ${measured}` : `${difference ? "changes" : "weights"} ${largest}`}`}
        data-head={`${layer.weights}:${head}`} data-score={score ?? ""} onClick={() => choose(entry)}
      >
        <Thumb grid={grid} mask={mask} scale={difference ? "signed" : "sequential"} width={width} height={thumbHeight(width, grid.rows, grid.cols)} />
        <span class="head-caption"><span>{ranked ? `${layer.layer}·${head}` : head}</span><span>{measured}</span></span>
      </button>
    );
  };
  const blank = { width: `${width}px`, height: `${thumbHeight(width, props.rows.length, props.cols.length)}px` };
  return (
    <div class={ranked ? "head-grid head-grid-ranked" : "head-grid"} role="group" aria-label={`${group.title}: heads`} {...arrows.group}>
      {ranked ? entries.map(button) : group.layers.map((layer) => (
        <div class="head-row" key={layer.weights}>
          <span class="head-layer">Layer {layer.layer}</span>
          {props.layers.has(layer.weights)
            ? entries.filter((entry) => entry.layer.weights === layer.weights).map(button)
            : Array.from({ length: layer.nHeads }, (_, head) => <span key={head} class="head-blank" style={blank} />)}
        </div>
      ))}
    </div>
  );
}

function useEntries({ manifest, view: { group, cross, sort, hide, difference }, layers, rows, cols }: HeadGridProps): Entry[] {
  // Cache the entries of each layer, so that they are not drawn again when the next layer arrives.
  const known = useMemo(() => new WeakMap<LayerValues, Entry[]>(), [group.kind, hide, sort, manifest]);
  return useMemo(() => {
    const [rowsShown, colsShown, counted] = [visibleIndices(rows, hide), visibleIndices(cols, hide), rowsWithoutPadding(rows, hide)];
    const entries = group.layers.flatMap((layer): Entry[] => {
      const values = layers.get(layer.weights);
      if (!values) return [];
      if (!known.has(values)) {
        known.set(values, Array.from({ length: layer.nHeads }, (_, head) => {
          const [whole, mask] = [headOf(values.weights, head), maskOfHead(manifest, layer.weights, head, values.mask)];
          const score = measure(sort !== "model" ? sort : difference ? "change" : "entropy", whole, mask, counted, group === cross);
          return { layer, head, grid: selectCells(whole, rowsShown, colsShown), mask: selectMask(mask, rowsShown, colsShown), score };
        }));
      }
      return known.get(values)!;
    });
    if (sort === "model") return entries;
    const sign = sort === "entropy" ? 1 : -1; // entropy ascending, other measures descending
    return entries.sort((a, b) => sign * ((a.score ?? Infinity) - (b.score ?? Infinity)));
  }, [group.kind, layers, hide, sort, manifest]);
}

export function AttentionScreen({ trace }: { trace: Manifest }) {
  const view = viewOf(trace, useValue(route).params);
  return view ? <HeadsView trace={trace} view={view} /> : <p class="note">This trace holds no attention weights.</p>;
}

/** All heads as small heat maps and one in full. */
function HeadsView({ trace, view }: { trace: Manifest; view: View }) {
  const { groups, group, cross, layer, head, hide, sort, difference } = view;
  const fetched = useWeights(trace.id, group.layers);
  const [rows, cols] = [rowLabelsOf(trace, group.queries), labelsOf(trace, group.keys)];
  const values = fetched.layers.get(layer.weights);
  const grid = useMemo(() => values && headOf(values.weights, head), [values, head]);
  const mask = useMemo(() => (values ? maskOfHead(trace, layer.weights, head, values.mask) : null), [values, head, trace]);
  const measures = measuresOf(group === cross, difference);
  const title = `${group.title}, layer ${layer.layer}, head ${head}`;
  const open = ({ layers }: AttentionGroup) => setParams({ node: (layers[layer.layer] ?? layers[0]!).weights, cell: null }, { push: true });
  return (
    <>
      <h1 class="visually-hidden">Attention</h1>
      <div class="attention-bar">
        <Choices
          name="kind" label="Kind of attention" options={groups.map(({ kind, title }) => [kind, title] as const)} chosen={group.kind}
          onChoose={(kind) => open(groups.find((one) => one.kind === kind)!)}
        />
        <label class="attention-hide">
          <input type="checkbox" checked={hide} onChange={(event) => setParams({ hide: event.currentTarget.checked ? 1 : null })} />
          Hide special tokens
        </label>
      </div>
      <p><Terms>{group.meaning}{" "}{difference
        ? "How each weight changes: orange where it grows, blue where it shrinks; what a row gains at one token it loses at others."
        : "The stronger the colour, the larger the weight; every row sums to 1."}</Terms></p>
      <div class="attention-order">
        <span>Sort heads by</span>
        <Choices
          name="sort" label="Order of heads" chosen={sort} onChoose={(name) => setParams({ sort: name === "model" ? null : name })}
          options={[["model", "layer"], ...measures.map(([name, label]) => [name, label] as const)]}
        />
        <p class="note">{measures.find(([name]) => name === sort)?.[2] ?? `Below each heat map: the head’s number and its largest ${difference ? "change" : "weight"}.`}</p>
      </div>
      <HeadGrid manifest={trace} view={view} layers={fetched.layers} rows={rows} cols={cols} />
      <h2 class="attention-title">
        {title}
        <a class="small" href={hrefTo("step", { node: layer.weights, head })}>how these weights are computed</a>
      </h2>
      <HeadEdits {...{ layer, head, cols, rows, title, mask }} onNextKind={() => open(groups[(groups.indexOf(group) + 1) % groups.length]!)} />
      <Waiting fetched={fetched} wanted={[layer]} />
      {grid && hide && <p class="note">{difference ? "Changes" : "Weights"} on hidden special tokens are not shown; the others are not rescaled.</p>}
      {grid && <Figure view={view} title={title} whole={grid} wholeMask={mask} allRows={rows} allCols={cols} />}
    </>
  );
}

interface HeadEditsProps {
  layer: AttentionLayer;
  head: number;
  rows: Label[];
  cols: Label[];
  title: string;
  /** The mask of the head, with the keys that edits block. */
  mask: Grid | null;
  /** Opens the next kind of attention. */
  onNextKind: () => void;
}

function HeadEdits({ layer, head, rows, cols, title, mask, onNextKind }: HeadEditsProps) {
  const { row, col } = useValue(selection);
  const all = useValue(edits);
  const offered = useValue(editable);
  const key = cols[col ?? 0] ? (col ?? 0) : 0;
  const scores = layer.weights.replace(/weights$/, "scores");
  const off = headOff(layer.weights, head);
  const column = editText(scores, `head:${head};key:${key}`, "=blocked");
  const cell = row === null || !rows[row] ? null : editText(scores, `head:${head};token:${row};key:${key}`, "=blocked");
  // What no query may attend to, by the mask or by edits, need not be blocked again; an edit can be taken back.
  const blocked = (queries: number[]) => mask !== null && queries.every((query) => !mayAttend(mask, query, key));
  const [made, makes] = [all.includes(column), cell !== null && all.includes(cell)];
  const noKey = !made && blocked([...rows.keys()]);
  const noCell = !makes && row !== null && blocked([row]);
  useScreenKeys((event) => {
    if (event.key === "k") onNextKind();
    else if (!offered) return false;
    else if (event.key === "x") toggleEdit(off);
    else if (event.key === "b") { if (!noKey) toggleEdit(column); }
    else return false;
    return true;
  });
  if (!offered) return null;
  return (
    <div class="edit-tools" role="group" aria-label="Edits of this head">
      <span><Switch edit={off} label={title} /> this head</span>
      <button type="button" class="quiet" aria-pressed={made} disabled={noKey} onClick={() => toggleEdit(column)} title="Key b">
        {made ? "Unblock the key " : noKey ? "Blocked: the key " : "Block the key "}<bdi>{cols[key]?.text}</bdi>
      </button>
      {cell && (
        <button type="button" class="quiet" aria-pressed={makes} disabled={noCell} onClick={() => toggleEdit(cell)}>
          {makes ? "unblock it for the query " : noCell ? "blocked for the query " : "only for the query "}<bdi>{rows[row!]?.text}</bdi>
        </button>
      )}
    </div>
  );
}
