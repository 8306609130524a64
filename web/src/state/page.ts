/**
 * The page's state as signals, and the functions that change it. The address is the source of truth: `go` and
 * `setParams` write it, and everything else is derived from it.
 */
import { type ModelFile, ModelSource } from "../engine/source";
import { differenceOf, FileSource, LiveSource, server, type Source, type Work } from "../sources/source";
import { keptEdits, toggled } from "../trace/edits";
import { gradientOf, isGradient, nodeOf, table } from "../trace/steps";
import {
  type FieldKind, type Manifest, REQUEST_FIELDS, type RunInfo, type SavedPageData, SETTING_FIELDS, type TraceRequest,
} from "../types";
import { recall, remember } from "./settings";
import { computed, effect, type ErrorMessage, Loader, type Signal, signal, toErrorMessage } from "./signals";

export const SCREENS = ["flow", "step", "attention", "decode", "why", "compare", "learn", "training"] as const;
export type Screen = (typeof SCREENS)[number];

interface Route {
  screen: Screen;
  params: Record<string, string>;
}

function parseHash(hash: string): Route {
  const match = /^#?\/?([a-z]*)(?:\?(.*))?$/s.exec(hash);
  const name = match?.[1] as Screen;
  const params: Record<string, string> = {};
  for (const [key, value] of new URLSearchParams(match?.[2] ?? "")) params[key] = value;
  return { screen: SCREENS.includes(name) ? name : "flow", params };
}

function formatHash({ screen, params }: Route): string {
  const query = new URLSearchParams(Object.entries(params)).toString();
  return `#/${screen}${query ? `?${query}` : ""}`;
}

/** A field of a request as text in the address, and back; null where the text is none. */
const TO_TEXT: Record<FieldKind, (value: any) => string> = {
  text: String, number: String, flag: (on) => (on ? "1" : "0"), numbers: (all: number[]) => all.join("."), words: (all: string[]) => all.join(" "),
};
const FROM_TEXT: Record<FieldKind, (text: string) => unknown> = {
  text: String,
  number: (text) => (Number.isFinite(Number(text)) ? Number(text) : null),
  flag: (text) => text === "1",
  numbers: (text) => text.split(".").map(Number).filter(Number.isInteger),
  words: (text) => text.split(" ").filter(Boolean),
};

/** Whether a value is that of an absent field. */
const isAbsent = (value: unknown) => value == null || value === 0 || (Array.isArray(value) && !value.length);

type Fields = Partial<Record<FieldKind, string[]>>;
const listed = (fields: Fields) => Object.entries(fields).flatMap(([kind, names]) => names.map((name) => [name, kind as FieldKind] as const));

/** The trace request in the address, whose fields and settings of decoding are side by side: `prefix` is "" for the first trace, "o." for the second. */
export function requestFromParams(params: Record<string, string>, prefix = ""): TraceRequest | null {
  const read = (fields: Fields, isNone: (value: unknown) => boolean) => listed(fields).flatMap(([name, kind]) => {
    const text = params[prefix + name], value = text === undefined ? null : FROM_TEXT[kind](text);
    return isNone(value) ? [] : [[name, value]];
  });
  const decode = read(SETTING_FIELDS, (value) => value === null);
  const request = Object.fromEntries([...read(REQUEST_FIELDS, isAbsent), ...(decode.length ? [["decode", Object.fromEntries(decode)]] : [])]);
  return params[`${prefix}text`] === undefined ? null : { text: "", ...request };
}

/** The inverse: the parameters to set, or with null to remove. */
export function paramsFromRequest(request: TraceRequest | null, prefix = ""): Record<string, string | null> {
  const written = (fields: Fields, values: object | undefined, isNone: (value: unknown) => boolean) => listed(fields).map(([name, kind]) => {
    const value: unknown = values?.[name as never];
    return [prefix + name, isNone(value) ? null : TO_TEXT[kind](value)];
  });
  return Object.fromEntries([...written(REQUEST_FIELDS, request ?? undefined, isAbsent), ...written(SETTING_FIELDS, request?.decode, (value) => value == null)]);
}

