/**
 * The four numbers that shape sampling, each a slider with one sentence that says what it does now.
 * What they do to a distribution is in `filters.ts`.
 */
import type { Knobs } from "./filters";

interface Props {
  knobs: Knobs;
  onChange: (knobs: Knobs) => void;
}

interface KnobFacts {
  key: keyof Knobs;
  name: string;
  min: number;
  max: number;
  step: number;
  says: (value: number) => string;
}

const KNOBS: KnobFacts[] = [
  {
    key: "temperature", name: "Temperature", min: 0, max: 2, step: 0.05,
    says: (t) =>
      t === 0 ? "Greedy: always the most probable token." : t === 1 ? "Logits as they are."
        : t < 1 ? "Logits divided by less than 1: differences grow, likely tokens gain."
          : "Logits divided by more than 1: differences shrink, unlikely tokens gain.",
  },
  {
    key: "topK", name: "Top-k", min: 0, max: 50, step: 1,
    says: (k) => (k === 0 ? "Off." : k === 1 ? "Only the most probable token." : `Only the ${k} most probable tokens.`),
  },
  {
    key: "topP", name: "Top-p", min: 0.05, max: 1, step: 0.05,
    says: (p) => (p === 1 ? "Off." : `The fewest tokens that together hold ${Math.round(100 * p)}%.`),
  },
  {
    key: "minP", name: "Min-p", min: 0, max: 0.5, step: 0.01,
    says: (m) => (m === 0 ? "Off." : `Tokens with at least ${m.toFixed(2)} of the best one’s probability.`),
  },
];

export function KnobSliders({ knobs, onChange }: Props) {
  return (
    <div class="knobs" role="group" aria-label="Temperature and filters">
      {KNOBS.map(({ key, name, min, max, step, says }) => (
        <label class="knob" key={key}>
          <span class="knob-name">{name}</span>
          <output class="knob-value">{step === 1 ? knobs[key] : knobs[key].toFixed(2)}</output>
          <input
            type="range" min={min} max={max} step={step} value={knobs[key]} data-role={`knob-${key}`}
            aria-valuetext={`${knobs[key]}: ${says(knobs[key])}`}
            onInput={(event) => onChange({ ...knobs, [key]: Number(event.currentTarget.value) })}
          />
          <span class="knob-says">{says(knobs[key])}</span>
        </label>
      ))}
    </div>
  );
}
