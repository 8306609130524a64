/** The Attention screen: all heads as small heat maps and one in full. */
import { useMemo } from "preact/hooks";
import { useScreenKeys } from "../state/keys";
import { editable, edits, hrefTo, route, selection, setParams, toggleEdit } from "../state/page";
import { useValue } from "../state/signals";
import { number, percent, points } from "../tensors/format";
import { at, type Grid, headOf, magnitude, maskOfRows, mayAttend, toTensorValue } from "../tensors/tensor";
import { editText, headOff, maskOfHead } from "../trace/edits";
import {
  type AttentionGroup, type AttentionLayer, type Label, labelsOf, measure, measuresOf, rowLabelsOf, type View, viewOf,
} from "../trace/heads";
import type { Manifest } from "../types";
import { Bars } from "../views/Bars";
import { Choices } from "../views/Choices";
import { Switch } from "../views/EditBar";
import { Matrix, Thumb, thumbHeight } from "../views/Matrix";
import { Terms } from "../views/Terms";
import { useArrowKeys } from "../views/interaction";
import { type LayerValues, useWeights } from "../views/weights";

interface FigureProps {
  view: View;
  title: string;
  grid: Grid;
  mask: Grid | null;
  rows: Label[];
  cols: Label[];
}

/** The weights of a head in full, and the largest of the selected row. */
function Figure({ view: { group, layer, head, difference }, title, grid, mask, rows, cols }: FigureProps) {
  const cell = useValue(selection);
  const { value, maskValue } = useMemo(() => ({ value: toTensorValue(grid), maskValue: mask && toTensorValue(maskOfRows(mask, grid.rows)!) }), [grid, mask]);
  const names = group.queries === group.keys ? ["query", "key"] : [group.queries, group.keys];
  const [row, col] = [rows[cell.row ?? 0] ? (cell.row ?? 0) : 0, cols[cell.col ?? 0] ? (cell.col ?? 0) : 0];
  const keys = byWeight(grid, mask, row);
  const rest = keys.slice(5).map((col) => at(grid, row, col));
  const limit = Math.abs(at(grid, row, keys[0] ?? 0)) || 1;
  const still = difference && keys.every((col) => at(grid, row, col) === 0);
  /** Adds the index to tokens that occur more than once. */
  const name = ({ text, index }: Label) =>
    cols.some((label) => label.text === text && label.index !== index) ? `${text} · ${index}` : text;
  return (
    <div class="attention-figure" data-view="figure">
      <Matrix
        node={layer.weights} slice={`head:${head}`} value={value} mask={maskValue} scale={difference ? "signed" : "sequential"}
        rowLabels={rows.map((label) => label.text)} colLabels={cols.map((label) => label.text)} rowName={names[0]} colName={names[1]}
        cell={[row, col]} onSelect={(r, c) => setParams({ cell: `${r},${c}` })} label={title}
      />
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
    </div>
  );
}

/** The unmasked keys of a row, by descending magnitude. */
function byWeight(grid: Grid, mask: Grid | null, row: number): number[] {
  const size = (col: number) => Math.abs(at(grid, row, col));
  return [...Array(grid.cols).keys()].filter((col) => mayAttend(mask, row, col)).sort((a, b) => size(b) - size(a));
}

interface HeadGridProps {
  manifest: Manifest;
  view: View;
  layers: Map<string, LayerValues> | null;
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
          {props.layers?.has(layer.weights)
            ? entries.filter((entry) => entry.layer.weights === layer.weights).map(button)
            : Array.from({ length: layer.nHeads }, (_, head) => <span key={head} class="head-blank" style={blank} />)}
        </div>
      ))}
    </div>
  );
}

