/**
 * The tokens of a text as the page shows them: their readable form, the words that they belong to, the characters that they
 * stand for, and the n-grams and pairs of words that a model reads with them (`explain/streams.py`, `text/ngrams.py`).
 */
import type { Stream, StreamName } from "../types";
import type { Span, Token, Tokenizer } from "./tokens";

const [LETTER, SPACE, MARK] = [/[\p{L}\p{N}_]/u, /[\p{White_Space}\x1c-\x1f]/u, /[\p{M}\p{Cf}\u{1F3FB}-\u{1F3FF}]/u];
/** Kana and Han: each is a word. */
const SINGLE = /[\u3040-\u30FF\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\u{20000}-\u{3FFFF}]/u;
/** Scripts without spaces between words, whose characters are tokens of their own. */
const UNSPACED = /^[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\u{20000}-\u{3ffff}]/u;

/** w of a word, s a word alone, j and z joiners, ' an apostrophe, m a mark, l a line, or a space. */
function kindOf(character: string): string {
  if (character === "\n") return "l";
  if (SPACE.test(character)) return " ";
  if (SINGLE.test(character) && /\p{L}/u.test(character)) return "s";
  if (LETTER.test(character)) return "w";
  if (MARK.test(character)) return character === "\u200d" ? "z" : "j";
  return character === "'" || character === "’" ? "'" : "m";
}

