/** Probabilities and log-probabilities as people read them. Widths are kept equal by tabular figures in CSS. */
import type { Range } from "./filters";

export const MINUS = "\u2212";

/** "41.2%", "0.03%", "< 0.01%"; 0 and 1 only when they are. */
export function percent(p: number): string {
  if (p === 0) return "0%";
  if (p === 1) return "100%";
  const hundredths = 100 * p;
  if (hundredths < 0.01) return "< 0.01%";
  if (hundredths < 1) return `${hundredths.toFixed(2)}%`;
  if (hundredths > 99.9) return hundredths > 99.99 ? "> 99.99%" : `${hundredths.toFixed(2)}%`;
  return `${hundredths.toFixed(1)}%`;
}

/** One number where both ends read the same, "41.0–41.6%" otherwise. */
export function percentRange([low, high]: Range): string {
  const [a, b] = [percent(low), percent(high)];
  return a === b ? a : `${a.replace("%", "")}–${b}`;
}

/** "+1.25", "−0.31": the sign is always told. */
export function signed(x: number, digits = 2): string {
  const text = Math.abs(x).toFixed(digits);
  return Number(text) === 0 ? text : `${x < 0 ? MINUS : "+"}${text}`;
}

/** "1.25", "−0.31", with the typographic minus. */
export function plain(x: number, digits = 2): string {
  const text = x.toFixed(digits);
  return text.startsWith("-") ? (Number(text) === 0 ? text.slice(1) : MINUS + text.slice(1)) : text;
}

/** A piece as a label: spaces and line ends can be seen, an empty one has a name. */
export { visible as label } from "../format";

/** Decimals at which the smallest of some numbers still shows three digits: from 3 to 6, the same for all. */
export function decimals(values: readonly number[]): number {
  const sizes = values.map(Math.abs).filter((size) => size > 0);
  const least = sizes.length ? Math.min(...sizes) : 1;
  return Math.max(3, Math.min(6, 2 - Math.floor(Math.log10(least))));
}

/** With a capital and a full stop, for sentences that come from the server or from code. */
export function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

/** Cut in the middle of nothing: the first letters and an ellipsis. */
export function cut(text: string, longest: number): string {
  const letters = [...text];
  return letters.length <= longest ? text : `${letters.slice(0, longest - 1).join("")}…`;
}