/** Whether this is the script of a saved page, which holds the data, or of a served one (`build.mjs`). */
declare const SAVED: boolean;
function saved(): Source {
  const data = JSON.parse(document.getElementById("glassformer-data")!.textContent!) as SavedPageData | ModelFile;
  return Array.isArray(data) ? new ModelSource(data) : new FileSource(data);
}
export const source: Source = SAVED ? saved() : new LiveSource();
/** Long work that the page does itself; null: none. */
export const work = signal<Work | null>(null);
source.onWork = (now) => (work.value = now);
/** The address as a route; a saved page without one begins where it was saved. The token of a printed address is kept by the browser, for other tabs. */
function located(): Route {
  const { screen, params: { access, ...params } } = parseHash(SAVED ? location.hash || source.view : location.hash);
  if (!SAVED) server.token = access ?? (server.token || (recall("token") ?? ""));
  if (!SAVED && access) {
    remember("token", access);
    history.replaceState(null, "", formatHash({ screen, params }));
  }
  return { screen, params };
}
export const route = signal<Route>(located());
const run = new Loader<RunInfo>();
const first = new Loader<Manifest>();
const second = new Loader<Manifest>();
const third = new Loader<Manifest>();
const loaders = [run, first, second, third];
export const runFacts = run.result;
/** The requested texts; their traces may be pending. */
export const text = signal("");
export const otherText = signal<string | undefined>(undefined);
/** The trace without edits, the same text with edits, and the second trace of Compare. */
export const base = first.result;
export const other = second.result;
/** Whether edits can be made: not in a saved page, nor of a text for which they are refused. */
export const editable = computed([base], () => source.live && !base.value?.refused.edits);
/** The edits in the address, or of a saved page. */
export const edits = computed([route, runFacts], () => requestOf(route.value).edits ?? []);
/** How many steps of learning are taken before the pass. */
export const learnSteps = computed([route, runFacts], () => requestOf(route.value).learn_steps ?? 0);
/** The trace with the edits of the address, or after its steps of learning; null while it is computed, so that an earlier answer is never shown as new. */
export const edited = computed([base, third.result, edits, learnSteps], () => {
  const [before, after] = [base.value, third.result.value];
  const same = before && after && JSON.stringify(unchanged(after.request)) === JSON.stringify(before.request);
  return same && (after.request.edits ?? []).join(" ") === edits.value.join(" ") && (after.request.learn_steps ?? 0) === learnSteps.value ? after : null;
});
const changes = () => edits.value.length > 0 || learnSteps.value > 0;
export const SHOWN = ["before", "after", "difference"] as const;
export type Shown = (typeof SHOWN)[number];
/** Whether the view computes from the model without edits. */
export const ignoresEdits = computed([route], () => {
  const { screen, params } = route.value;
  return (screen === "why" && params.why !== "checkpoints") || screen === "compare";
});
/** Which trace the pictures show: without edits, with edits, or their difference. */
export const shown = computed([route, edits, learnSteps], (): Shown => {
  const { screen, params } = route.value;
  if (!changes() || ignoresEdits.value || screen === "why") return "before";
  return SHOWN.find((one) => one === params.show) ?? "after";
});
const difference = computed([base, edited], () => edited.value && base.value && differenceOf(edited.value, base.value));
/** The trace shown. */
export const manifest = computed([base, edited, difference, shown], () => {
  const chosen = { before: base.value, after: edited.value, difference: difference.value }[shown.value];
  return chosen ?? base.value;
});
/** Whether Flow and Step show gradients, or the values that they are of. */
export const gradients = computed([route, manifest], () => {
  const { screen, params: { node, numbers } } = route.value;
  return manifest.value?.learning != null && (screen === "step" && node ? isGradient({ id: node }) : numbers === "gradients");
});
/** Whether the page is inside another document, with `frame=step` in the address: one step alone, without header, form and list; or with `frame=learn` what was learned. */
export const framed = computed([route], () => "frame" in route.value.params);
/** Shows gradients or values, on Step of the same step. */
export function showGradients(on: boolean) {
  const [trace, { node }] = [manifest.value, route.value.params];
  if (!trace?.learning) return;
  const of = node && gradientOf({ id: node });
  const user = trace.nodes.find(({ id, params }) => id === of || Object.values(params).includes(of!))?.id;
  const partner = on ? nodeOf(trace, `${of}.grad`)?.id : user;
  setParams({ numbers: on ? "gradients" : null, node: partner ?? null, ...(user === of ? {} : { cell: null }) });
}
/** The texts that the screen Training asks each snapshot about; null: not known yet. */
export const probeTexts = signal<string[] | null>(null);
/** Description of the pending request; null: none. */
export const busy = computed(loaders.map((loader) => loader.busy), () => loaders.map((loader) => loader.busy.value).find(Boolean) ?? null);
const otherProblem = signal<ErrorMessage | null>(null);
/** Why the last request was refused, until the next. */
const refusal = signal<ErrorMessage | null>(null);
const problemSignals: Signal<ErrorMessage | null>[] = [...loaders.map((loader) => loader.problem), refusal, otherProblem];
/** All error messages; each can be dismissed. */
export const problems = computed(problemSignals, () => problemSignals.filter((one) => one.value));
const whole = (text: string | undefined) => (text !== undefined && /^\d+$/.test(text) ? Number(text) : null);

