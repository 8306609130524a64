/** Selection of one of several options, of a head, or of a position. */
import { setParams } from "../state/page";
import { outputStream } from "../trace/generation";
import type { Manifest } from "../types";
import { Tokens } from "./Tokens";

export interface ChoicesProps<T extends string> {
  name: string;
  label: string;
  options: readonly (readonly [value: T, words: string])[];
  chosen: T | null;
  onChoose: (value: T) => void;
}

/** A row of buttons, each with its value as `data-NAME`. */
export function Choices<T extends string>({ name, label, options, chosen, onChoose }: ChoicesProps<T>) {
  return (
    <span class="choices" role="group" aria-label={label}>
      {options.map(([value, words]) => (
        <button key={value} type="button" class="quiet" {...{ [`data-${name}`]: value }} aria-pressed={value === chosen} onClick={() => onChoose(value)}>
          {words}
        </button>
      ))}
    </span>
  );
}

/** Selects the head in the address. */
export function HeadPicker({ heads, head }: { heads: number; head: number }) {
  return (
    <div class="heads" role="group" aria-label="Head">
      <span class="small">Head</span>
      {Array.from({ length: heads }, (_, h) => (
        <button key={h} type="button" class="quiet" aria-pressed={h === head} onClick={() => setParams({ head: h })}>{h}</button>
      ))}
    </div>
  );
}

/** Selects the position in the address. */
export function PositionPicker({ trace, position }: { trace: Manifest; position: number }) {
  const tokens = outputStream(trace);
  return (
    <div class="positions">
      <p class="small">Predictions after the selected token</p>
      <Tokens
        stream={tokens} chosen={position} label="Position"
        onChoose={(index) => setParams({ position: index, cell: null })}
      />
    </div>
  );
}
