/**
 * A text with its words coloured by score: sign by hue and a mark, magnitude by intensity, the number on focus. Each
 * word is a button that masks or unmasks it.
 */
import { signal, useValue } from "../../state/signals";
import { signed, visible } from "../../tensors/format";
import { colours, gapBetween, keyOf, type Word } from "../../trace/words";

interface Props {
  words: readonly Word[];
  text: string;
  /** Largest absolute score of all words. */
  scale: number;
  erased: ReadonlySet<string>;
  erasedWith: string;
  onToggle: (word: Word) => void;
  name: string;
}

/** The word under the pointer, here or in the list of strongest words; only it is rerendered. */
const pointedWord = signal<string | null>(null);

export function WordText({ words, text, name, ...shared }: Props) {
  const letters = [...text];
  return (
    <p class="word-text" role="group" aria-label={name}>
      {words.map((word, i) => [gapBetween(letters, words[i - 1], word), <WordButton key={keyOf(word)} word={word} {...shared} />])}
    </p>
  );
}

function WordButton({ word, scale, erased, erasedWith, onToggle }: { word: Word } & Omit<Props, "words" | "text" | "name">) {
  const key = keyOf(word);
  const current = useValue(pointedWord, (pointed) => pointed === key);
  const gone = erased.has(key);
  return (
    <button
      type="button" class="word" data-word={word.index} data-of={word.stream} data-score={word.score}
      {...colours(word.score, scale)} data-current={current} aria-pressed={gone}
      aria-label={`${word.text}, ${signed(word.score)}${gone ? ", masked" : ""}`}
      onClick={() => onToggle(word)} {...pointing(key)}
      onKeyDown={(event) => {
        if (event.key === " ") event.stopPropagation(); // Space toggles this button
      }}
    >
      {gone ? erasedWith : visible(word.text).replace(/▁/g, " ")}
      {current && <span class="word-score">{signed(word.score)}</span>}
    </button>
  );
}

/** Event handlers that highlight a word on hover and focus. */
export function pointing(key: string) {
  const [enter, leave] = [() => (pointedWord.value = key), () => (pointedWord.value = null)];
  return { onMouseEnter: enter, onFocus: enter, onMouseLeave: leave, onBlur: leave };
}
