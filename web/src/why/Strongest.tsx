/** The words with the largest scores as bars to both sides of zero: the same numbers as the colours, to be read off. */
import { signed } from "../decode/numbers";
import { keyOf, strongest, type Word } from "./words";

interface Props {
  words: readonly Word[];
  scale: number;
  erased: ReadonlySet<string>;
  classify: boolean;
  onToggle: (word: Word) => void;
  /** Lights the word up in the text. */
  onCurrent: (key: string | null) => void;
}

export function Strongest({ words, scale, erased, classify, onToggle, onCurrent }: Props) {
  const top = strongest(words, 12);
  return (
    <section aria-labelledby="strongest-title">
      <h2 id="strongest-title">Strongest words</h2>
      {top.length === 0 && <p class="quiet">No word has a score other than 0.</p>}
      <ol class="strongest">
        {top.map((word) => (
          <li key={keyOf(word)}>
            <button type="button" class="strong" aria-pressed={erased.has(keyOf(word))} onClick={() => onToggle(word)}
              onMouseEnter={() => onCurrent(keyOf(word))} onMouseLeave={() => onCurrent(null)}
              onFocus={() => onCurrent(keyOf(word))} onBlur={() => onCurrent(null)}
              aria-label={`${word.text} ${signed(word.score, 3)}`}>
              <span class="strong-name">{word.text.replace(/\n/g, "⏎") || "∅"}{!classify && word.stream === "target" && <small> written</small>}</span>
              <span class="strong-track">
                <span class="strong-bar" data-sign={word.score > 0 ? "for" : "against"}
                  style={word.score > 0 ? { left: "50%", width: `${(50 * word.score) / scale}%` } : { right: "50%", width: `${(-50 * word.score) / scale}%` }} />
              </span>
              <span class="strong-score">{signed(word.score, 3)}</span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
