/**
 * The page's state as signals, and the few verbs that change it. The address is the truth: `go` and
 * `setParams` write it, and everything else (which text is traced, what is shown) follows from it.
 */
import { startOf } from "./stepData";
import { useEffect, useState } from "preact/hooks";
import { formatHash, paramsOf, parseHash, requestOf, type Route, type Screen } from "./hash";
import { Place, tell, type Told } from "./loading";
import { computed, follow, local, signal } from "./signals";
import { openSource, type TensorValue } from "./source";
import type { Manifest, RunFacts, Stream, StreamName, TraceNode, TraceRequest } from "./types";

export const source = openSource();
export const route = signal<Route>(parseHash(location.hash));
const run = new Place<RunFacts>();
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
export const busy = computed(() => places.map((place) => place.busy.value).find(Boolean) ?? null, (words) => words);
/** What went wrong in each place, and elsewhere. */
export const problems = [...places.map((place) => place.problem), signal<Told | null>(null)];
/** A token pointed at anywhere lights up everywhere. */
export const hoveredToken = local<{ stream: StreamName; index: number } | null>(null);

export interface Selection {
  node: string | null;
  head: number;
  row: number | null;
  col: number | null;
}

const whole = (text: string | undefined) => (text !== undefined && /^\d+$/.test(text) ? Number(text) : null);

/** From `node`, `head` and `cell=row,col` in the address. */
export const selection = computed(() => route.value, ({ params }): Selection => {
  const { node, head, cell } = params;
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
  if (hash === formatHash(route.value)) return;
  route.value = next;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}

/** Open a screen: a new entry for the Back button. */
export function go(screen: Screen, patch: Patch = {}) {
  write({ screen, params: patched(route.value.params, patch) }, false);
}

/** Change what the screen shows; null removes. Replaces the history entry unless told to push. */
export function setParams(patch: Patch, { push = false } = {}) {
  write({ ...route.value, params: patched(route.value.params, patch) }, !push);
}

/** The address `go` would write, for links. */
export function hrefTo(screen: Screen, patch: Patch = {}): string {
  return formatHash({ screen, params: patched(route.value.params, patch) });
}

const INTO_THE_TRACE = ["cell", "token", "position", "beam", "class", "foil", "erased"];

/** Trace another text (or the same with other settings). What pointed into the old trace is dropped. */
export function trace(request: TraceRequest) {
  const dropped = Object.fromEntries(INTO_THE_TRACE.map((name) => [name, null]));
  write({ ...route.value, params: patched(route.value.params, { ...dropped, ...paramsOf(request) }) }, false);
}

/** The second trace, for Compare; null removes it. */
export function traceOther(request: TraceRequest | null) {
  write({ ...route.value, params: patched(route.value.params, paramsOf(request, "o.")) }, false);
}

export function report(error: unknown) {
  problems.at(-1)!.value = tell(error);
}

export const nodes = computed(() => manifest.value, (trace) => new Map(trace?.nodes.map((node) => [node.id, node])));
export const node = (id: string): TraceNode | undefined => nodes.value.get(id);
export const stream = (name: StreamName, of: Manifest | null = manifest.value): Stream | undefined =>
  of?.streams.find((one) => one.name === name);

/** The tokens along one axis, as labels; undefined where the axis has none. In a window only its own. */
export function axisLabels(axis: { name: string; size: number; stream?: StreamName }, of = manifest.value) {
  if (!axis.stream || (axis.name !== "token" && axis.name !== "key")) return undefined;
  const pieces = stream(axis.stream, of)?.pieces ?? [];
  const start = of ? startOf(of, axis.stream) : 0;
  return pieces.slice(start, start + axis.size);
}

export interface Loaded<T = TensorValue> {
  value: T | null;
  error: string | null;
}

/** What `ask` answers, asked once for each `key`: null until it is here. `key` null: nothing wanted. */
export function useAnswer<T>(key: string | null, ask: () => Promise<T>, delay = 0): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { key: string }>();
  useEffect(() => {
    if (key === null) return;
    let alive = true;
    const told = (value: T | null, error: string | null) => alive && setState({ key, value, error });
    const timer = setTimeout(() => ask().then((value) => told(value, null), (error: Error) => told(null, error.message)), delay);
    return () => {
      alive = false;
      clearTimeout(timer);
    };
  }, [key]);
  return state && state.key === key ? state : { value: null, error: null };
}

/** A node's or parameter's numbers: null until they are here. `id` null: nothing wanted. */
export function useTensor(id: string | null, slice = "", of: Manifest | null = manifest.value): Loaded {
  const traceId = of?.id ?? "";
  const key = `${traceId}/${id}?${slice}`;
  const here = id && of ? peek(traceId, id, slice) : null;
  const asked = useAnswer(id && of && !here ? key : null, () => source.tensor(traceId, id ?? "", slice));
  return here ? { value: here, error: null } : asked;
}

function peek(traceId: string, id: string, slice: string) {
  try {
    return source.peek(traceId, id, slice);
  } catch {
    return null; // told by source.tensor, which fails the same way
  }
}

/** Learn what run this is, then keep the traces in step with the address. */
export async function start() {
  addEventListener("hashchange", () => (route.value = parseHash(location.hash)));
  addEventListener("popstate", () => (route.value = parseHash(location.hash)));
  await run.load("Opening the run", () => source.run());
  if (!runFacts.value) return;
  const wanted = (prefix: string, otherwise: () => TraceRequest | null) => () => JSON.stringify(requestOf(route.value.params, prefix) ?? otherwise());
  follow(wanted("", firstRequest), (request) => {
    const asked = JSON.parse(request) as TraceRequest;
    text.value = asked.text;
    void first.load("Tracing", () => source.trace(asked));
  });
  follow(wanted("o.", secondRequest), (request) => {
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
