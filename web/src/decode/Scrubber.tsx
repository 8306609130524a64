/** The text as it was written with a slider below: both move through the steps. */
import { visible } from "../format";
import type { Manifest } from "../types";
import { WrittenTokens } from "./WrittenTokens";

interface Props {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  onStep: (index: number) => void;
}

export function Scrubber({ manifest, index, onStep }: Props) {
  const last = manifest.predictions.length - 1;
  const actual = manifest.predictions[index]?.actual;
  const place = `step ${index + 1} of ${last + 1}`;
  return (
    <section aria-label="Steps">
      <WrittenTokens manifest={manifest} index={index} label="Written so far" onStep={onStep} />
      <div class="slider">
        <button type="button" class="quiet" aria-label="Step before" disabled={index === 0} onClick={() => onStep(index - 1)}>←</button>
        <input
          type="range" min={0} max={last} value={index} data-role="step" aria-label="Step"
          aria-valuetext={`${place}: ${actual ? visible(actual.piece) : "what would come next"}`}
          onInput={(event) => onStep(Number(event.currentTarget.value))}
        />
        <button type="button" class="quiet" aria-label="Step after" disabled={index === last} onClick={() => onStep(index + 1)}>→</button>
        <span class="note">{place}. The stronger a token’s colour, the more probable it was.</span>
      </div>
    </section>
  );
}
