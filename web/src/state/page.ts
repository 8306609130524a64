/**
 * The page's state as signals, and the few verbs that change it. The address is the truth: `go` and
 * `setParams` write it, and everything else (which text is traced, what is shown) follows from it.
 */
import { FileSource } from "../sources/file";
import { LiveSource } from "../sources/live";
import type { Source } from "../sources/source";
import type { Manifest, ReportData, RunInfo, StreamName, TraceRequest } from "../types";
import { formatHash, paramsOf, parseHash, requestOf, type Route, type Screen } from "./address";
import { derived, follow, Place, type Signal, signal, tell, type Told } from "./signals";

/** The data inlined in an exported page if there is some, the server otherwise. */
const inlined = document.getElementById("glassformer-data")?.textContent;
export const source: Source = inlined ? new FileSource(JSON.parse(inlined) as ReportData) : new LiveSource();
export const route = signal<Route>(parseHash(location.hash));
const run = new Place<RunInfo>();
const first = new Place<Manifest>();
const second = new Place<Manifest>();
const places = [run, first, second];
export const runFacts = run.value;
/** The texts that were asked for; their traces may take a while. */
export const text = signal("");
export const otherText = signal<string | undefined>(undefined);
/** The trace shown, and the second one of Compare. */
export const manifest = first.value;
export const other = second.value;
/** What the page waits for, in words; null: nothing. */
export const busy = derived(places.map((place) => place.busy), () => places.map((place) => place.busy.now).find(Boolean) ?? null);
const elsewhere = signal<Told | null>(null);
const problemsOf: Signal<Told | null>[] = [...places.map((place) => place.problem), elsewhere];
/** What went wrong in each place, and elsewhere: each can be taken away. */
export const problems = derived(problemsOf, () => problemsOf.filter((one) => one.now));
/** A token pointed at anywhere lights up everywhere. */
export const hoveredToken = signal<{ stream: StreamName; index: number } | null>(null);

export interface Selection {
  node: string | null;
  head: number;
  row: number | null;
  col: number | null;
}

const whole = (text: string | undefined) => (text !== undefined && /^\d+$/.test(text) ? Number(text) : null);

/** From `node`, `head` and `cell=row,col` in the address. */
export const selection = derived([route], (): Selection => {
  const { node, head, cell } = route.now.params;
  const [row, col] = (cell ?? "").split(",");
  return { node: node ?? null, head: whole(head) ?? 0, row: whole(row), col: whole(col) };
});

type Patch = Record<string, string | number | null>;

function patched(params: Record<string, string>, patch: Patch): Record<string, string> {
  const out = { ...params };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else out[key] = String(value);
  }
  return out;
}

function write(next: Route, replace: boolean) {
  const hash = formatHash(next);
  if (hash === formatHash(route.now)) return;
  route.now = next;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}

/** Open a screen: a new entry for the Back button. */
export function go(screen: Screen, patch: Patch = {}) {
  write({ screen, params: patched(route.now.params, patch) }, false);
}

/** Change what the screen shows; null removes. Replaces the history entry unless told to push. */
export function setParams(patch: Patch, { push = false } = {}) {
  write({ ...route.now, params: patched(route.now.params, patch) }, !push);
}

/** The address `go` would write, for links. */
export function hrefTo(screen: Screen, patch: Patch = {}): string {
  return formatHash({ screen, params: patched(route.now.params, patch) });
}

const INTO_THE_TRACE = ["cell", "token", "position", "beam", "class", "foil", "erased"];

/** Trace another text (or the same with other settings). What pointed into the old trace is dropped. */
export function trace(request: TraceRequest) {
  const dropped = Object.fromEntries(INTO_THE_TRACE.map((name) => [name, null]));
  write({ ...route.now, params: patched(route.now.params, { ...dropped, ...paramsOf(request) }) }, false);
}

/** The second trace, for Compare; null removes it. */
export function traceOther(request: TraceRequest | null) {
  write({ ...route.now, params: patched(route.now.params, paramsOf(request, "o.")) }, false);
}

export function report(error: unknown) {
  elsewhere.now = tell(error);
}

/** Learn what run this is, then keep the traces in step with the address. */
export async function start() {
  addEventListener("hashchange", () => (route.now = parseHash(location.hash)));
  addEventListener("popstate", () => (route.now = parseHash(location.hash)));
  await run.load("Opening the run", () => source.run());
  if (!runFacts.now) return;
  const wanted = (prefix: string, otherwise: () => TraceRequest | null) => derived([route], () => JSON.stringify(requestOf(route.now.params, prefix) ?? otherwise()));
  follow(wanted("", firstRequest), (request) => {
    const asked = JSON.parse(request) as TraceRequest;
    text.now = asked.text;
    void first.load("Tracing", () => source.trace(asked));
  });
  follow(wanted("o.", secondRequest), (request) => {
    const asked = JSON.parse(request) as TraceRequest | null;
    otherText.now = asked?.text;
    void second.load("Tracing the second", asked && (() => source.trace(asked)));
  });
}

function firstRequest(): TraceRequest {
  return source.stored[0]?.request ?? runFacts.now?.start?.[0] ?? { text: runFacts.now?.examples[0] ?? "" };
}

function secondRequest(): TraceRequest | null {
  return source.stored[1]?.request ?? runFacts.now?.start?.[1] ?? null;
}
