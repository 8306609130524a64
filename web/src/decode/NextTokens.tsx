/**
 * Bars of the most probable next tokens: the model's own probability, and what is left to draw from after the
 * temperature and the filters. Each is a button that writes that token instead.
 */
import { Bars, type Bar } from "../components/Bars";
import { count, percent, visible } from "../format";
import type { Filtered } from "./filters";

interface Props {
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

export function NextTokens({ filtered, pieces, actual, neutral, locked, eos, onForce }: Props) {
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
