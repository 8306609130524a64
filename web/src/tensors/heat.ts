/**
 * Draws a matrix as a heat map on a canvas. Masked cells are clear; negative cells have a dash, so that the sign
 * does not depend on hue alone. `views/Matrix.tsx` lays it out.
 */
import { BLOCKED } from "./tensor";

type Rgb = [number, number, number];

export interface Palette {
  paper: Rgb;
  ink: Rgb;
  /** Ends of the signed scale, and of the sequential one; the middle and zero are `paper`. */
  positive: Rgb;
  negative: Rgb;
  strong: Rgb;
}

/** From "light-dark(#ffffff, #14171a)"; grey where it is none. */
export function parseColour(text: string, dark: boolean): Rgb {
  const hex = text.match(/[0-9a-f]{6}/gi)?.[Number(dark)] ?? "888888";
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)) as Rgb;
}

export const css = ([r, g, b]: Rgb) => `rgb(${r} ${g} ${b})`;

const mix = (a: Rgb, b: Rgb, t: number): Rgb =>
  [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * t)) as Rgb;

/** Colour of a value on the scale: signed around 0, or from 0 up. `limit` is the largest magnitude. */
export function shade(x: number, limit: number, scale: "signed" | "sequential", colours: Palette): Rgb {
  const t = limit > 0 ? Math.min(1, Math.abs(x) / limit) : 0;
  const end = scale === "sequential" ? colours.strong : x < 0 ? colours.negative : colours.positive;
  return mix(colours.paper, end, t ** 0.8); // small values stay visible
}

interface Heat {
  rows: number;
  cols: number;
  data: ArrayLike<number>; // row by row
  /** Same size; 0 = masked, drawn hatched. */
  mask?: ArrayLike<number> | null;
  scale: "signed" | "sequential";
  limit: number; // the magnitude of the full colour
  cellWidth: number;
  cellHeight: number;
  colours: Palette;
  cell?: readonly [number, number] | null;
}

/** Sizes the canvas (in CSS pixels, sharp on any screen) and paints it. */
export function drawHeat(canvas: HTMLCanvasElement, heat: Heat) {
  const { rows, cols, cellWidth, cellHeight, colours } = heat;
  const width = Math.max(1, Math.round(cols * cellWidth));
  const height = Math.max(1, Math.round(rows * cellHeight));
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 8192 / Math.max(width, height));
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const gap = cellWidth >= 9 && cellHeight >= 9 ? 1 : 0;
  const line = css(mix(colours.paper, colours.ink, 0.1));
  if (gap) {
    context.fillStyle = line;
    context.fillRect(0, 0, width, height);
  }
  for (let row = 0; row < rows; row++) {
    const top = Math.round(row * cellHeight);
    const tall = Math.round((row + 1) * cellHeight) - top - gap;
    for (let col = 0; col < cols; col++) {
      const left = Math.round(col * cellWidth);
      const wide = Math.round((col + 1) * cellWidth) - left - gap;
      const at = row * cols + col;
      const value = heat.data[at] ?? NaN;
      const masked = value < -BLOCKED || (heat.mask ? heat.mask[at] === 0 : false);
      const colour = shade(value, heat.limit, heat.scale, colours);
      context.fillStyle = css(colour);
      context[masked ? "clearRect" : "fillRect"](left, top, wide, tall); // the style sheet hatches what is clear
      if (!masked && heat.scale === "signed" && value < 0 && wide >= 6 && tall >= 6) {
        context.fillStyle = css(mix(colour, colours.ink, 0.55)); // a dash marks negative values
        const dash = Math.max(3, Math.round(wide * 0.3));
        context.fillRect(left + Math.round((wide - dash) / 2), top + Math.round(tall / 2) - 0.5, dash, 1);
      }
    }
  }
  if (heat.cell) {
    const [row, col] = heat.cell;
    context.strokeStyle = css(colours.ink);
    context.lineWidth = 2;
    const wide = Math.max(4, cellWidth);
    const tall = Math.max(4, cellHeight);
    context.strokeRect(col * cellWidth + cellWidth / 2 - wide / 2, row * cellHeight + cellHeight / 2 - tall / 2, wide - gap, tall - gap);
  }
}