/** A word with apostrophes inside, line breaks, or another character alone, with the joiners after each. */
const UNIT = /w(?:[wjz]|(?<=z).|'(?=[ws]))*|l(?:[ljz]|(?<=z).)*|[^ ](?:[jz]|(?<=z).)*/g;

/** The index of the word that each token belongs to, and the words; -1 for tokens that stand for nothing. */
export function groupWords(characters: readonly string[], spans: readonly (Span | null)[], unknown: readonly boolean[]): [number[], string[]] {
  const units = Array.from(characters.map(kindOf).join("").matchAll(UNIT), ({ index, 0: found }): Span => [index, index + found.length]);
  const words: (number | null)[] = [], reach: number[][] = [];
  let low = 0;
  spans.forEach((span, i) => {
    let [first, end] = [1, 0];
    if (span) {
      while (low && units[low - 1]![1] > span[0]) low--;
      while (low < units.length && units[low]![1] <= span[0]) low++;
      [first, end] = [low, low - 1];
      while (end + 1 < units.length && units[end + 1]![0] < span[1]) end++;
    }
    if (first > end) {
      words.push(unknown[i] ? reach.length : span ? null : -1);
      if (unknown[i]) reach.push([]);
      return;
    }
    const before = reach.at(-1);
    if (before?.length && first <= before[1]!) before[1] = Math.max(end, before[1]!);
    else reach.push([first, end]);
    words.push(reach.length - 1);
  });
  if (!reach.length && words.includes(null)) reach.push([]);
  const texts = reach.map(([from, to]) => (from === undefined ? "" : characters.slice(units[from]![0], units[to!]![1]).join("").replaceAll("\n", "\\n")));
  // A space belongs to the next word, or to the last one where there is none.
  let following = reach.length - 1;
  const numbers = words.map((word, i): [number | null, boolean] => [word, unknown[i]!]).toReversed().map(([word, isUnknown]) => {
    if (word !== null && word >= 0) following = word;
    const number = word === -1 ? -1 : following;
    if (word !== -1 && !reach[following]!.length) texts[following] = isUnknown ? "[UNK]" : "▁";
    return number;
  });
  return [numbers.toReversed(), texts];
}

/** What a model adds to the ids of tokens, and which of them are special. */
export interface Vocabulary {
  tokenizer: Tokenizer;
  special: ReadonlySet<number>;
  pad: number;
  unknown: number;
  /** The n-grams of words in the order of their numbers, the first of which is 257; rows of pairs of ids; where there are some. */
  ngrams?: ReadonlyMap<string, number>;
  bigrams?: ReadonlyMap<string, number>;
  isLower: boolean;
}

/** A token as a person would write it: "▁" for a space, "\n" for a line break. */
export function pieceOf({ tokenizer, special }: Pick<Vocabulary, "tokenizer" | "special">, id: number): string {
  const stored = tokenizer.stored(id);
  return special.has(id) ? stored : tokenizer.readable(stored).replaceAll(" ", "▁").replaceAll("\n", "\\n").replaceAll("\r", "\\r").replaceAll("\t", "\\t");
}

const [LENGTHS, AHEAD, MOST, FIRST] = [[3, 4, 5], 2, 24, 257];
const utf8 = new TextEncoder();

/** The surface form of each token: a word with its marks, "<refund>", or a character of a script without spaces and what follows. */
function surfaceForms(characters: readonly string[], spans: readonly Span[]): string[] {
  const isUnspaced = (at: number) => UNSPACED.test(characters[at] ?? "");
  return spans.map(([start, end], i) => {
    if (!isUnspaced(start)) return `<${characters.slice(start, end).join("")}>`;
    for (const [later, stop] of spans.slice(i + 1, i + 1 + AHEAD)) {
      if (later !== end || !isUnspaced(later)) break;
      end = stop;
    }
    return characters.slice(start, end).join("");
  });
}

/** The n-grams of a surface form that are listed, or its bytes if none is. */
function ngramsOf(surface: string, listed: ReadonlyMap<string, number>): number[] {
  const all = Array.from(surface).slice(0, 4096), found: number[] = [];
  const add = (from: number, n: number) => {
    const number = from + n <= all.length ? listed.get(all.slice(from, from + n).join("")) : undefined;
    if (number !== undefined && found.length < MOST) found.push(number);
  };
  if (all[0] === "<") all.forEach((_, from) => LENGTHS.forEach((n) => add(from, n)));
  else for (let n = 2; n <= all.length; n++) add(0, n);
  const spelled = all[0] === "<" ? Array.from(surface).slice(1, -1).slice(0, MOST).join("") : all[0]!;
  return found.length ? found : Array.from(utf8.encode(spelled).slice(0, MOST), (byte) => 1 + byte);
}

/** The stream of tokens that stand for characters of a text; null stands for none. */
export function makeStream(vocabulary: Vocabulary, name: StreamName, tokens: readonly { id: number; span: Span | null }[], text: string, nGiven = tokens.length): Stream {
  const ids = tokens.map(({ id }) => id), characters = Array.from(text);
  const special = ids.map((id) => id !== vocabulary.unknown && vocabulary.special.has(id)), unknown = ids.map((id) => id === vocabulary.unknown);
  const spans = tokens.map(({ span }, i) => (special[i] ? null : span));
  const [words, word_texts] = groupWords(characters, spans, unknown);
  return {
    name, ids, pieces: ids.map((id) => pieceOf(vocabulary, id)), special, unknown, padding: ids.map(() => false),
    words, word_texts, spans, text, n_given: nGiven, ngrams: null, ngram_ids: null, bigrams: null, bigram_ids: null,
  };
}

/** Adds the n-grams of the words and the pairs of words that a text encoder reads. */
export function withSpelling(vocabulary: Vocabulary, stream: Stream, tokens: readonly Token[]): Stream {
  const { ngrams, bigrams, isLower } = vocabulary, { ids, text } = stream;
  const found = { ...stream }, characters = Array.from(text);
  if (ngrams) {
    const forms = surfaceForms(characters, tokens.map(({ span }) => span)).map((form) => (isLower ? form.toLowerCase() : form));
    const numbers = forms.map((form) => (form ? ngramsOf(form, ngrams) : [])), names = [...ngrams.keys()];
    const width = Math.max(1, ...numbers.map((row) => row.length));
    found.ngrams = numbers.map((row) => row.map((id) => (id >= FIRST ? names[id - FIRST]! : `0x${(id - 1).toString(16).toUpperCase().padStart(2, "0")}`)));
    found.ngram_ids = numbers.map((row) => [...row, ...Array<number>(width - row.length).fill(0)]);
    found.pieces = stream.pieces.map((piece, i) => (stream.unknown[i] && stream.spans[i] ? `${characters.slice(...stream.spans[i]!).join("")} ${piece}` : piece));
  }
  if (bigrams) {
    found.bigram_ids = ids.map((id, i) => bigrams.get(`${ids[i - 1]} ${id}`) ?? 0);
    found.bigrams = found.bigram_ids.map((row, i) => (row ? `${found.pieces[i - 1]} ${found.pieces[i]}` : ""));
  }
  return found;
}

/** The text that ids decode to, and the characters of each token in it: those that decoding it adds. */
export function decodedSpans(vocabulary: Vocabulary, ids: readonly number[]): [string, (Span | null)[]] {
  const { tokenizer, special } = vocabulary;
  const textOf = (some: readonly number[]) => Array.from(tokenizer.decode(some.filter((id) => !special.has(id))));
  const text = textOf(ids), ends = [0];
  ids.forEach((_, n) => {
    const part = textOf(ids.slice(0, n + 1));
    let same = 0;
    while (same < part.length && part[same] === text[same]) same++;
    ends.push(Math.max(ends.at(-1)!, same));
  });
  const spans = ids.map((id, i): Span => {
    let [start, end] = [ends[i]!, ends[i + 1]!];
    if (start === end && !special.has(id)) end = ends.slice(i + 1).find((later) => later > start) ?? start;
    while (tokenizer.spaced && start < end && SPACE.test(text[start]!)) start++;
    return [start, end];
  });
  return [text.join(""), spans];
}
