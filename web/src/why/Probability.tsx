/** The probability that is explained, as it is and with words erased: two numbers on one bar, and the new favourite. */
import { label, percent, signed } from "../decode/numbers";
import type { Attribution, Candidate, Erased, Manifest, Prediction } from "../types";
import type { Asked } from "./asking";

interface Props {
  manifest: Manifest;
  prediction: Prediction;
  attribution: Attribution | null;
  erased: Asked<Erased>;
  nErased: number;
  target: number | undefined;
  onClear: () => void;
}

export function Probability({ manifest, prediction, attribution, erased, nErased, target, onClear }: Props) {
  const classify = manifest.model.task === "classify";
  const explained: Candidate | null = prediction.top.find((c) => c.id === target) ?? (classify ? prediction.top[0]! : prediction.actual);
  if (!explained) return null;
  const p = Math.exp(explained.log_prob);
  const after = nErased > 0 && erased.value ? probabilityOf(erased.value, explained, attribution) : null;
  const favourite = erased.value?.prediction.top[0];
  const unknown = nErased > 0 && after === null; // on its way, or not in a saved page
  const now = after ?? p;
  return (
    <section class="probability" aria-label="Probability">
      <p class="probability-line" data-role="probability" data-value={unknown ? undefined : now} aria-live="polite">
        <span class="probability-name">p({label(explained.piece)})</span>
        <b class="probability-now">{unknown ? (erased.error ? "not known" : "…") : percent(now)}</b>
        {after !== null && <span class="probability-was">was {percent(p)}, {signed(100 * (after - p), 1)} points</span>}
      </p>
      <span class="probability-track" aria-hidden="true">
        <span class="probability-bar" style={{ width: `${unknown ? 0 : 100 * now}%` }} />
        <span class="probability-tick" style={{ left: `${100 * p}%` }} />
      </span>
      <p class="quiet">
        {nErased === 0
          ? "Nothing is erased."
          : <>{nErased === 1 ? "One word is" : `${nErased} words are`} erased. {erased.value && favourite && favourite.id !== explained.id && <>The model now prefers <b>{label(favourite.piece)}</b> ({percent(Math.exp(favourite.log_prob))}). </>}
            {erased.value && <>The quantity went from {erased.value.original.toFixed(3).replace("-", "−")} to {erased.value.value.toFixed(3).replace("-", "−")}. </>}
            <button type="button" class="link" data-role="restore" onClick={onClear}>Put them back</button></>}
      </p>
      {erased.error && <p role="alert" class="trouble">{erased.error.message} {erased.error.hint}</p>}
    </section>
  );
}

/** From the new prediction's list, or, for a token that left the best 50, from the quantity where that is its log p. */
function probabilityOf({ prediction, value }: Erased, explained: Candidate, attribution: Attribution | null): number | null {
  const found = prediction.top.find((c) => c.id === explained.id);
  if (found) return Math.exp(found.log_prob);
  if (prediction.actual?.id === explained.id) return Math.exp(prediction.actual.log_prob);
  return attribution && attribution.foil === null ? Math.exp(value) : null;
}
