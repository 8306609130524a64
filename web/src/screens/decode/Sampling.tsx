/** Sliders for the sampling parameters (`filters.ts`), and the form that decodes the text again. */
import { useState } from "preact/hooks";
import { busy } from "../../state/page";
import { useValue } from "../../state/signals";
import type { SamplingParams } from "../../tensors/filters";
import { hasSource, requestWithPrefix } from "../../trace/generation";
import type { DecodeSettings, Manifest, TraceRequest } from "../../types";

const SLIDERS = {
  temperature: {
    name: "Temperature", min: 0, max: 3, step: 0.05,
    description: (t: number) => (t === 0 ? "Greedy: the largest logit." : t === 1 ? "Off."
      : `Logits are divided by ${t}: the distribution is ${t < 1 ? "sharper" : "flatter"}.`),
  },
  topK: { name: "Top-k", min: 0, max: 50, step: 1, description: (k: number) => (k === 0 ? "Off." : `Only the ${k} most probable tokens.`) },
  topP: { name: "Top-p", min: 0.05, max: 1, step: 0.05, description: (p: number) => (p === 1 ? "Off." : `The fewest tokens with a total probability of at least ${Math.round(100 * p)}%.`) },
  minP: { name: "Min-p", min: 0, max: 0.5, step: 0.01, description: (p: number) => (p === 0 ? "Off." : `Tokens with at least ${p} times the largest probability.`) },
};

export function SamplingSlider({ param, value, onInput }: { param: keyof SamplingParams; value: number; onInput: (value: number) => void }) {
  const { name, description, ...range } = SLIDERS[param];
  return (
    <label class="sampling-slider">
      {name} <output>{value}</output>
      <input type="range" {...range} value={value} data-role={`slider-${param}`} aria-valuetext={`${value}: ${description(value)}`} onInput={(event) => onInput(Number(event.currentTarget.value))} />
      <span class="note">{description(value)}</span>
    </label>
  );
}

export function SamplingSliders({ sampling, onChange }: { sampling: SamplingParams; onChange: (sampling: SamplingParams) => void }) {
  return (
    <div class="sampling-sliders" role="group" aria-label="Temperature and filters">
      {(Object.keys(SLIDERS) as (keyof SamplingParams)[]).map((param) => <SamplingSlider key={param} param={param} value={sampling[param]} onInput={(value) => onChange({ ...sampling, [param]: value })} />)}
    </div>
  );
}

interface Props {
  manifest: Manifest;
  sampling: SamplingParams;
  onTrace: (request: TraceRequest) => void;
}

/** The form to decode again, with beam size and length penalty, or with the sampling parameters and a seed. */
export function DecodeForm({ manifest, sampling, onTrace }: Props) {
  const { settings, prefix } = manifest.decode;
  const searches = hasSource(manifest);
  const waits = useValue(busy) !== null;
  const [chosen, setChosen] = useState({ ...settings, sample: !searches || settings.sample });
  const { sample, beam_size, length_penalty, decode_seed } = chosen;
  const change = (next: Partial<DecodeSettings>): void => setChosen({ ...chosen, ...next });

  const write = (event: Event): void => {
    event.preventDefault();
    const decode: Partial<DecodeSettings> = sample
      ? { sample, temperature: sampling.temperature, top_k: sampling.topK, top_p: sampling.topP, min_p: sampling.minP, decode_seed }
      : { sample, beam_size, length_penalty };
    const request = requestWithPrefix(manifest, []);
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
      {searches && <span class="row" role="group" aria-label="Decoding method">{how("Beam search", false)}{how("Sampling", true)}</span>}
      {sample ? field("Seed", "decode_seed", 0, 1e9) : <>{field("Beam size", "beam_size", 1, 10)}{field("Length penalty", "length_penalty", 0, 3, 0.1)}</>}
      <button type="submit" class="quiet" data-role="write-again" disabled={waits}>
        {sample ? "Sample again" : "Search again"}
      </button>
      {prefix.length > 0 && (
        <button type="button" class="quiet" data-role="unforce" disabled={waits} onClick={() => onTrace(requestWithPrefix(manifest, []))}>
          Remove the forced tokens
        </button>
      )}
    </form>
  );
}