/** From `node`, `head` and `cell=row,col` in the address. */
export const selection = computed([route], (): { node: string | null; head: number; row: number | null; col: number | null } => {
  const { node, head, cell } = route.value.params;
  const [row, col] = (cell ?? "").split(",");
  return { node: node ?? null, head: whole(head) ?? 0, row: whole(row), col: whole(col) };
});

export type Patch = Record<string, string | number | null>;

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

const TRACE_PARAMS = ["cell", "token", "position", "class", "foil", "erased", "unfold", "numbers"];

/** The run's first request, once the page has left the address that names none and so opens with it. */
let opened: TraceRequest | undefined;

/** The request that is about to be left; its edits may be those that the page opened with. */
function leave(): TraceRequest {
  const now = requestOf(route.value);
  if (now === runFacts.value?.start?.[0]) opened = now;
  return now;
}

/**
 * Traces another text, or the same with other settings. Edits stay, except those that the page opened with, which end with
 * their text. Parameters of the old trace are removed.
 */
export function trace(request: TraceRequest) {
  const dropped = Object.fromEntries(TRACE_PARAMS.map((name) => [name, null]));
  const { text, other_text } = leave();
  const kept = keptEdits(edits.value, text, request.text, opened);
  const toParams = kept.length < edits.value.length ? paramsOfEdits : paramsFromRequest;
  setParams({ ...dropped, ...toParams({ edits: kept, other_text, ...request }) }, { push: true });
}

/** Sets the edits, with a new history entry, so that Back undoes. */
export function setEdits(next: readonly string[], otherText = requestOf(route.value).other_text) {
  setParams(paramsOfEdits({ ...leave(), edits: [...next], other_text: otherText }), { push: true });
}

/** The parameters of a request whose edits may be none. */
const paramsOfEdits = (request: TraceRequest): Patch =>
  (request.edits?.length ? paramsFromRequest(request) : { ...paramsFromRequest({ ...request, other_text: undefined }), show: null });

/** Sets what is learned, from the text of the trace; null: nothing. With a new history entry, so that Back undoes. */
export function learn(how: Pick<TraceRequest, "answer" | "learn_steps" | "lr" | "optimizer"> | null) {
  const { answer: _, learn_steps: __, lr: ___, optimizer: ____, ...rest } = requestOf(route.value);
  setParams({ ...(how ? {} : { numbers: null, show: null }), ...paramsFromRequest({ ...rest, ...how }) }, { push: true });
}

/** Sets the second trace, for Compare; null removes it. */
export const traceOther = (request: TraceRequest | null) => setParams(paramsFromRequest(request, "o."), { push: true });

/** Adds an edit, or removes it if it is there. */
export const toggleEdit = (edit: string) => setEdits(toggled(edits.value, edit));

/** Removes the last edit. */
export function undoEdit() {
  if (edits.value.length) setEdits(edits.value.slice(0, -1));
}

export function reportError(error: unknown) {
  otherProblem.value = toErrorMessage(error);
}

