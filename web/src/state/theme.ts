/**
 * Light or dark: the system's choice unless the reader chose, which is remembered where the browser allows.
 * Canvases read their colours from the stylesheet through `palette`, so styles/base.css is the one list of colours.
 */
import { type Palette, parseColour } from "../tensors/colour";
import { derived, signal } from "./signals";

export type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", (event) => (systemDark.now = event.matches));

function remembered(): Theme | null {
  try {
    const value = localStorage.getItem("glassformer-theme");
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // a sandboxed frame has no storage
  }
}

const chosen = signal<Theme | null>(remembered());
export const theme = derived([chosen, systemDark], (): Theme => chosen.now ?? (systemDark.now ? "dark" : "light"));

export function toggleTheme() {
  const next = theme.now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next; // before anyone reads the stylesheet's colours of now
  chosen.now = next;
  try {
    localStorage.setItem("glassformer-theme", next);
  } catch {
    // not remembered, then
  }
}

export function initTheme() {
  if (chosen.now) document.documentElement.dataset.theme = chosen.now;
}

/** The colours of now, as numbers. */
export const palette = derived([theme], (): Palette => {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => parseColour(style.getPropertyValue(`--${name}`));
  return {
    paper: get("paper"), ink: get("ink"), faint: get("faint"), accent: get("accent"),
    positive: get("positive"), negative: get("negative"), strong: get("strong"),
  };
});
