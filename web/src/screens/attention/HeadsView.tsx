/** All heads of one kind of attention as small heat maps, and the selected one in full. */
import { useMemo } from "preact/hooks";
import { isDifference } from "../../sources/difference";
import { hrefTo, setParams } from "../../state/page";
import { headOf } from "../../tensors/grid";
import { measuresOf } from "../../tensors/measures";
import { labelsOf, type View } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";
import { HeadEdits } from "./HeadEdits";
import { HeadGrid } from "./HeadGrid";

export function HeadsView({ manifest, view, onNextKind }: { manifest: Manifest; view: View; onNextKind: () => void }) {
  const { group, cross, layer, head, hide, sort } = view;
  const fetched = useWeights(manifest.id, group.layers);
  const rows = labelsOf(manifest, group.queries);
  const cols = labelsOf(manifest, group.keys);
  const values = fetched.layers.get(layer.weights);
  const grid = useMemo(() => values && headOf(values.weights, head), [values, head]);
  const measures = measuresOf(group === cross, group.cut);
  const title = `${group.title}, layer ${layer.layer + 1}, head ${head + 1}`;
  const own = group.queries === group.keys;
  const difference = isDifference(manifest);
  const scale = difference ? "signed" : "sequential";
  return (
    <>
      <p>{group.meaning} The stronger the colour, the larger the weight; {group.cut ? "each row sums to 1 including keys outside this window." : "every row sums to 1."}</p>
      <div class="attention-order">
        <span>Sort heads by</span>
        <Choices
          name="sort" label="Order of heads" chosen={sort} onChoose={(name) => setParams({ sort: name === "model" ? null : name })}
          options={[["model", "layer"], ...measures.map(([name, label]) => [name, label] as const)]}
        />
        <p class="note">{measures.find(([name]) => name === sort)?.[2] ?? "Below each heat map: the head’s number and its largest weight."}</p>
      </div>
      <HeadGrid view={view} layers={fetched.layers} rows={rows} cols={cols} scale={scale} />
      <h2 class="attention-title">
        {title}
        <a class="small" href={hrefTo("step", { node: layer.weights, head })}>how these weights are computed</a>
      </h2>
      <HeadEdits layer={layer} head={head} cols={cols} rows={rows} title={title} onNextKind={onNextKind} />
      <Waiting fetched={fetched} wanted={[layer]} />
      {values && grid && (
        <>
          {hide && <p class="note">Weights on hidden special tokens are not shown; the others are not rescaled.</p>}
          <Figure
            manifest={manifest} title={title} node={layer.weights} slice={`head:${head}`} grid={grid}
            mask={values.mask} rows={rows} cols={cols} hide={hide} verb={difference ? "changes most at" : "attends most to"} scale={scale}
            rowName={own ? "query" : group.queries} colName={own ? "key" : group.keys}
          />
        </>
      )}
    </>
  );
}
