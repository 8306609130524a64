/** The weights of one head in two traces, and their difference where both have the same shape. */
import { selection, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { number } from "../../tensors/format";
import { toTensorValue, difference, type Grid, headOf } from "../../tensors/grid";
import { magnitude } from "../../tensors/tensor";
import { labelsOf, rowLabelsOf, type View, viewOf } from "../../trace/heads";
import type { Manifest } from "../../types";
import { HeadPicker } from "../../views/Choices";
import { Matrix } from "../../views/Matrix";
import { useWeights, Waiting } from "../../views/weights";

export function BlockPicker({ view: { groups, layer, head } }: { view: View }) {
  return (
    <div class="attention-order">
      <label>
        Layer{" "}
        <select value={layer.weights} onChange={(event) => setParams({ node: event.currentTarget.value, layer: null })}>
          {groups.flatMap(({ title, layers }) =>
            layers.map((one) => <option key={one.weights} value={one.weights}>{`${title}, layer ${one.layer}`}</option>))}
        </select>
      </label>
      <HeadPicker heads={layer.nHeads} head={head} />
    </div>
  );
}

export function HeadPair({ a, b, view }: { a: Manifest; b: Manifest; view: View }) {
  const cell = useValue(selection);
  const { group, layer, head } = view;
  const weights = layer.weights;
  const layerB = viewOf(b, { node: weights })?.layer ?? layer;
  const [fetchedA, fetchedB] = [useWeights(a.id, [layer]), useWeights(b.id, [layerB])];
  const [valuesA, valuesB] = [fetchedA.layers.get(weights), fetchedB.layers.get(weights)];
  if (layerB.weights !== weights) return <p class="note">B lacks this layer.</p>;
  if (!valuesA || !valuesB) return <Waiting fetched={fetchedA.errors.size ? fetchedA : fetchedB} wanted={[layer]} />;
  const [gridA, gridB] = [headOf(valuesA.weights, head), headOf(valuesB.weights, head)];
  const change = difference(gridA, gridB);
  const limit = Math.max(magnitude(gridA.data), magnitude(gridB.data));
  const one = (title: string, of: Manifest, grid: Grid, mask: Grid | null, scale: "signed" | "sequential" = "sequential") => (
    <div>
      <h3>{title}</h3>
      <Matrix
        node={weights} slice={`head:${head}${scale === "signed" ? ";difference" : ""}`} label={`${group.title}, layer ${layer.layer}, head ${head}, ${title}`}
        value={toTensorValue(grid)} mask={mask && toTensorValue(mask)} scale={scale} limit={scale === "signed" ? undefined : limit}
        rowLabels={rowLabelsOf(of, group.queries).map((label) => label.text)} colLabels={labelsOf(of, group.keys).map((label) => label.text)}
        cell={[cell.row ?? 0, cell.col ?? 0]} onSelect={(r, c) => setParams({ cell: `${r},${c}` })} numbers="toggle"
      />
    </div>
  );
  return (
    <>
      <div class="compare-heads" style={{ "--least": Math.max(gridA.cols, gridB.cols) > 20 ? "34rem" : "19rem" }}>
        {one("A", a, gridA, valuesA.mask)}
        {one("B", b, gridB, valuesB.mask)}
        {change && one("B − A", a, change, valuesA.mask, "signed")}
      </div>
      <p class="note">
        {change
          ? `A and B share one scale, up to ${number(limit)}. The largest difference is ${number(magnitude(change.data))}; cells of B − A with a dash are negative.`
          : `A has ${gridA.rows} × ${gridA.cols} tokens and B ${gridB.rows} × ${gridB.cols}, so there is no difference to show.`}
      </p>
    </>
  );
}
