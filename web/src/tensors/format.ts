/** Formats numbers and names for people: a minus sign, few digits, all indices from 0. */
import type { AxisName, TraceNode } from "../types";
import { BLOCKED } from "./tensor";

const MINUS = "\u2212";

/** Three significant digits or so: "0.0312", "−1.50", "1.2e−9", "0". */
export function number(x: number, digits = 3): string {
  if (Number.isNaN(x)) return "nan";
  if (x < -BLOCKED && Number.isFinite(x)) return "blocked";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : `${MINUS}∞`;
  const size = Math.abs(x);
  let text: string;
  if (size === 0) text = "0";
  else if (size < 10 ** -digits || size >= 1e6) text = size.toExponential(1);
  else text = size.toFixed(Math.max(0, Math.min(digits, digits - 1 - Math.floor(Math.log10(size)))));
  return (x < 0 && Number(text) !== 0 ? MINUS : "") + text.replace("-", MINUS);
}

/** With its sign always: "+0.31", "−1.50". */
export function signed(x: number, digits = 3): string {
  return x > 0 ? `+${number(x, digits)}` : number(x, digits);
}

/** All digits of a float, for attributes. */
export const exact = (x: number) => (Object.is(x, -0) ? "0" : String(x));

/** "41.2%", and near 0 and 1 "0.03%", "<0.01%". */
export function percent(p: number, digits = (p > 0 && p < 0.01) || (p < 1 && p > 0.999) ? 2 : 1): string {
  if (p > 0 && p * 100 < 0.5 * 10 ** -digits) return `<${(10 ** -digits).toFixed(digits)}%`;
  if (p < 1 && p * 100 > 100 - 0.5 * 10 ** -digits) return `>${(100 - 10 ** -digits).toFixed(digits)}%`;
  return `${(p * 100).toFixed(digits)}%`;
}

/** A difference of probabilities in percentage points: "+20.1 pp", "−0.03 pp", "−3e−5 pp", "0 pp". */
export function points(change: number): string {
  const size = 100 * Math.abs(change);
  if (!size) return "0 pp";
  return `${change < 0 ? MINUS : "+"}${size < 0.005 ? size.toExponential(0).replace("-", MINUS) : size.toFixed(size < 1 ? 2 : 1)} pp`;
}

/** "2.4e−7". */
export const tiny = (x: number) => (x === 0 ? "0" : x < 0.001 ? x.toExponential(1).replace("-", MINUS) : number(x));

/** `toLocaleString` makes a formatter in each call, which a page of many shapes waits for. */
const thousands = new Intl.NumberFormat("en");

/** With thousands separators, as on the command line: "3,292,416". */
export const count = (n: number) => thousands.format(n);

export const shapeText = (shape: readonly number[]) => (shape.length ? shape.map(count).join(" × ") : "a single number");

/** Of a name the places where its line may break. */
export const breakable = (name: string) => name.replace(/\./g, "$&\u200b");

export const capital = (text: string) => text[0]!.toUpperCase() + text.slice(1);

/** A token with visible spaces at its ends (␣) and line breaks (↵). */
export function visible(piece = ""): string {
  const text = piece.replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5");
  const start = text.length - text.trimStart().length, end = Math.max(start, text.trimEnd().length);
  return "\u2423".repeat(start) + text.slice(start, end) + "\u2423".repeat(text.length - end) || "\u2205";
}

/** "best: step 1,164", "step 1,000", "before training". */
export function checkpointName(name: string, step: number | null): string {
  const update = step === null ? "" : `step ${count(step)}`;
  if (name === "model") return update ? `best: ${update}` : "best";
  return step === 0 ? "before training" : update || name;
}

const AXES: Partial<Record<AxisName, [one: string, all: string]>> = {
  token: ["token", "tokens"], key: ["key", "keys"], head: ["head", "heads"], class: ["class", "classes"], vocab: ["token", "vocabulary"], ngram: ["n-gram", "n-grams"], bigram: ["bigram", "bigrams"],
};

/** The name of one position on an axis, and of all. */
export const axisNames = (name: AxisName) => AXES[name] ?? ["feature", "features"];

const BLOCKS = { self: "self-attention", cross: "cross-attention", ff: "feed-forward" } as const;

/** The location of a node in the model: "Encoder layer 0, self-attention". */
export function nodeLocation({ stack, layer, block }: TraceNode): string {
  const name = { encoder: "Encoder", decoder: "Decoder", head: "Output", text: "Embedding", source: "Source embedding", target: "Target embedding" }[stack];
  return layer === null ? name : `${name} layer ${layer}${block ? `, ${BLOCKS[block]}` : ""}`;
}
