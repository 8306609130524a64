/**
 * Settings the whole text is written again with: beam size and length penalty, or the sampling knobs and a seed.
 */
import { useState } from "preact/hooks";
import { busy } from "../state";
import type { DecodeSettings, Manifest, TraceRequest } from "../types";
import type { Knobs } from "./filters";
import { requestWith } from "./forcing";

interface Props {
  manifest: Manifest;
  knobs: Knobs;
  onTrace: (request: TraceRequest) => void;
}

export function WriteAgain({ manifest, knobs, onTrace }: Props) {
  const { settings, prefix } = manifest.decode;
  const translate = manifest.model.task === "translate";
  const [chosen, setChosen] = useState({ ...settings, sample: !translate || settings.sample });
  const { sample, beam_size, length_penalty, decode_seed } = chosen;
  const change = (next: Partial<DecodeSettings>): void => setChosen({ ...chosen, ...next });

  const write = (event: Event): void => {
    event.preventDefault();
    const decode: Partial<DecodeSettings> = sample
      ? { sample, temperature: knobs.temperature, top_k: knobs.topK, top_p: knobs.topP, min_p: knobs.minP, decode_seed }
      : { sample, beam_size, length_penalty };
    const request = requestWith(manifest, []);
    onTrace({ ...request, decode: { ...request.decode, ...decode } });
  };

  const how = (name: string, samples: boolean) => (
    <label><input type="radio" name="how" checked={sample === samples} onChange={() => change({ sample: samples })} /> {name}</label>
  );
  const field = (name: string, key: "beam_size" | "length_penalty" | "decode_seed", min: number, max: number, step = 1) => (
    <label>{name} <input type="number" required min={min} max={max} step={step} value={chosen[key]} onInput={(event) => change({ [key]: Number(event.currentTarget.value) })} /></label>
  );
  return (
    <form class="row" onSubmit={write}>
      {translate && <span class="row" role="group" aria-label="How to write">{how("Beam search", false)}{how("Sampling", true)}</span>}
      {sample ? field("Seed", "decode_seed", 0, 1e9) : <>{field("Beam", "beam_size", 1, 10)}{field("Length penalty", "length_penalty", 0, 3, 0.1)}</>}
      <button type="submit" class="quiet" data-role="write-again" disabled={busy.value !== null}>
        {sample ? "Write again with these" : "Search again"}
      </button>
      {prefix.length > 0 && (
        <button type="button" class="quiet" data-role="unforce" disabled={busy.value !== null} onClick={() => onTrace(requestWith(manifest, []))}>
          Let the model choose from the start
        </button>
      )}
    </form>
  );
}
