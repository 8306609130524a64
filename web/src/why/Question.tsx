/** What is explained and how: the method, and for a model that writes, the output token and what it is weighed against. */
import { percent, visible } from "../format";
import { WrittenTokens } from "../decode/WrittenTokens";
import { setParams } from "../state";
import type { AttributeRequest, Manifest } from "../types";

interface Props {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  request: AttributeRequest;
}

const METHODS = [
  { id: "erase", name: "Erase one word", says: "Each word is replaced alone, and the fall is measured." },
  { id: "integrated_gradients", name: "Integrated gradients", says: "Gradients are summed on the way from the erased text to this one; the scores share out the whole difference." },
] as const;

export function Question({ manifest, index, request }: Props) {
  const { top, actual } = manifest.predictions[index]!;
  const classify = manifest.model.task === "classify";
  // A class to explain, or a token to weigh the written one against.
  const choices = classify ? top : top.filter((c) => c.id !== actual?.id).slice(0, 20);
  return (
    <>
      {!classify && (
        <WrittenTokens
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
        {!(classify && top.length === 2) && (
          <label>
            {classify ? "Class" : "rather than"}{" "}
            <select
              data-role={classify ? "class" : "foil"} value={(classify ? request.target ?? top[0]!.id : request.foil) ?? ""}
              onChange={({ currentTarget: { value } }) => setParams(classify ? { class: value } : { foil: value || null })}
            >
              {!classify && <option value="">anything else</option>}
              {choices.map((c) => <option key={c.id} value={c.id}>{visible(c.piece)} {percent(Math.exp(c.log_prob))}</option>)}
            </select>
          </label>
        )}
      </div>
      <p class="note">{METHODS.find(({ id }) => id === request.method)!.says}</p>
    </>
  );
}
