/** One head in two traces: A, B, and, where every cell of one stands for a cell of the other, B − A. */

import { Matrix } from "../components/Matrix";
import { maskValue, toTensorValue } from "../attention/Figure";
import { difference, headOf, largest, type Grid } from "../attention/grid";
import { labelsOf } from "../attention/labels";
import { useWeights } from "../attention/useWeights";
import { viewOf, type View } from "../attention/view";
import { number } from "../format";
import { selection, setParams } from "../state";
import type { Manifest } from "../types";

export function HeadPicker({ view }: { view: View }) {
  const choose = (weights: string) => setParams({ node: weights, layer: null });
  return (
    <div class="attention-order compare-picker">
      <label>
        Block <select value={view.layer.weights} onChange={(event) => choose(event.currentTarget.value)}>
          {view.groups.map((group) => (
            <optgroup key={group.kind} label={group.title}>
              {group.layers.map((one) => <option key={one.weights} value={one.weights}>{`${group.title}, layer ${one.layer + 1}`}</option>)}
            </optgroup>
          ))}
        </select>
      </label>
      <label>
        Head <select value={view.head} onChange={(event) => setParams({ head: event.currentTarget.value })}>
          {Array.from({ length: view.layer.nHeads }, (_, head) => <option key={head} value={head}>{head + 1}</option>)}
        </select>
      </label>
    </div>
  );
}

/** The same block of another trace; null where its layers are not the same. */
function sameLayer(view: View, of: Manifest) {
  const found = viewOf(of, { node: view.layer.weights });
  return found?.layer.weights === view.layer.weights ? found.layer : null;
}

export function HeadPair({ a, b, view }: { a: Manifest; b: Manifest; view: View }) {
  const layerB = sameLayer(view, b);
  const fetchedA = useWeights(a.id, [view.layer]);
  const fetchedB = useWeights(b.id, layerB ? [layerB] : []);
  const valuesA = fetchedA.layers.get(view.layer.weights);
  const valuesB = fetchedB.layers.get(view.layer.weights);
  const errors = [...fetchedA.errors.values(), ...fetchedB.errors.values()];
  if (errors.length > 0) return <p class="note note-bad">{errors[0]}</p>;
  if (!valuesA || !valuesB) return <p class="note">Fetching the weights …</p>;
  const [gridA, gridB] = [headOf(valuesA.weights, view.head), headOf(valuesB.weights, view.head)];
  const change = difference(gridA, gridB);
  const limit = Math.max(largest(gridA), largest(gridB));
  return (
    <>
      <div class="compare-heads" style={{ "--least": gridA.cols > 20 || gridB.cols > 20 ? "34rem" : "19rem" }}>
        <One title="A" of={a} view={view} grid={gridA} mask={valuesA.mask} limit={limit} />
        <One title="B" of={b} view={view} grid={gridB} mask={valuesB.mask} limit={limit} />
        {change && <One title="B − A" of={a} view={view} grid={change} mask={valuesA.mask} limit={largest(change)} scale="signed" />}
      </div>
      <p class="note">
        {change
          ? `A and B share one scale, up to ${number(limit)}; the largest difference is ${number(largest(change))}. A cell of B − A with a dash in it lost weight.`
          : `A has ${gridA.rows} × ${gridA.cols} tokens and B ${gridB.rows} × ${gridB.cols}: a cell of one does not stand for a cell of the other, so there is no difference to show.`}
      </p>
    </>
  );
}

interface OneProps {
  title: string;
  of: Manifest;
  view: View;
  grid: Grid;
  mask: Grid | null;
  limit: number;
  scale?: "signed" | "sequential";
}

function One({ title, of, view, grid, mask, limit, scale = "sequential" }: OneProps) {
  const rows = labelsOf(of, view.group.queries).map((label) => label.text);
  const cols = labelsOf(of, view.group.keys).map((label) => label.text);
  const { row, col } = selection.value;
  return (
    <section class="compare-head">
      <h3>{title}</h3>
      <Matrix
        node={view.layer.weights} slice={title === "B − A" ? `head:${view.head};difference` : `head:${view.head}`}
        value={toTensorValue(grid)} mask={maskValue(mask)} scale={scale} limit={limit}
        rowLabels={rows} colLabels={cols} cell={[row ?? 0, col ?? 0]} onSelect={(r, c) => setParams({ cell: `${r},${c}` })}
        numbers="toggle" label={`${view.group.title}, layer ${view.layer.layer + 1}, head ${view.head + 1}, ${title}`}
      />
    </section>
  );
}
