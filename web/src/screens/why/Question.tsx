/** The quantity to attribute and the method: for generated text the output token and its contrast. */
import { setParams } from "../../state/page";
import { percent, visible } from "../../tensors/format";
import { isClassifier } from "../../trace/generation";
import type { AttributeRequest, Manifest } from "../../types";
import { OutputTokens } from "../../views/Tokens";

interface Props {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  request: AttributeRequest;
}

const METHODS = [
  { id: "erase", name: "Leave-one-out", description: "Each word is masked alone; its score is the drop of the quantity." },
  { id: "integrated_gradients", name: "Integrated gradients", description: "Gradients are averaged along the path from the fully masked text to this text; the scores sum to the difference of the quantity." },
] as const;

export function Question({ manifest, index, request }: Props) {
  const { top, actual } = manifest.predictions[index]!;
  const decided = isClassifier(manifest);
  // Classes to explain, or tokens to contrast with.
  const choices = decided ? top : top.filter((c) => c.id !== actual?.id).slice(0, 20);
  return (
    <>
      {!decided && (
        <OutputTokens
          manifest={manifest} index={index} label="Output token to explain"
          onStep={(i) => setParams({ position: manifest.predictions[i]!.position, foil: null, erased: null })}
        />
      )}
      <div class="row">
        <span class="choices" role="group" aria-label="Method">
          {METHODS.map(({ id, name }) => (
            <button key={id} type="button" class="quiet" data-method={id} aria-pressed={request.method === id} onClick={() => setParams({ method: id === "erase" ? null : id })}>
              {name}
            </button>
          ))}
        </span>
        {!(decided && top.length === 2) && (
          <label>
            {decided ? "Class" : "Contrast with"}{" "}
            <select
              data-role={decided ? "class" : "foil"} value={(decided ? request.target ?? top[0]!.id : request.foil) ?? ""}
              onChange={({ currentTarget: { value } }) => setParams(decided ? { class: value } : { foil: value || null })}
            >
              {!decided && <option value="">none</option>}
              {choices.map((c) => <option key={c.id} value={c.id}>{visible(c.piece)} {percent(Math.exp(c.log_prob))}</option>)}
            </select>
          </label>
        )}
      </div>
      <p class="note">{METHODS.find(({ id }) => id === request.method)!.description}</p>
    </>
  );
}
