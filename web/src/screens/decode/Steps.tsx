/** The steps of writing: the text as it was written with a slider below, and what could have come next. */
import type { Filtered } from "../../tensors/filters";
import { count, percent, visible } from "../../tensors/format";
import type { Manifest } from "../../types";
import { type Bar, Bars } from "../../views/Bars";
import { WrittenTokens } from "../../views/Tokens";

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

interface NextProps {
  filtered: Filtered;
  pieces: ReadonlyMap<number, string>;
  /** The token that in fact follows. */
  actual: number | undefined;
  /** Whether before and after are the same. */
  neutral: boolean;
  /** Why no token can be forced here, or null. */
  locked: string | null;
  /** The end cannot be forced: the search itself ends every hypothesis. */
  eos: number;
  onForce: (id: number) => void;
}

/**
 * Bars of the most probable next tokens: the model's own probability, and what is left to draw from after the
 * temperature and the filters. Each is a button that writes that token instead.
 */
export function NextTokens({ filtered, pieces, actual, neutral, locked, eos, onForce }: NextProps) {
  const { bars, rest } = filtered;
  const bar = (key: number | string, name: string, before: number, after: number, dropped: string | null): Bar => ({
    key, label: name, value: neutral ? before : after, text: percent(before), faded: !neutral && dropped !== null,
    ...(!neutral && { before, note: dropped ?? percent(after) }),
  });
  const shown = bars.map(({ id, before, after, dropped }): Bar => {
    const piece = pieces.get(id) ?? `#${id}`;
    const wrote = id === actual;
    const free = locked === null && !wrote && id !== eos && dropped !== "never written";
    const title = wrote ? "this token was written" : locked ?? (free ? `write “${visible(piece)}” here instead and go on` : "cannot be written here");
    const onClick = () => onForce(id);
    return {
      ...bar(id, piece, before, after, dropped), strong: wrote, struck: dropped !== null && !neutral,
      attributes: { "data-role": "force", "data-candidate": id, disabled: !free, title, onClick },
    };
  });
  if (rest.n > 0) shown.push(bar("rest", `${count(rest.n)} others`, rest.before, rest.after, null));
  const limit = Math.max(...shown.map((one) => Math.max(one.value, one.before ?? 0)));
  return <Bars label="Next tokens" bars={shown} limit={limit} />;
}
