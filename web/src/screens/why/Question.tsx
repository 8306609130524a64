/** What is explained and how: the method, and for a model that writes, the output token and what it is weighed against. */
import { setParams } from "../../state/page";
import { percent, visible } from "../../tensors/format";
import { decides } from "../../trace/writing";
import type { AttributeRequest, Manifest } from "../../types";
import { WrittenTokens } from "../../views/Tokens";

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
  const decided = decides(manifest);
  // A class to explain, or a token to weigh the written one against.
  const choices = decided ? top : top.filter((c) => c.id !== actual?.id).slice(0, 20);
  return (
    <>
      {!decided && (
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
        {!(decided && top.length === 2) && (
          <label>
            {decided ? "Class" : "rather than"}{" "}
            <select
              data-role={decided ? "class" : "foil"} value={(decided ? request.target ?? top[0]!.id : request.foil) ?? ""}
              onChange={({ currentTarget: { value } }) => setParams(decided ? { class: value } : { foil: value || null })}
            >
              {!decided && <option value="">anything else</option>}
              {choices.map((c) => <option key={c.id} value={c.id}>{visible(c.piece)} {percent(Math.exp(c.log_prob))}</option>)}
            </select>
          </label>
        )}
      </div>
      <p class="note">{METHODS.find(({ id }) => id === request.method)!.says}</p>
    </>
  );
}
