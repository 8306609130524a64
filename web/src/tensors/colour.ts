/**
 * Maps numbers to colours: a signed scale around the paper colour, or a sequential one from it. The stylesheet defines
 * the colours.
 */

export type Rgb = [number, number, number];

export interface Palette {
  paper: Rgb;
  ink: Rgb;
  faint: Rgb;
  accent: Rgb;
  /** Ends of the signed scale, and of the sequential one; the middle and zero are `paper`. */
  positive: Rgb;
  negative: Rgb;
  strong: Rgb;
}

/** From "#0b6a54"; grey where it is none. */
export function parseColour(text: string): Rgb {
  const hex = /^#([0-9a-f]{6})$/i.exec(text.trim())?.[1] ?? "888888";
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)) as Rgb;
}

export const css = ([r, g, b]: Rgb) => `rgb(${r} ${g} ${b})`;

export const mix = (a: Rgb, b: Rgb, t: number): Rgb =>
  [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * t)) as Rgb;

/** Colour of a value on the scale: signed around 0, or from 0 up. `limit` is the largest magnitude. */
export function shade(x: number, limit: number, scale: "signed" | "sequential", colours: Palette): Rgb {
  const t = limit > 0 ? Math.min(1, Math.abs(x) / limit) : 0;
  const end = scale === "sequential" ? colours.strong : x < 0 ? colours.negative : colours.positive;
  return mix(colours.paper, end, t ** 0.8); // small values stay visible
}
