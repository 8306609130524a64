/** The explained probability, before and after words are masked. */
import { setParams } from "../../state/page";
import type { Resource } from "../../state/resource";
import type { ErrorMessage } from "../../state/signals";
import { number, percent, signed, visible } from "../../tensors/format";
import type { Attribution, Candidate, Erased, Prediction } from "../../types";
import { Message } from "../../views/Text";

interface Props {
  prediction: Prediction;
  /** The explained class or token. */
  explained: Candidate;
  attribution: Attribution | null;
  erased: Resource<Erased>;
  nErased: number;
}

export function Probability({ prediction, explained, attribution, erased, nErased }: Props) {
  const p = Math.exp(explained.log_prob);
  const answer = nErased > 0 ? erased.value : null;
  const after = answer && probabilityOf(answer, explained, attribution);
  const favourite = answer?.prediction.top[0];
  const now = nErased === 0 ? p : after; // null: loading, or not in a saved page
  return (
    <section class="probability" aria-label="Probability">
      <p data-role="probability" data-value={now ?? undefined} aria-live="polite">
        <i>p({visible(explained.piece)})</i> <b>{now === null ? (erased.error ? "unknown" : "…") : percent(now)}</b>{" "}
        {after !== null && `was ${percent(p)}, ${signed(100 * (after - p), 1)} percentage points`}
      </p>
      <span class="bar-track" aria-hidden="true">
        <span class="bar-fill" style={{ width: `${100 * (now ?? 0)}%` }} />
        <span class="probability-tick" style={{ left: `${100 * p}%` }} />
      </span>
      <p class="note">
        {nErased === 0 ? "No word is masked." : nErased === 1 ? "One word is masked. " : `${nErased} words are masked. `}
        {favourite && favourite.id !== prediction.top[0]!.id && <>The most probable is now <b>{visible(favourite.piece)}</b> ({percent(Math.exp(favourite.log_prob))}). </>}
        {answer && `The quantity changed from ${number(answer.original)} to ${number(answer.value)}. `}
        {nErased > 0 && <button type="button" class="link" data-role="restore" onClick={() => setParams({ erased: null })}>Unmask all</button>}
      </p>
      <ErrorText error={erased.error} />
    </section>
  );
}

/** From the candidates of the new prediction, else from the quantity if that is the token's log p. */
function probabilityOf({ prediction, value }: Erased, explained: Candidate, attribution: Attribution | null): number | null {
  const found = [...prediction.top, prediction.actual].find((c) => c?.id === explained.id);
  return found ? Math.exp(found.log_prob) : attribution?.foil === null ? Math.exp(value) : null;
}

/** An error message. */
export function ErrorText({ error }: { error: ErrorMessage | null }) {
  return error && <p role="alert" class="warning"><Message error={error} /></p>;
}
