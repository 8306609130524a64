/** What the browser remembers for the page: the theme, and whether the tour was offered; and what is open, the help, the tour or "Share". */
import { type Palette, parseColour } from "../tensors/heat";
import { computed, effect, signal } from "./signals";

/** What the browser keeps for this page; null where it keeps nothing, as in a sandboxed frame. */
export function recall(name: string): string | null {
  try {
    return localStorage.getItem(`glassformer-${name}`);
  } catch {
    return null;
  }
}

export function remember(name: string, value: string) {
  try {
    localStorage.setItem(`glassformer-${name}`, value);
  } catch {
    // without storage it is not remembered
  }
}

/** What is open. */
export const guide = signal<"help" | "tour" | "share" | null>(null);
/** Whether the tour is offered: at the first start, until that is answered; where there is no storage, at each. */
export const offered = signal(!recall("tour"));

/** Opens the tour, or with null ends it; it is not offered again. */
export function openTour(what: "tour" | null) {
  offered.value = false;
  remember("tour", "1");
  guide.value = what;
}

type Theme = "light" | "dark";

/** The system's unless the reader, or the document around a frame, chose one. */
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = recall("theme");
export const theme = signal<Theme>(chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light");
dark.addEventListener("change", ({ matches }) => recall("theme") ?? (theme.value = matches ? "dark" : "light"));
effect(theme, (now) => (document.documentElement.dataset.theme = now));

export function toggleTheme() {
  theme.value = theme.value === "dark" ? "light" : "dark";
  remember("theme", theme.value);
}

/** The colours of the current theme, which the style sheet names for both: `light-dark(#ffffff, #14171a)`. */
export const palette = computed([theme], (): Palette => {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "positive", "negative", "strong"] as const;
  return Object.fromEntries(names.map((name) => [name, parseColour(style.getPropertyValue(`--${name}`), theme.value === "dark")])) as unknown as Palette;
});
