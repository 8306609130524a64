/** Where information moved: attention rollout over all layers, computed here from their weights. */
import { useMemo } from "preact/hooks";
import { at, fill, type Grid, meanOfHeads } from "../../tensors/grid";
import { decoderRollout, meanOfRows, rollout } from "../../tensors/rollout";
import { magnitude } from "../../tensors/tensor";
import { countedRows, type Kind, labelsOf, type View } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Tokens } from "../../views/Tokens";
import { type LayerValues, useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";

export function FlowView({ manifest, view }: { manifest: Manifest; view: View }) {
  const wanted = view.groups.flatMap((group) => group.layers);
  const fetched = useWeights(manifest.window ? null : manifest.id, wanted);
  const moved = useMemo(
    () => (wanted.every((layer) => fetched.layers.has(layer.weights)) ? moveThrough(view, fetched.layers) : null), [manifest, fetched]);
  if (manifest.window) {
    return <p class="note">Of a text this long only a window of its weights is kept, and rollout needs all of them.</p>;
  }
  const outputs = labelsOf(manifest, view.groups.at(-1)!.queries);
  return (
    <>
      <p>
        Attention mixes positions layer after layer. The layers&rsquo; mean weights, each half and half with the residual
        connection, multiplied, follow that mixing back to the input tokens (rollout, Abnar and Zuidema 2020): where
        information could have come from, <strong>not why the model answered</strong>. For that, see the Why screen.
      </p>
      <Waiting fetched={fetched} wanted={wanted} />
      {moved && (
        <>
          <Pooled manifest={manifest} grid={moved.grid} rows={countedRows(outputs, false)} />
          <h2>From every output position back to the input</h2>
          <Figure
            manifest={manifest} title="Where information moved, over all layers" node="information_flow" slice="" {...moved} hide={view.hide}
            rows={outputs} cols={view.cross ? [...labelsOf(manifest, view.cross.keys), ...outputs] : outputs}
            rowName="output" colName="input" verb="was mixed from"
          />
        </>
      )}
    </>
  );
}

/** From which input each output was mixed, a translator's source before its target; and what it may have met. */
function moveThrough({ groups, cross }: View, layers: Map<string, LayerValues>): { grid: Grid; mask: Grid | null } {
  const means = (kind: Kind) =>
    groups.find((group) => group.kind === kind)?.layers.map((layer) => meanOfHeads(layers.get(layer.weights)!.weights)) ?? [];
  /** A decoder's position never meets a later one; always the first `free`. */
  const causal = (size: number, free: number) => fill(size, free + size, (row, col) => Number(col - free <= row));
  if (!cross) {
    const { kind } = groups[0]!;
    const grid = rollout(means(kind));
    return { grid, mask: kind === "causal" ? causal(grid.rows, 0) : null };
  }
  const { target, source } = decoderRollout(means("causal"), means("cross"), rollout(means("self")));
  const grid = fill(source.rows, source.cols + target.cols, (row, col) =>
    col < source.cols ? at(source, row, col) : at(target, row, col - source.cols));
  return { grid, mask: causal(source.rows, source.cols) };
}

/** A classifier that averages (or takes the first position) reads these rows: what reached its pooled vector. */
function Pooled({ manifest: { model, streams }, grid, rows }: { manifest: Manifest; grid: Grid; rows: number[] }) {
  if (model.pooling !== "mean" && model.pooling !== "first") return null;
  const mean = model.pooling === "mean";
  const { data } = meanOfRows(grid, mean ? rows : [0]);
  return (
    <section class="attention-pooled">
      <h2>What reached the {mean ? "mean over the tokens" : "first token"}</h2>
      <Tokens stream={streams[0]!} weights={data} scale="sequential" limit={3.4 * magnitude(data)} label="Input tokens, by how much of them was moved there" />
    </section>
  );
}
