/** Which source words each target word was aligned with, read from cross-attention one row later (Shift-Att). */

import { useMemo } from "preact/hooks";
import { setParams } from "../state";
import type { Manifest } from "../types";
import { alignment, alignmentLayer } from "./alignment";
import { Figure } from "./Figure";
import { chosenCell } from "./HeadsView";
import { meanOfHeads } from "./grid";
import type { AttentionGroup } from "./heads";
import { labelsOf, shownLabels } from "./labels";
import { useWeights } from "./useWeights";

export function AlignmentView({ manifest, cross, params, hide }: { manifest: Manifest; cross: AttentionGroup; params: Record<string, string>; hide: boolean }) {
  const wanted = params.align === undefined ? alignmentLayer(cross.layers.length) : Number(params.align);
  const layer = cross.layers.find((one) => one.layer === wanted) ?? cross.layers[0]!;
  const shifted = params.read !== "predicted";
  const fetched = useWeights(manifest.id, [layer]);
  const values = fetched.layers.get(layer.weights);
  const targets = labelsOf(manifest, cross.queries);
  const sources = labelsOf(manifest, cross.keys);
  const aligned = useMemo(() => values && alignment(meanOfHeads(values.weights), shifted), [values, shifted]);
  const rowLabels = (aligned?.tokens ?? []).map((token) => targets[token]!);
  return (
    <>
      <p class="attention-meaning">
        Each target word meets the source twice: in the row that predicts it and, one row later, where it is the
        decoder&rsquo;s <em>input</em>. In deep translators the second aligns better, in a layer of the lower half (Chen
        et al. 2020, Shift-Att), and it is shown first. In a model of few layers the first is often the clearer: compare
        the two. The mean of the layer&rsquo;s heads is shown.
      </p>
      <div class="attention-order">
        <label>
          Layer <select value={layer.layer} onChange={(event) => setParams({ align: event.currentTarget.value })}>
            {cross.layers.map((one) => <option key={one.layer} value={one.layer}>{one.layer + 1}</option>)}
          </select>
        </label>
        <span class="choices" role="group" aria-label="Which row is read">
          <button type="button" class="quiet" aria-pressed={shifted} onClick={() => setParams({ read: null })}>where the word is the input</button>
          <button type="button" class="quiet" aria-pressed={!shifted} onClick={() => setParams({ read: "predicted" })}>where it is predicted</button>
        </span>
      </div>
      {[...fetched.errors].map(([id, message]) => <p class="note note-bad" key={id}>{message}</p>)}
      <h2>{`Alignment, cross-attention of layer ${layer.layer + 1}`}</h2>
      {aligned && (
        <Figure
          name={`${manifest.model.run}-alignment-layer${layer.layer + 1}`} title={`Alignment, cross-attention of layer ${layer.layer + 1}`}
          caption={`Mean of the heads, read where each target token is ${shifted ? "the decoder's input (Shift-Att)" : "predicted"}. ${manifest.model.run}, ${manifest.model.checkpoint}.`}
          node={layer.weights} slice={shifted ? "alignment:shifted" : "alignment:predicted"} grid={aligned.weights} mask={null}
          rowLabels={rowLabels} colLabels={sources} rows={shownLabels(rowLabels, hide)} cols={shownLabels(sources, hide)}
          rowName="target" colName="source" verb="is aligned with" cell={chosenCell()}
          onChoose={(row, col) => setParams({ cell: `${row},${col}` })}
        />
      )}
    </>
  );
}
