/**
 * Light or dark theme: the system's unless the reader chose one. `palette` reads the colours from the stylesheet, for
 * canvases.
 */
import { type Palette, parseColour } from "../tensors/colour";
import { recall, remember } from "./guide";
import { computed, signal } from "./signals";

export type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", (event) => (systemDark.value = event.matches));

function remembered(): Theme | null {
  const value = recall("theme");
  return value === "light" || value === "dark" ? value : null;
}

const chosen = signal<Theme | null>(remembered());
export const theme = computed([chosen, systemDark], (): Theme => chosen.value ?? (systemDark.value ? "dark" : "light"));

/** Shows a theme, without remembering it. */
export function setTheme(next: Theme) {
  document.documentElement.dataset.theme = next; // before `palette` reads the stylesheet
  chosen.value = next;
}

export function toggleTheme() {
  const next = theme.value === "dark" ? "light" : "dark";
  setTheme(next);
  remember("theme", next);
}

export function initTheme() {
  if (chosen.value) document.documentElement.dataset.theme = chosen.value;
}

/** The colours of the current theme. */
export const palette = computed([theme], (): Palette => {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => parseColour(style.getPropertyValue(`--${name}`));
  return {
    paper: get("paper"), ink: get("ink"), faint: get("faint"), accent: get("accent"),
    positive: get("positive"), negative: get("negative"), strong: get("strong"),
  };
});
