/**
 * The page's state as signals, and the functions that change it. The address is the source of truth: `go` and
 * `setParams` write it, and everything else is derived from it.
 */
import { FileSource } from "../sources/file";
import { LiveSource } from "../sources/live";
import type { Source } from "../sources/source";
import type { Manifest, SavedPageData, RunInfo, StreamName, TraceRequest } from "../types";
import { formatHash, paramsFromRequest, parseHash, requestFromParams, type Route, type Screen } from "./address";
import { computed, effect, Loader, type Signal, signal, toErrorMessage, type ErrorMessage } from "./signals";

/** The data inlined in an exported page, or null on a served page. */
const inlined = document.getElementById("glassformer-data")?.textContent;
export const source: Source = inlined ? new FileSource(JSON.parse(inlined) as SavedPageData) : new LiveSource();
export const route = signal<Route>(parseHash(location.hash));
const run = new Loader<RunInfo>();
const first = new Loader<Manifest>();
const second = new Loader<Manifest>();
const loaders = [run, first, second];
export const runFacts = run.result;
/** The requested texts; their traces may be pending. */
export const text = signal("");
export const otherText = signal<string | undefined>(undefined);
/** The trace shown, and the second one of Compare. */
export const manifest = first.result;
export const other = second.result;
/** Description of the pending request; null: none. */
export const busy = computed(loaders.map((loader) => loader.busy), () => loaders.map((loader) => loader.busy.value).find(Boolean) ?? null);
const otherProblem = signal<ErrorMessage | null>(null);
const problemSignals: Signal<ErrorMessage | null>[] = [...loaders.map((loader) => loader.problem), otherProblem];
/** All error messages; each can be dismissed. */
export const problems = computed(problemSignals, () => problemSignals.filter((one) => one.value));
/** The token under the pointer, highlighted in all views. */
export const hoveredToken = signal<{ stream: StreamName; index: number } | null>(null);

export interface Selection {
  node: string | null;
  head: number;
  row: number | null;
  col: number | null;
}

const whole = (text: string | undefined) => (text !== undefined && /^\d+$/.test(text) ? Number(text) : null);

/** From `node`, `head` and `cell=row,col` in the address. */
export const selection = computed([route], (): Selection => {
  const { node, head, cell } = route.value.params;
  const [row, col] = (cell ?? "").split(",");
  return { node: node ?? null, head: whole(head) ?? 0, row: whole(row), col: whole(col) };
});

type Patch = Record<string, string | number | null>;

function withPatch(params: Record<string, string>, patch: Patch): Record<string, string> {
  const out = { ...params };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else out[key] = String(value);
  }
  return out;
}

function write(next: Route, replace: boolean) {
  const hash = formatHash(next);
  if (hash === formatHash(route.value)) return;
  route.value = next;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}

/** Opens a screen, with a new history entry. */
export function go(screen: Screen, patch: Patch = {}) {
  write({ screen, params: withPatch(route.value.params, patch) }, false);
}

/** Changes parameters of the address; null removes one. Replaces the history entry unless `push`. */
export function setParams(patch: Patch, { push = false } = {}) {
  write({ ...route.value, params: withPatch(route.value.params, patch) }, !push);
}

/** The address that `go` writes, for links. */
export function hrefTo(screen: Screen, patch: Patch = {}): string {
  return formatHash({ screen, params: withPatch(route.value.params, patch) });
}

const TRACE_PARAMS = ["cell", "token", "position", "beam", "class", "foil", "erased"];

/** Traces another text, or the same with other settings. Parameters that refer to the old trace are removed. */
export function trace(request: TraceRequest) {
  const dropped = Object.fromEntries(TRACE_PARAMS.map((name) => [name, null]));
  write({ ...route.value, params: withPatch(route.value.params, { ...dropped, ...paramsFromRequest(request) }) }, false);
}

/** Sets the second trace, for Compare; null removes it. */
export function traceOther(request: TraceRequest | null) {
  write({ ...route.value, params: withPatch(route.value.params, paramsFromRequest(request, "o.")) }, false);
}

export function reportError(error: unknown) {
  otherProblem.value = toErrorMessage(error);
}

/** Loads the run, then keeps the traces in sync with the address. */
export async function start() {
  addEventListener("hashchange", () => (route.value = parseHash(location.hash)));
  addEventListener("popstate", () => (route.value = parseHash(location.hash)));
  await run.load("Opening the run", () => source.run());
  if (!runFacts.value) return;
  const wanted = (prefix: string, otherwise: () => TraceRequest | null) => computed([route], () => JSON.stringify(requestFromParams(route.value.params, prefix) ?? otherwise()));
  effect(wanted("", firstRequest), (request) => {
    const asked = JSON.parse(request) as TraceRequest;
    text.value = asked.text;
    void first.load("Tracing", () => source.trace(asked));
  });
  effect(wanted("o.", secondRequest), (request) => {
    const asked = JSON.parse(request) as TraceRequest | null;
    otherText.value = asked?.text;
    void second.load("Tracing the second", asked && (() => source.trace(asked)));
  });
}

function firstRequest(): TraceRequest {
  return source.stored[0]?.request ?? runFacts.value?.start?.[0] ?? { text: runFacts.value?.examples[0] ?? "" };
}

function secondRequest(): TraceRequest | null {
  return source.stored[1]?.request ?? runFacts.value?.start?.[1] ?? null;
}