/** Loads the run, then keeps the traces in sync with the address. */
export async function start() {
  for (const change of ["hashchange", "popstate"]) addEventListener(change, () => (route.value = located()));
  await run.load("Opening the run", () => source.ask("run"));
  if (!runFacts.value) return;
  table.rows = runFacts.value.operations;
  const json = (make: () => TraceRequest | null) => computed([route], () => JSON.stringify(make()));
  const [baseRequest, otherRequest, editedRequest] = [
    json(() => unchanged(requestOf(route.value))),
    json(() => {
      const second = requestFromParams(route.value.params, "o.") ?? secondRequest();
      const label = requestOf(route.value).label;
      return second && label && source.live ? { ...second, label } : second;
    }),
    json(() => (changes() ? requestOf(route.value) : null)),
  ];
  /** The request and the parameters of the address that are shown, and the second request; null before the first. */
  let accepted: { request: string; params: Route["params"] } | null = null;
  let acceptedOther: TraceRequest | null = null;
  let acceptedEdits: string[] = [];
  let base: Promise<unknown> = Promise.resolve(null);
  let { screen: shown } = route.value;
  effect(route, ({ params, screen }) => {
    if (accepted?.request === baseRequest.value) accepted.params = params;
    if (screen !== shown && work.value?.ofScreen) work.value.stop();
    shown = screen;
  });
  effect(baseRequest, (request) => {
    const asked = JSON.parse(request) as TraceRequest;
    text.value = asked.text;
    refusal.value = null;
    base = first.load("Tracing", () => source.trace(asked)).then((error) => {
      if (request !== baseRequest.value) return null;
      if (!error) accepted = { request, params: route.value.params };
      else if (accepted) takeBack(accepted.params, toErrorMessage(error), () => (text.value = asked.text));
      return error;
    });
  });
  effect(otherRequest, async (request) => {
    const asked = JSON.parse(request) as TraceRequest | null;
    otherText.value = asked?.text;
    refusal.value = null;
    // Of several labels, both texts are looked at for the same one.
    const error = await second.load("Tracing the second", asked && (async () => {
      const labels = (await base) ? null : first.result.value?.labels;
      return source.trace(labels && source.live ? { ...asked, label: labels.each[labels.shown]!.name } : asked);
    }));
    if (request !== otherRequest.value) return;
    if (!error) acceptedOther = asked;
    else takeBack(withPatch(route.value.params, paramsFromRequest(acceptedOther, "o.")), toErrorMessage(error), () => (otherText.value = asked?.text));
  });
  effect(editedRequest, async (request) => {
    const asked = JSON.parse(request) as TraceRequest | null;
    refusal.value = null;
    const error = await third.load(asked?.learn_steps ? "Learning" : "Tracing with edits", asked && (() => source.trace(asked)));
    // Where the text itself is refused the whole address is taken back.
    if (!error) acceptedEdits = asked?.edits ?? [];
    if (!asked || !error || await base || request !== editedRequest.value) return;
    if (asked.learn_steps) return takeBack(withPatch(route.value.params, { learn_steps: null }), toErrorMessage(error));
    const kept = acceptedEdits.join(" ") === asked.edits?.join(" ") ? [] : acceptedEdits; // those of another text may be refused here
    takeBack(withPatch(route.value.params, paramsOfEdits({ ...asked, edits: kept })), toErrorMessage(error));
  });
}

/** Writes an address that can be shown over one that was refused, and says why; what was typed stays in its field. */
function takeBack(params: Route["params"], why: ErrorMessage, keepTyped = () => {}) {
  write({ screen: route.value.screen, params }, true);
  keepTyped();
  refusal.value = why;
}

/** The request without edits, and before any step of learning. */
const unchanged = ({ edits: _, other_text: __, learn_steps: ___, ...request }: TraceRequest): TraceRequest => request;

/** Whether a trace is of a pass with edits, or after steps of learning. */
export const isChanged = ({ edited, learning }: Manifest) => Boolean(edited ?? learning?.learned);

/** The request in the address, or the first one of the run or the saved page. */
function requestOf({ params }: Route): TraceRequest {
  const standard = source.stored.find(isChanged)?.request ?? source.stored[0]?.request
    ?? runFacts.value?.start?.[0] ?? { text: runFacts.value?.examples[0] ?? "" };
  return requestFromParams(params.edits ? { text: standard.text, ...params } : params) ?? standard;
}

function secondRequest(): TraceRequest | null {
  return source.stored.slice(1).find((one) => !isChanged(one))?.request ?? runFacts.value?.start?.[1] ?? null;
}
