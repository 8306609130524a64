/**
 * The four numbers that shape sampling, each a slider with one sentence that says what it does now (what they do to a
 * distribution is in `filters.ts`), and the form that has the whole text written again.
 */
import { useState } from "preact/hooks";
import { busy } from "../../state/page";
import { useValue } from "../../state/signals";
import type { Knobs } from "../../tensors/filters";
import { hasSource, requestWith } from "../../trace/writing";
import type { DecodeSettings, Manifest, TraceRequest } from "../../types";

const KNOBS = {
  temperature: {
    name: "Temperature", min: 0, max: 3, step: 0.05,
    says: (t: number) => (t === 0 ? "All on the largest logit: greedy." : t === 1 ? "Logits as they are."
      : `Logits divided by ${t < 1 ? "less than 1: differences grow." : "more than 1: differences shrink."}`),
  },
  topK: { name: "Top-k", min: 0, max: 50, step: 1, says: (k: number) => (k === 0 ? "Off." : `Only the most probable tokens, ${k} of them.`) },
  topP: { name: "Top-p", min: 0.05, max: 1, step: 0.05, says: (p: number) => (p === 1 ? "Off." : `The fewest tokens that together hold ${Math.round(100 * p)}%.`) },
  minP: { name: "Min-p", min: 0, max: 0.5, step: 0.01, says: (p: number) => (p === 0 ? "Off." : `Tokens with at least ${p} of the best one’s probability.`) },
};

export function Knob({ knob, value, onInput }: { knob: keyof Knobs; value: number; onInput: (value: number) => void }) {
  const { name, says, ...range } = KNOBS[knob];
  return (
    <label class="knob">
      {name} <output>{value}</output>
      <input type="range" {...range} value={value} data-role={`knob-${knob}`} aria-valuetext={`${value}: ${says(value)}`} onInput={(event) => onInput(Number(event.currentTarget.value))} />
      <span class="note">{says(value)}</span>
    </label>
  );
}

export function KnobSliders({ knobs, onChange }: { knobs: Knobs; onChange: (knobs: Knobs) => void }) {
  return (
    <div class="knobs" role="group" aria-label="Temperature and filters">
      {(Object.keys(KNOBS) as (keyof Knobs)[]).map((knob) => <Knob key={knob} knob={knob} value={knobs[knob]} onInput={(value) => onChange({ ...knobs, [knob]: value })} />)}
    </div>
  );
}

interface Props {
  manifest: Manifest;
  knobs: Knobs;
  onTrace: (request: TraceRequest) => void;
}

/** With other settings: beam size and length penalty, or the sampling knobs and a seed. */
export function WriteAgain({ manifest, knobs, onTrace }: Props) {
  const { settings, prefix } = manifest.decode;
  const searches = hasSource(manifest);
  const waits = useValue(busy) !== null;
  const [chosen, setChosen] = useState({ ...settings, sample: !searches || settings.sample });
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
      {searches && <span class="row" role="group" aria-label="How to write">{how("Beam search", false)}{how("Sampling", true)}</span>}
      {sample ? field("Seed", "decode_seed", 0, 1e9) : <>{field("Beam", "beam_size", 1, 10)}{field("Length penalty", "length_penalty", 0, 3, 0.1)}</>}
      <button type="submit" class="quiet" data-role="write-again" disabled={waits}>
        {sample ? "Write again with these" : "Search again"}
      </button>
      {prefix.length > 0 && (
        <button type="button" class="quiet" data-role="unforce" disabled={waits} onClick={() => onTrace(requestWith(manifest, []))}>
          Let the model choose from the start
        </button>
      )}
    </form>
  );
}
