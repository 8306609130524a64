/** All heads of one kind of attention as small heat maps, and the selected one in full. */
import { useMemo } from "preact/hooks";
import { hrefTo, setParams } from "../../state/page";
import { headOf } from "../../tensors/grid";
import { measuresOf } from "../../tensors/measures";
import { maskOfHead } from "../../trace/edits";
import { labelsOf, rowLabelsOf, type View } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { Terms } from "../../views/Terms";
import { useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";
import { HeadEdits } from "./HeadEdits";
import { HeadGrid } from "./HeadGrid";

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
