/** The steps of decoding: the output tokens with a slider, and the candidates for the next token. */
import type { Filtered } from "../../tensors/filters";
import { count, percent, visible } from "../../tensors/format";
import type { Manifest } from "../../types";
import { type Bar, Bars } from "../../views/Bars";
import { OutputTokens } from "../../views/Tokens";

interface ScrubberProps {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  onStep: (index: number) => void;
}

export function Scrubber({ manifest, index, onStep }: ScrubberProps) {
  const last = manifest.predictions.length - 1;
  const actual = manifest.predictions[index]?.actual;
  const place = `step ${index + 1} of ${last + 1}`;
  return (
    <section aria-label="Steps">
      <OutputTokens manifest={manifest} index={index} label="Output" onStep={onStep} />
      <div class="slider">
        <button type="button" class="quiet" aria-label="Previous step" disabled={index === 0} onClick={() => onStep(index - 1)}>←</button>
        <input
          type="range" min={0} max={last} value={index} data-role="step" aria-label="Step"
          aria-valuetext={`${place}: ${actual ? visible(actual.piece) : "next token"}`}
          onInput={(event) => onStep(Number(event.currentTarget.value))}
        />
        <button type="button" class="quiet" aria-label="Next step" disabled={index === last} onClick={() => onStep(index + 1)}>→</button>
        <span class="note">{place}. Colour: probability of each token.</span>
      </div>
    </section>
  );
}

interface NextProps {
  filtered: Filtered;
  pieces: ReadonlyMap<number, string>;
  /** The actual next token. */
  actual: number | undefined;
  /** The sampling parameters change nothing. */
  neutral: boolean;
  /** Why no token can be forced here, or null. */
  locked: string | null;
  /** The end token, which cannot be forced. */
  eos: number;
  onForce: (id: number) => void;
}

/**
 * Bars of the most probable next tokens: the probabilities of the model, and those for sampling after temperature and
 * filters. Each is a button that forces its token.
 */
export function NextTokens({ filtered, pieces, actual, neutral, locked, eos, onForce }: NextProps) {
  const { bars, rest } = filtered;
  const bar = (key: number | string, name: string, before: number, after: number, dropped: string | null): Bar => ({
    key, label: name, value: neutral ? before : after, text: percent(before), faded: !neutral && dropped !== null,
    ...(!neutral && { before, note: dropped ?? percent(after) }),
  });
  const shown = bars.map(({ id, before, after, dropped }): Bar => {
    const piece = pieces.get(id) ?? `#${id}`;
    const isOutput = id === actual;
    const free = locked === null && !isOutput && id !== eos && dropped !== "suppressed";
    const title = isOutput ? "this is the output token" : locked ?? (free ? `force “${visible(piece)}” here and continue` : "cannot be forced here");
    const onClick = () => onForce(id);
    return {
      ...bar(id, piece, before, after, dropped), strong: isOutput, struck: dropped !== null && !neutral,
      attributes: { "data-role": "force", "data-candidate": id, disabled: !free, title, onClick },
    };
  });
  if (rest.n > 0) shown.push(bar("rest", `${count(rest.n)} others`, rest.before, rest.after, null));
  const limit = Math.max(...shown.map((one) => Math.max(one.value, one.before ?? 0)));
  return <Bars label="Next tokens" bars={shown} limit={limit} />;
}
