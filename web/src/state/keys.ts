/**
 * Keyboard shortcuts for all screens: 1–8 open a screen, [ ] change the layer, , . the head, w goes to the field for
 * edits, z removes the last edit, v shows before, after or the difference, g gradients, ? opens the help. A
 * screen handles its own keys (Space, Enter, arrows). Keys are ignored while typing.
 */
import { useEffect, useLayoutEffect } from "preact/hooks";
import { nodeOf } from "../trace/steps";
import { framed, go, gradients, manifest, route, SCREENS, setParams, showGradients, shown, SHOWN, undoEdit } from "./page";
import { guide } from "./settings";

/** Whether a key is typed into a field or has a modifier, and so is no shortcut. */
function isTyping(event: KeyboardEvent): boolean {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return true;
  return at instanceof HTMLElement && (at.isContentEditable || at.matches("textarea, select, input:not([type=range])"));
}

type Listener = (event: KeyboardEvent) => boolean;
const listeners = new Set<Listener>();

/** Shortcuts of a screen: `handler` returns true if it handled the key. */
export function useScreenKeys(handler: Listener) {
  useLayoutEffect(() => {
    listeners.add(handler);
    return () => void listeners.delete(handler);
  });
}

/** Changes the head in the address. */
function changeHead(by: number) {
  const head = Number(route.value.params.head ?? 0) + by;
  if (head >= 0 && head < (manifest.value?.model.n_heads ?? 1)) setParams({ head });
}

function changeLayer(by: number) {
  const trace = manifest.value;
  if (!trace) return;
  const { node: id, layer } = route.value.params;
  const match = /^(encoder|decoder)\.(\d+)\.(.*)$/.exec(id ?? "");
  const now = Number(layer ?? match?.[2] ?? 0) + by;
  const layers = Math.max(trace.model.n_layers, trace.model.n_decoder_layers);
  if (now < 0 || now >= layers) return;
  const moved = match ? `${match[1]}.${now}.${match[3]}` : null;
  const exists = moved !== null && Boolean(nodeOf(trace, moved));
  setParams(exists ? { layer: now, node: moved } : { layer: now });
}

function openEditField() {
  const field = document.getElementById("edit");
  field?.closest("details")?.setAttribute("open", "");
  field?.focus();
}

const KEYS: Record<string, () => void> = {
  "[": () => changeLayer(-1), "]": () => changeLayer(1), ",": () => changeHead(-1), ".": () => changeHead(1),
  z: undoEdit, w: openEditField, g: () => showGradients(!gradients.value), "?": () => (guide.value = "help"),
  v: () => setParams({ show: SHOWN[(SHOWN.indexOf(shown.value) + 1) % SHOWN.length] ?? null }),
};

function onKey(event: KeyboardEvent) {
  if (isTyping(event) || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  for (const listener of listeners) {
    if (listener(event)) return event.preventDefault();
  }
  const screen = SCREENS[Number(event.key) - 1];
  const act = screen && !framed.value ? () => go(screen) : KEYS[event.key];
  if (!act) return;
  act();
  event.preventDefault();
}

export function useKeys() {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
