/** The Attention screen: all heads as small heat maps and one in full. */
import { useMemo } from "preact/hooks";
import { useScreenKeys } from "../../state/keys";
import { editable, edits, hrefTo, route, selection, setParams, toggleEdit } from "../../state/page";
import { useValue } from "../../state/signals";
import { type Grid, headOf, mayAttend } from "../../tensors/grid";
import { measuresOf } from "../../tensors/measures";
import { editText, headOff, maskOfHead } from "../../trace/edits";
import { type AttentionGroup, type AttentionLayer, type Label, labelsOf, rowLabelsOf, type View, viewOf } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { Switch } from "../../views/EditBar";
import { Terms } from "../../views/Terms";
import { useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";
import { HeadGrid } from "./HeadGrid";

export function AttentionScreen({ trace }: { trace: Manifest }) {
  const view = viewOf(trace, useValue(route).params);
  if (!view) return <p class="note">This trace holds no attention weights.</p>;
  return (
    <>
      <h1 class="visually-hidden">Attention</h1>
      <Toolbar view={view} />
      <HeadsView manifest={trace} view={view} onNextKind={() => openKind(view, view.groups[(view.groups.indexOf(view.group) + 1) % view.groups.length]!)} />
    </>
  );
}

function openKind({ layer }: View, { layers }: AttentionGroup) {
  setParams({ node: (layers[layer.layer] ?? layers[0]!).weights, cell: null }, { push: true });
}

function Toolbar({ view }: { view: View }) {
  const { groups, group, hide } = view;
  return (
    <div class="attention-bar">
      <Choices
        name="kind" label="Kind of attention" options={groups.map(({ kind, title }) => [kind, title] as const)} chosen={group.kind}
        onChoose={(kind) => openKind(view, groups.find((one) => one.kind === kind)!)}
      />
      <label class="attention-hide">
        <input type="checkbox" checked={hide} onChange={(event) => setParams({ hide: event.currentTarget.checked ? 1 : null })} />
        Hide special tokens
      </label>
    </div>
  );
}

export function HeadsView({ manifest, view, onNextKind }: { manifest: Manifest; view: View; onNextKind: () => void }) {
  const { group, cross, layer, head, hide, sort, difference } = view;
  const fetched = useWeights(manifest.id, group.layers);
  const rows = rowLabelsOf(manifest, group.queries);
  const cols = labelsOf(manifest, group.keys);
  const values = fetched.layers.get(layer.weights);
  const grid = useMemo(() => values && headOf(values.weights, head), [values, head]);
  const mask = useMemo(() => (values ? maskOfHead(manifest, layer.weights, head, values.mask) : null), [values, head, manifest]);
  const measures = measuresOf(group === cross, difference);
  const title = `${group.title}, layer ${layer.layer}, head ${head}`;
  const own = group.queries === group.keys;
  return (
    <>
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
      <HeadGrid manifest={manifest} view={view} layers={fetched.layers} rows={rows} cols={cols} />
      <h2 class="attention-title">
        {title}
        <a class="small" href={hrefTo("step", { node: layer.weights, head })}>how these weights are computed</a>
      </h2>
      <HeadEdits layer={layer} head={head} cols={cols} rows={rows} title={title} mask={mask} onNextKind={onNextKind} />
      <Waiting fetched={fetched} wanted={[layer]} />
      {values && grid && (
        <>
          {hide && <p class="note">{difference ? "Changes" : "Weights"} on hidden special tokens are not shown; the others are not rescaled.</p>}
          <Figure
            manifest={manifest} title={title} node={layer.weights} slice={`head:${head}`} grid={grid}
            mask={mask} rows={rows} cols={cols} hide={hide} verb={difference ? "changes most at" : "attends most to"} difference={difference}
            rowName={own ? "query" : group.queries} colName={own ? "key" : group.keys}
          />
        </>
      )}
    </>
  );
}

export interface HeadEditsProps {
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

export function HeadEdits({ layer, head, rows, cols, title, mask, onNextKind }: HeadEditsProps) {
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
