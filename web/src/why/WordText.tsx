/**
 * A text with its words coloured by score, as a person wrote it: sign by hue, underline and a small mark, strength
 * by intensity, the number on focus. Each word is a button that erases it or puts it back.
 */
import { label, signed } from "../decode/numbers";
import { gapBetween, keyOf, type Word } from "./words";

interface Props {
  words: readonly Word[];
  text: string;
  /** Largest absolute score anywhere on the page. */
  scale: number;
  erased: ReadonlySet<string>;
  erasedWith: string;
  /** Shown on hover and focus. */
  current: string | null;
  onCurrent: (key: string | null) => void;
  onToggle: (word: Word) => void;
  labelledBy?: string;
}

export function WordText({ words, text, scale, erased, erasedWith, current, onCurrent, onToggle, labelledBy }: Props) {
  const letters = [...text];
  return (
    <p class="word-text" role="group" aria-labelledby={labelledBy}>
      {words.map((word, i) => {
        const key = keyOf(word);
        const gone = erased.has(key);
        const share = word.score / scale;
        return (
          <>
            {gapBetween(letters, words[i - 1], word)}
            <button
              key={key} type="button" class="word" data-word={word.index} data-of={word.stream} data-score={word.score}
              data-sign={Math.abs(share) < 0.02 ? "none" : share > 0 ? "for" : "against"} data-later={word.later}
              data-current={current === key} aria-pressed={gone} disabled={word.later}
              aria-label={`${word.text}, ${word.later ? "not yet read" : signed(word.score, 3)}${gone ? ", erased" : ""}`}
              style={{ "--strength": `${Math.round(100 * Math.min(1, Math.abs(share)) ** 0.75)}%` }}
              onClick={() => onToggle(word)} onMouseEnter={() => onCurrent(key)} onMouseLeave={() => onCurrent(null)}
              onFocus={() => onCurrent(key)} onBlur={() => onCurrent(null)}
              onKeyDown={(event) => {
                if (event.key === " ") event.stopPropagation(); // Space is this button's, not the next step
              }}
            >
              {gone ? erasedWith : label(word.text).replace(/▁/g, " ")}
              {current === key && !word.later && <span class="word-score">{signed(word.score, 2)}</span>}
            </button>
          </>
        );
      })}
    </p>
  );
}
