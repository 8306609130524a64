/**
 * Light or dark: the system's choice unless the reader chose, which is remembered where the browser allows.
 * Canvases read their colours from the stylesheet through `palette`, so styles/base.css is the one list of colours.
 */
import { computed, signal } from "./signals";

export type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", (event) => (systemDark.value = event.matches));

function remembered(): Theme | null {
  try {
    const value = localStorage.getItem("glassformer-theme");
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // a sandboxed frame has no storage
  }
}

const chosen = signal<Theme | null>(remembered());
export const theme = computed(() => chosen.value ?? (systemDark.value ? "dark" : "light"), (now): Theme => now);

export function toggleTheme() {
  chosen.value = theme.value === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = chosen.value;
  try {
    localStorage.setItem("glassformer-theme", chosen.value);
  } catch {
    // not remembered, then
  }
}

export function initTheme() {
  if (chosen.value) document.documentElement.dataset.theme = chosen.value;
}

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

function parse(text: string): Rgb {
  const hex = /^#([0-9a-f]{6})$/i.exec(text.trim())?.[1] ?? "888888";
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)) as Rgb;
}

/** The colours of now, as numbers. */
export const palette = computed(() => theme.value, (): Palette => {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => parse(style.getPropertyValue(`--${name}`));
  return {
    paper: get("paper"), ink: get("ink"), faint: get("faint"), accent: get("accent"),
    positive: get("positive"), negative: get("negative"), strong: get("strong"),
  };
});

export const css = ([r, g, b]: Rgb) => `rgb(${r} ${g} ${b})`;

export const mix = (a: Rgb, b: Rgb, t: number): Rgb =>
  [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * t)) as Rgb;

/** Colour of a value on the scale: signed around 0, or from 0 up. `limit` is the largest magnitude. */
export function shade(x: number, limit: number, scale: "signed" | "sequential", colours: Palette): Rgb {
  const t = limit > 0 ? Math.min(1, Math.abs(x) / limit) : 0;
  const end = scale === "sequential" ? colours.strong : x < 0 ? colours.negative : colours.positive;
  return mix(colours.paper, end, t ** 0.8); // small values stay visible
}
