/** What is explained and how: the method, and for a model that writes, the output token and what it is weighed against. */
import { label, percent } from "../decode/numbers";
import { Piece } from "../decode/Piece";
import { setParams } from "../state";
import type { Attribution, Manifest } from "../types";

interface Props {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  method: "erase" | "integrated_gradients";
  foil: number | undefined;
  target: number | undefined;
  attribution: Attribution | null;
}

const METHODS = [
  { id: "erase", name: "Erase one word", says: "Each word is replaced alone, and the fall is measured." },
  { id: "integrated_gradients", name: "Integrated gradients", says: "Gradients summed on the way from the erased text to this one; the scores share out the whole difference." },
] as const;

export function Question({ manifest, index, method, foil, target, attribution }: Props) {
  const prediction = manifest.predictions[index]!;
  const classify = manifest.model.task === "classify";
  const actual = prediction.actual?.id;
  return (
    <div class="question">
      {!classify && <Outputs manifest={manifest} index={index} />}
      <div class="question-row">
        <span class="segmented" role="group" aria-label="Method">
          {METHODS.map(({ id, name }) => (
            <button key={id} type="button" data-method={id} aria-pressed={method === id} onClick={() => setParams({ method: id === "erase" ? null : id })}>
              {name}
            </button>
          ))}
        </span>
        {classify && prediction.top.length > 2 && (
          <label class="number">
            Class{" "}
            <select value={target ?? prediction.top[0]!.id} onChange={(e) => setParams({ class: e.currentTarget.value })}>
              {prediction.top.map((c) => <option key={c.id} value={c.id}>{label(c.piece)} {percent(Math.exp(c.log_prob))}</option>)}
            </select>
          </label>
        )}
        {!classify && (
          <label class="number">
            rather than{" "}
            <select data-role="foil" value={foil ?? ""} onChange={(e) => setParams({ foil: e.currentTarget.value || null })}>
              <option value="">anything else</option>
              {prediction.top.filter((c) => c.id !== actual).slice(0, 20).map((c) => (
                <option key={c.id} value={c.id}>{label(c.piece)} {percent(Math.exp(c.log_prob))}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      <p class="quiet">
        {METHODS.find(({ id }) => id === method)!.says}
        {attribution && <> Explained is the <b class="quantity">{attribution.quantity}</b>.</>}
      </p>
    </div>
  );
}

function Outputs({ manifest, index }: { manifest: Manifest; index: number }) {
  return (
    <ol class="written outputs" aria-label="Output token to explain">
      {manifest.predictions.map((prediction, i) => prediction.actual && (
        <li key={i}>
          <button type="button" class="token step-token" data-output={i} aria-pressed={i === index}
            onClick={() => setParams({ position: prediction.position ?? 0, foil: null, erased: null })}>
            <Piece piece={prediction.actual.piece} />
          </button>
        </li>
      ))}
    </ol>
  );
}
