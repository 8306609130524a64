/**
 * A text with its words coloured by score, as a person wrote it: sign by hue, underline and a small mark, strength
 * by intensity, the number on focus. Each word is a button that erases it or puts it back.
 */
import { signed, visible } from "../format";
import { colours, gapBetween, keyOf, type Word } from "./words";

interface Props {
  words: readonly Word[];
  text: string;
  /** Largest absolute score anywhere on the page. */
  scale: number;
  erased: ReadonlySet<string>;
  erasedWith: string;
  /** The word whose score is shown. */
  current: string | null;
  onCurrent: (key: string | null) => void;
  onToggle: (word: Word) => void;
  name: string;
}

export function WordText({ words, text, scale, erased, erasedWith, current, onCurrent, onToggle, name }: Props) {
  const letters = [...text];
  return (
    <p class="word-text" role="group" aria-label={name}>
      {words.map((word, i) => {
        const key = keyOf(word);
        const gone = erased.has(key);
        return (
          <>
            {gapBetween(letters, words[i - 1], word)}
            <button
              key={key} type="button" class="word" data-word={word.index} data-of={word.stream} data-score={word.score}
              {...colours(word.score, scale)} data-current={current === key} aria-pressed={gone}
              aria-label={`${word.text}, ${signed(word.score)}${gone ? ", erased" : ""}`}
              onClick={() => onToggle(word)} {...pointing(key, onCurrent)}
              onKeyDown={(event) => {
                if (event.key === " ") event.stopPropagation(); // Space is this button's, not the next step
              }}
            >
              {gone ? erasedWith : visible(word.text).replace(/▁/g, " ")}
              {current === key && <span class="word-score">{signed(word.score)}</span>}
            </button>
          </>
        );
      })}
    </p>
  );
}

/** A pointer or the focus on something that stands for a word. */
export function pointing(key: string, onCurrent: (key: string | null) => void) {
  const [enter, leave] = [() => onCurrent(key), () => onCurrent(null)];
  return { onMouseEnter: enter, onFocus: enter, onMouseLeave: leave, onBlur: leave };
}
