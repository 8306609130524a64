/** Word scores, summed over the tokens of each word, with their order and colours, and the masked words. */
import type { Stream, StreamName } from "../types";
import { asText } from "./generation";

export interface Word {
  /** Index of the word in its stream. */
  index: number;
  stream: StreamName;
  text: string;
  /** Positions of its tokens. */
  tokens: number[];
  score: number;
  /** It is after the explained position, so it has no effect. */
  later: boolean;
  /** Characters of the stream's text, if known. */
  span: [number, number] | null;
}

/**
 * The words of a stream as far as the explained position reads them: of positions from `upTo` on (null: none) nothing is
 * shown, since they hold the answer. `texts` are the words so cut, as the attribution has them.
 */
export function wordsOf(stream: Stream, scores: readonly number[] | undefined, upTo: number | null, texts?: readonly string[]): Word[] {
  const words = new Map<number, Word>();
  const cut = new Set<number>();
  stream.words.forEach((index, position) => {
    if (index < 0 || stream.padding[position]) return;
    const later = upTo !== null && position >= upTo;
    let word = words.get(index);
    if (word && later !== word.later) return void cut.add(index); // the rest of a word of which the beginning is read
    if (!word) {
      word = { index, stream: stream.name, text: stream.word_texts[index] ?? "", tokens: [], score: 0, later, span: null };
      words.set(index, word);
    }
    word.tokens.push(position);
    word.score += scores?.[position] ?? 0;
    const span = stream.spans[position];
    if (span) word.span = word.span ? [Math.min(word.span[0], span[0]), Math.max(word.span[1], span[1])] : [...span];
  });
  for (const word of words.values()) {
    word.text = texts?.[word.index] ?? (cut.has(word.index) ? asText(word.tokens.map((position) => stream.pieces[position] ?? "")) : word.text);
  }
  return [...words.values()].sort((a, b) => a.index - b.index);
}

/** What a list of words of several streams calls a word: "03 (target)", with its number where the stream has it twice: "03 (word 2, target)". */
export function nameOf(word: Word, all: readonly Word[]): string {
  const others = all.filter((one) => one.text === word.text && one !== word);
  const which = [
    ...(others.some((one) => one.stream === word.stream) ? [`word ${word.index}`] : []), ...(all.some((one) => one.stream !== word.stream) ? [word.stream] : []),
  ].join(", ");
  return which ? `${word.text} (${which})` : word.text;
}

/**
 * The text between two words. `letters` are the code points of the text, since spans count code points and JavaScript's
 * strings UTF-16 units.
 */
export function gapBetween(letters: readonly string[], before: Word | undefined, word: Word): string {
  if (!word.span) return before ? " " : "";
  const start = before?.span ? before.span[1] : 0;
  return start <= word.span[0] ? letters.slice(start, word.span[0]).join("") : "";
}

/** Largest absolute score, for the scale of colours; never 0. */
export function scaleOf(words: readonly Word[]): number {
  return Math.max(1e-12, ...words.map((word) => Math.abs(word.score)));
}

/** The attributes of a `.word`: the sign and strength of its score. */
export function colours(score: number, scale: number) {
  const share = score / scale;
  return {
    "data-sign": Math.abs(share) < 0.02 ? "none" : share > 0 ? "for" : "against",
    style: { "--strength": `${Math.round(100 * Math.abs(share) ** 0.75)}%` },
  };
}

/** The words with the largest absolute scores. */
export function strongest(words: readonly Word[], n: number): Word[] {
  return [...words].filter((word) => word.score !== 0).sort((a, b) => Math.abs(b.score) - Math.abs(a.score)).slice(0, n);
}

/** Positions to mask, by stream, for the erase request. */
export function erasedPositions(
  words: readonly Word[], erased: ReadonlySet<string>,
): Partial<Record<StreamName, number[]>> {
  const result: Partial<Record<StreamName, number[]>> = {};
  for (const word of words) {
    if (erased.has(keyOf(word))) (result[word.stream] ??= []).push(...word.tokens);
  }
  for (const positions of Object.values(result)) positions.sort((a, b) => a - b);
  return result;
}

/** "text:3": the key of a masked word in the address. */
export const keyOf = (word: Pick<Word, "stream" | "index">): string => `${word.stream}:${word.index}`;
