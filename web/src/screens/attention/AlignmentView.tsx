/**
 * The alignment of target tokens with source tokens, from the cross-attention reading that agrees best with leave-one-
 * out.
 */
import { useMemo } from "preact/hooks";
import { route, setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { alignment, meanOfHeads } from "../../tensors/grid";
import { type AttentionGroup, labelsOf, rowLabelsOf } from "../../trace/heads";
import type { Alignments, Manifest } from "../../types";
import { useWeights, Waiting } from "../../views/weights";
import { Figure } from "./Figure";

type Reading = Alignments["readings"][number];

const nameOf = ({ layer, shifted }: Reading) => `layer ${layer + 1}, at the step where the token is ${shifted ? "the input" : "predicted"}`;

export function AlignmentView({ manifest, cross, hide }: { manifest: Manifest; cross: AttentionGroup; hide: boolean }) {
  const { readings, chance, problem } = useReadings(manifest, cross);
  const chosen = useValue(route, ({ params }) => params.reading);
  const [best] = readings;
  const reading = readings.find((one) => nameOf(one) === chosen) ?? best;
  const layer = cross.layers.find((one) => one.layer === reading?.layer);
  const fetched = useWeights(manifest.id, layer ? [layer] : []);
  const values = layer && fetched.layers.get(layer.weights);
  const grid = useMemo(() => values && alignment(meanOfHeads(values.weights), reading!.shifted), [values, reading?.shifted]);
  return (
    <>
      <p>
        An alignment is read from any decoder layer, in the row that predicts a target token or, one row later, where it
        is the decoder&rsquo;s <em>input</em> (Shift-Att, Chen et al. 2020). The best reading differs between
        models, so each is compared with leave-one-out. The heat map shows the mean of the heads.
      </p>
      {!reading && <p class="note">Comparing the readings with leave-one-out …</p>}
      {reading && best && layer && (
        <>
          <div class="attention-order">
            <label>
              Reading{" "}
              <select
                data-role="reading" value={nameOf(reading)}
                onChange={({ currentTarget: { value } }) => setParams({ reading: value === nameOf(best) ? null : value })}
              >
                {readings.map((one) => (
                  <option key={nameOf(one)} value={nameOf(one)}>{nameOf(one) + (one.agreement === null ? "" : `: ${one.agreement.toFixed(2)}`)}</option>
                ))}
              </select>
            </label>
            <p class="note">{problem ?? agrees(reading, best, readings.length, chance)}</p>
          </div>
          <h2>{`Alignment, cross-attention of layer ${layer.layer + 1}`}</h2>
          <Waiting fetched={fetched} wanted={[layer]} />
          {grid && (
            <Figure
              manifest={manifest} title={`Alignment, ${nameOf(reading)}`} node={layer.weights}
              slice={`alignment:${reading.shifted ? "shifted" : "predicted"}`} grid={grid} mask={null}
              rows={alignmentRows(manifest, cross, reading)} cols={labelsOf(manifest, cross.keys)} hide={hide}
              rowName="target" colName="source" verb="is aligned with"
            />
          )}
        </>
      )}
    </>
  );
}

/** The rows of the decoder that are read, named as on every screen; hidden are those whose target token is special. */
function alignmentRows(manifest: Manifest, { queries }: AttentionGroup, { shifted }: Reading) {
  const rows = rowLabelsOf(manifest, queries);
  return labelsOf(manifest, queries).slice(1).map((token, i) => ({ ...token, text: rows[i + Number(shifted)]!.text }));
}

function agrees({ agreement }: Reading, best: Reading, count: number, chance: number | null): string {
  if (agreement === null) return "Masking a source word lowers no target token’s probability, so the readings cannot be compared.";
  const score = agreement.toFixed(2);
  const share = "the share of target tokens aligned with the source word whose masking costs them most";
  return agreement === best.agreement
    ? `Of ${count} readings, this one agrees best with leave-one-out: ${score}, ${share}. The best of ${count} random readings has ${chance?.toFixed(2)}.`
    : `Agreement with leave-one-out: ${score} (best reading: ${best.agreement!.toFixed(2)}), ${share}.`;
}

/** The readings, the best first if their agreement is known. */
function useReadings(manifest: Manifest, cross: AttentionGroup) {
  const { value, error } = useResource(manifest.id, () => source.alignment(manifest.id));
  if (value) return { ...value, problem: null };
  if (!error) return { readings: [], chance: null, problem: null };
  const readings = cross.layers.flatMap(({ layer }) => [false, true].map((shifted) => ({ layer, shifted, agreement: null })));
  return { readings, chance: null, problem: error.message };
}
