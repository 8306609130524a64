/** Every head of one kind of attention as a small picture, and the chosen one in full. */
import { useMemo } from "preact/hooks";
import { hrefTo, setParams } from "../../state/page";
import { headOf } from "../../tensors/grid";
import { measuresOf } from "../../tensors/measures";
import { labelsOf, type View } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";
import { HeadGrid } from "./HeadGrid";

export function HeadsView({ manifest, view }: { manifest: Manifest; view: View }) {
  const { group, cross, layer, head, hide, sort } = view;
  const fetched = useWeights(manifest.id, group.layers);
  const rows = labelsOf(manifest, group.queries);
  const cols = labelsOf(manifest, group.keys);
  const values = fetched.layers.get(layer.weights);
  const grid = useMemo(() => values && headOf(values.weights, head), [values, head]);
  const measures = measuresOf(group === cross, group.cut);
  const title = `${group.title}, layer ${layer.layer + 1}, head ${head + 1}`;
  const own = group.queries === group.keys;
  return (
    <>
      <p>{group.meaning} The stronger a cell, the more it takes; {group.cut ? "a row sums to 1 with the keys outside this window, which are not here." : "every row sums to 1."}</p>
      <div class="attention-order">
        <span>Order the heads by</span>
        <Choices
          name="sort" label="Order of the heads" chosen={sort} onChoose={(name) => setParams({ sort: name === "model" ? null : name })}
          options={[["model", "layer"], ...measures.map(([name, label]) => [name, label] as const)]}
        />
        <p class="note">{measures.find(([name]) => name === sort)?.[2] ?? "Under each picture the head’s number and its largest weight, which is its strongest cell."}</p>
      </div>
      <HeadGrid view={view} layers={fetched.layers} rows={rows} cols={cols} />
      <h2 class="attention-title">
        {title}
        <a class="small" href={hrefTo("step", { node: layer.weights, head })}>how these numbers are computed</a>
      </h2>
      <Waiting fetched={fetched} wanted={[layer]} />
      {values && grid && (
        <>
          {hide && <p class="note">What the hidden special tokens receive is left out; the rest is shown as it is, not rescaled.</p>}
          <Figure
            manifest={manifest} title={title} node={layer.weights} slice={`head:${head}`} grid={grid}
            mask={values.mask} rows={rows} cols={cols} hide={hide} verb="takes most from"
            rowName={own ? "takes" : group.queries} colName={own ? "from" : group.keys}
          />
        </>
      )}
    </>
  );
}
