/** Every head of one kind of attention as a small picture, and the chosen one in full. */

import { useMemo } from "preact/hooks";
import { hrefTo, selection, setParams } from "../state";
import type { Manifest } from "../types";
import { Figure } from "./Figure";
import { headOf, pick } from "./grid";
import { HeadGrid } from "./HeadGrid";
import { countedRows, labelsOf, shownLabels } from "./labels";
import { MEASURES } from "./measures";
import { useWeights, type LayerValues } from "./useWeights";
import type { View } from "./view";

export function HeadsView({ manifest, view }: { manifest: Manifest; view: View }) {
  const { group, layer, head, hide } = view;
  const fetched = useWeights(manifest.id, group.layers);
  const rowLabels = labelsOf(manifest, group.queries);
  const colLabels = labelsOf(manifest, group.keys);
  const rows = shownLabels(rowLabels, hide);
  const cols = shownLabels(colLabels, hide);
  const values = fetched.layers.get(layer.weights);
  const grid = useMemo(() => values && headOf(values.weights, head), [values, head]);
  return (
    <>
      <p class="attention-meaning">{group.meaning} The darker a cell, the more it takes; every row sums to 1.</p>
      <Order view={view} />
      <HeadGrid
        group={group} layers={fetched.layers} rows={rows} cols={cols} counted={countedRows(rowLabels, hide)} sort={view.sort}
        chosen={{ weights: layer.weights, head }}
        onChoose={(one, h) => setParams({ node: one.weights, layer: one.layer, head: h })}
      />
      {[...fetched.errors].map(([id, message]) => <p class="note note-bad" key={id}>{`${id}: ${message}`}</p>)}
      <h2 class="attention-title">
        {`${group.title}, layer ${layer.layer + 1}, head ${head + 1}`}
        <a class="small" href={hrefTo("step", { node: layer.weights, head })}>how these numbers are computed</a>
      </h2>
      {values && grid
        ? (
          <>
            {hide && <Hidden values={values} head={head} rows={rows} cols={cols} />}
            <Figure
              name={`${manifest.model.run}-${group.kind}-layer${layer.layer + 1}-head${head + 1}`}
              title={`${group.title}, layer ${layer.layer + 1}, head ${head + 1}`}
              caption={`${group.meaning} Largest cell darkest${values.mask ? "; hatched cells are masked" : ""}. ${manifest.model.run}, ${manifest.model.checkpoint}.`}
              node={layer.weights} slice={`head:${head}`} grid={grid} mask={values.mask}
              rowLabels={rowLabels} colLabels={colLabels} rows={rows} cols={cols}
              rowName={group.queries === group.keys ? "takes" : group.queries} colName={group.queries === group.keys ? "from" : group.keys}
              verb="takes most from" cell={chosenCell()} onChoose={(row, col) => setParams({ cell: `${row},${col}` })}
            />
          </>
        )
        : !fetched.errors.has(layer.weights) && <p class="note">Fetching the weights …</p>}
    </>
  );
}

export function chosenCell(): [number, number] | null {
  const { row, col } = selection.value;
  return row === null ? null : [row, col ?? 0];
}

function Order({ view }: { view: View }) {
  const usable = MEASURES.filter(({ selfOnly }) => !(selfOnly && view.group.kind === "cross"));
  const meaning = usable.find(({ name }) => name === view.sort)?.meaning
    ?? "Under each picture the head's number and its largest weight, which is its darkest cell.";
  return (
    <div class="attention-order">
      <span id="order-label">Order the heads by</span>
      <span class="choices" role="group" aria-labelledby="order-label">
        {[{ name: "model" as const, label: "layer" }, ...usable].map(({ name, label }) => (
          <button
            key={name} type="button" class="quiet" aria-pressed={view.sort === name} data-sort={name}
            onClick={() => setParams({ sort: name === "model" ? null : name })}
          >
            {label}
          </button>
        ))}
      </span>
      <p class="note">{meaning}</p>
    </div>
  );
}

function Hidden({ values, head, rows, cols }: { values: LayerValues; head: number; rows: number[]; cols: number[] }) {
  const shown = pick(headOf(values.weights, head), rows, cols);
  const kept = rows.length ? Array.from(shown.data).reduce((sum, weight) => sum + weight, 0) / rows.length : 1;
  const hidden = Math.max(0, 1 - kept);
  if (hidden < 0.0005) return null;
  return <p class="note">{`The hidden special tokens receive ${(100 * hidden).toFixed(1)}% of this head's weight; the rest is shown as it is, not rescaled.`}</p>;
}
