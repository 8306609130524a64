/**
 * The four numbers that shape sampling, each a slider with one sentence that says what it does now.
 * What they do to a distribution is in `filters.ts`.
 */
import type { Knobs } from "./filters";

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
