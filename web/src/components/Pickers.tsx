/** Choosing a head, and the position whose next token is looked at. Both live in the address. */
import { windowOf } from "../stepData";
import { axisLabels, setParams, stream } from "../state";
import type { Axis, Manifest } from "../types";
import { Tokens } from "./Tokens";

export function HeadPicker({ heads, head }: { heads: number; head: number }) {
  return (
    <div class="heads" role="group" aria-label="Head">
      <span class="small">Head</span>
      {Array.from({ length: heads }, (_, h) => (
        <button key={h} type="button" class="quiet" aria-pressed={h === head} onClick={() => setParams({ head: h })}>{h + 1}</button>
      ))}
    </div>
  );
}

export function PositionPicker({ trace, position }: { trace: Manifest; position: number }) {
  const last = trace.streams.at(-1);
  const tokens = last && stream(last.name, trace);
  if (!tokens) return null;
  return (
    <div class="positions">
      <p class="small">What follows after the chosen token?</p>
      <Tokens
        stream={tokens} window={windowOf(trace, tokens.name)} chosen={position} label="Position"
        onChoose={(index) => setParams({ position: index, cell: null })}
      />
    </div>
  );
}

/** Labels of an axis: tokens, or the classes' names. */
export function exactLabels(axis: Axis, trace: Manifest): readonly string[] | undefined {
  const names = trace.model.label_names;
  if (axis.name === "class") return names && names.length === axis.size ? names : undefined;
  return axisLabels(axis, trace);
}