function useEntries({ manifest, view: { group, cross, sort, difference }, layers, rows }: HeadGridProps): Entry[] {
  // Cache the entries of each layer, so that they are not drawn again when the next layer arrives.
  const known = useMemo(() => new WeakMap<LayerValues, Entry[]>(), [group.kind, sort, manifest]);
  return useMemo(() => {
    const counted = [...rows.keys()].filter((i) => !rows[i]!.padding);
    const entries = group.layers.flatMap((layer): Entry[] => {
      const values = layers?.get(layer.weights);
      if (!values) return [];
      if (!known.has(values)) {
        known.set(values, Array.from({ length: layer.nHeads }, (_, head) => {
          const [grid, mask] = [headOf(values.weights, head), maskOfHead(manifest, layer.weights, head, values.mask)];
          return { layer, head, grid, mask: maskOfRows(mask, grid.rows), score: measure(sort !== "model" ? sort : difference ? "change" : "entropy", grid, mask, counted, group === cross) };
        }));
      }
      return known.get(values)!;
    });
    if (sort === "model") return entries;
    const sign = sort === "entropy" ? 1 : -1; // entropy ascending, other measures descending
    return entries.sort((a, b) => sign * ((a.score ?? Infinity) - (b.score ?? Infinity)));
  }, [group.kind, layers, sort, manifest]);
}

export function AttentionScreen({ trace }: { trace: Manifest }) {
  const view = viewOf(trace, useValue(route).params);
  return view ? <HeadsView trace={trace} view={view} /> : <p class="note">This trace holds no attention weights.</p>;
}

/** All heads as small heat maps and one in full. */
function HeadsView({ trace, view }: { trace: Manifest; view: View }) {
  const { groups, group, cross, layer, head, sort, difference } = view;
  const { value: layers = null, error } = useWeights(trace.id, group.layers);
  const [rows, cols] = [rowLabelsOf(trace, group.queries), labelsOf(trace, group.keys)];
  const values = layers?.get(layer.weights);
  const grid = useMemo(() => values && headOf(values.weights, head), [values, head]);
  const mask = useMemo(() => (values ? maskOfHead(trace, layer.weights, head, values.mask) : null), [values, head, trace]);
  const measures = measuresOf(group === cross, difference);
  const title = `${group.title}, layer ${layer.layer}, head ${head}`;
  const open = ({ layers }: AttentionGroup) => setParams({ node: (layers[layer.layer] ?? layers[0]!).weights, cell: null }, { push: true });
  return (
    <>
      <h1 class="visually-hidden">Attention</h1>
      <div class="row">
        <Choices
          name="kind" label="Kind of attention" options={groups.map(({ kind, title }) => [kind, title] as const)} chosen={group.kind}
          onChoose={(kind) => open(groups.find((one) => one.kind === kind)!)}
        />
      </div>
      <p><Terms>{group.meaning}{" "}{difference
        ? "How each weight changes: orange where it grows, blue where it shrinks; what a row gains at one token it loses at others."
        : "The stronger the colour, the larger the weight; every row sums to 1."}</Terms></p>
      <div class="row">
        <span>Sort heads by</span>
        <Choices
          name="sort" label="Order of heads" chosen={sort} onChoose={(name) => setParams({ sort: name === "model" ? null : name })}
          options={[["model", "layer"], ...measures.map(([name, label]) => [name, label] as const)]}
        />
        <p class="note">{measures.find(([name]) => name === sort)?.[2] ?? `Below each heat map: the head’s number and its largest ${difference ? "change" : "weight"}.`}</p>
      </div>
      <HeadGrid manifest={trace} view={view} layers={layers} rows={rows} cols={cols} />
      <h2 class="attention-title">
        {title}
        <a class="small" href={hrefTo("step", { node: layer.weights, head })}>how these weights are computed</a>
      </h2>
      <HeadEdits {...{ layer, head, cols, rows, title, mask }} onNextKind={() => open(groups[(groups.indexOf(group) + 1) % groups.length]!)} />
      {error ? <p class="note note-bad">{error.message}</p> : !values && <p class="note">Loading attention weights …</p>}
      {grid && <Figure {...{ view, title, grid, mask, rows, cols }} />}
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
    <div class="row edit-tools" role="group" aria-label="Edits of this head">
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
