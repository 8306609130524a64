/** Attention rollout over all layers, computed in the browser. */
import { useMemo } from "preact/hooks";
import { passesOf } from "../../sources/difference";
import { at, difference, fill, type Grid, meanOfHeads } from "../../tensors/grid";
import { decoderRollout, meanOfRows, rollout } from "../../tensors/rollout";
import { magnitude } from "../../tensors/tensor";
import { rowsWithoutPadding, type Kind, labelsOf, rowLabelsOf, type View } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Tokens } from "../../views/Tokens";
import { type LayerValues, useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";

export function FlowView({ manifest, view }: { manifest: Manifest; view: View }) {
  const wanted = view.groups.flatMap((group) => group.layers);
  const passes = passesOf(manifest);
  // Rollout is not linear, so that of a difference of weights means nothing: both passes are rolled out, then subtracted.
  const [fetched, fetchedBefore] = [useWeights(passes?.after.id ?? manifest.id, wanted), useWeights(passes && passes.before.id, wanted)];
  const moved = useMemo(() => {
    const all = passes ? [fetched, fetchedBefore] : [fetched];
    if (!all.every(({ layers }) => wanted.every((layer) => layers.has(layer.weights)))) return null;
    const [after, before] = all.map(({ layers }) => computeRollout(view, layers));
    return before ? { ...after!, grid: difference(before.grid, after!.grid)! } : after!;
  }, [manifest, fetched, fetchedBefore]);
  const [labels, rows] = [labelsOf(manifest, view.groups.at(-1)!.queries), rowLabelsOf(manifest, view.groups.at(-1)!.queries)];
  return (
    <>
      <p>
        Attention rollout (Abnar and Zuidema 2020) multiplies the mean attention weights of all layers, each averaged
        with the identity for the residual connection. It shows which input positions information can have come
        from, <strong>not why the model made its prediction</strong>; for that, see the Why screen.
        {passes && " Shown is how the rollout changes, after minus before."}
      </p>
      <Waiting fetched={fetched} wanted={wanted} />
      {moved && (
        <>
          <Pooled manifest={manifest} grid={moved.grid} rows={rowsWithoutPadding(labels, false)} signed={passes !== null} />
          <h2>From output positions to input tokens</h2>
          <Figure
            manifest={manifest} title="Attention rollout, all layers" node="information_flow" slice="" {...moved} hide={view.hide}
            rows={rows} cols={view.cross ? [...labelsOf(manifest, view.cross.keys), ...labels] : labels}
            rowName="output" colName="input" verb={passes ? "changes most at" : "comes mostly from"} difference={passes !== null}
          />
        </>
      )}
    </>
  );
}

/** The rollout from inputs to outputs, a translator's source before its target, and its mask. */
function computeRollout({ groups, cross }: View, layers: Map<string, LayerValues>): { grid: Grid; mask: Grid | null } {
  const means = (kind: Kind) =>
    groups.find((group) => group.kind === kind)?.layers.map((layer) => meanOfHeads(layers.get(layer.weights)!.weights)) ?? [];
  /** A causal mask whose first `free` columns are not masked. */
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

/** The rollout to the pooled vector of a classifier with mean or first-token pooling. */
function Pooled({ manifest: { model, streams }, grid, rows, signed }: { manifest: Manifest; grid: Grid; rows: number[]; signed: boolean }) {
  if (model.pooling !== "mean" && model.pooling !== "first") return null;
  const mean = model.pooling === "mean";
  const { data } = meanOfRows(grid, mean ? rows : [0]);
  return (
    <section class="attention-pooled">
      <h2>Rollout to the {mean ? "mean over tokens" : "first token"}</h2>
      <Tokens stream={streams[0]!} weights={data} scale={signed ? "signed" : "sequential"} limit={3.4 * magnitude(data)} label={`Input tokens, coloured by ${signed ? "the change of the rollout" : "rollout"} weight`} />
    </section>
  );
}
