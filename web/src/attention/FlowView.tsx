/** Where information moved: attention rollout over all layers, computed here from their weights. */

import { useMemo } from "preact/hooks";
import { Tokens } from "../components/Tokens";
import { setParams } from "../state";
import type { Manifest } from "../types";
import { Figure } from "./Figure";
import { decoderRollout, meanOfRows, rollout } from "./rollout";
import { chosenCell } from "./HeadsView";
import { largest, meanOfHeads, pick, type Grid } from "./grid";
import type { AttentionGroup, Kind } from "./heads";
import { countedRows, labelsOf, shownLabels, type Label } from "./labels";
import { useWeights, type LayerValues } from "./useWeights";

interface Moved {
  grid: Grid;
  mask: Grid | null; // a decoder's position never meets a later one
  rowLabels: Label[];
  colLabels: Label[];
}

export function FlowView({ manifest, groups, hide }: { manifest: Manifest; groups: AttentionGroup[]; hide: boolean }) {
  const wanted = groups.flatMap((group) => group.layers);
  const fetched = useWeights(manifest.window ? null : manifest.id, wanted);
  const complete = wanted.every((layer) => fetched.layers.has(layer.weights));
  const moved = useMemo(() => (complete ? moveThrough(manifest, groups, fetched.layers) : null), [manifest, fetched]);
  if (manifest.window) {
    return <p class="note">Of a text this long only a window of its weights is kept, and rollout needs all of them.</p>;
  }
  return (
    <>
      <p class="attention-meaning">
        Attention mixes positions layer after layer. Multiplying the layers&rsquo; weights, each mixed half and half with
        the residual connection, follows that mixing from the last layer back to the input tokens (rollout, Abnar and
        Zuidema 2020). It shows where information could have come from, <strong>not why the model answered</strong>: what was
        moved, and whether it mattered, is not in these numbers. For that, see the Why screen.
      </p>
      {[...fetched.errors].map(([id, message]) => <p class="note note-bad" key={id}>{`${id}: ${message}`}</p>)}
      {!complete && fetched.errors.size === 0 && <p class="note">{`Fetching the weights: ${fetched.layers.size} of ${wanted.length} blocks …`}</p>}
      {moved && <Pooled manifest={manifest} moved={moved} />}
      {moved && <h2>From every output position back to the input</h2>}
      {moved && (
        <Figure
          name={`${manifest.model.run}-rollout`} title="Where information moved, over all layers"
          caption={`Attention rollout: the mean weights of each layer, half and half with the residual, multiplied. ${manifest.model.run}, ${manifest.model.checkpoint}.`}
          node="information_flow" slice="" grid={moved.grid} mask={moved.mask} rowLabels={moved.rowLabels} colLabels={moved.colLabels}
          rows={shownLabels(moved.rowLabels, hide)} cols={shownLabels(moved.colLabels, hide)} rowName="output"
          colName="input" verb="was mixed from" cell={chosenCell()} onChoose={(row, col) => setParams({ cell: `${row},${col}` })}
        />
      )}
    </>
  );
}

function moveThrough(manifest: Manifest, groups: AttentionGroup[], layers: Map<string, LayerValues>): Moved {
  const means = (kind: Kind) =>
    groups.find((group) => group.kind === kind)?.layers.map((layer) => meanOfHeads(layers.get(layer.weights)!.weights)) ?? [];
  const cross = groups.find((group) => group.kind === "cross");
  if (!cross) {
    const group = groups[0]!;
    const labels = labelsOf(manifest, group.queries);
    return { grid: rollout(means(group.kind)), mask: group.kind === "causal" ? causal(labels.length, 0) : null, rowLabels: labels, colLabels: labels };
  }
  const { target, source } = decoderRollout(means("causal"), means("cross"), rollout(means("self")));
  const rowLabels = labelsOf(manifest, cross.queries);
  const colLabels = [...labelsOf(manifest, cross.keys), ...rowLabels];
  const data = new Float64Array(source.rows * colLabels.length);
  for (let row = 0; row < source.rows; row++) {
    for (let col = 0; col < colLabels.length; col++) {
      const own = col < source.cols ? source.data[row * source.cols + col] : target.data[row * target.cols + col - source.cols];
      data[row * colLabels.length + col] = own!;
    }
  }
  return { grid: { rows: source.rows, cols: colLabels.length, data }, mask: causal(rowLabels.length, source.cols), rowLabels, colLabels };
}

/** May row t have met the column? Always the first `free` ones, and those up to itself. */
function causal(size: number, free: number): Grid {
  const cols = free + size;
  return { rows: size, cols, data: Uint8Array.from({ length: size * cols }, (_, i) => Number((i % cols) - free <= Math.floor(i / cols))) };
}

/** A classifier that averages (or takes the first position) reads these rows: what reached its pooled vector. */
function Pooled({ manifest, moved }: { manifest: Manifest; moved: Moved }) {
  const { pooling } = manifest.model;
  const text = manifest.streams[0];
  if (manifest.model.task !== "classify" || !text || (pooling !== "mean" && pooling !== "first")) return null;
  const rows = pooling === "first" ? [0] : countedRows(moved.rowLabels, false);
  const shares = meanOfRows(pick(moved.grid, rows, moved.colLabels.map((_, i) => i)), rows.map((_, i) => i));
  return (
    <section class="attention-pooled">
      <h2>What reached the {pooling === "mean" ? "mean over the tokens" : "first token"}</h2>
      <Tokens stream={text} weights={shares.data} scale="sequential" limit={3.4 * largest(shares)} label="Input tokens, by how much of them was moved there" />
    </section>
  );
}
