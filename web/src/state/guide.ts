/** The help, the tour and "Share", which `app.tsx` loads when one is opened; and what the browser remembers for the page. */
import { signal } from "./signals";

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
