/**
 * Where the page's data come from: a server, or the data in a saved page. Tensors are kept; a trace with the id "t2~t1" is a
 * difference, after minus before, whose tensors are subtracted when they are read.
 */
import { decodeBase64, sliceTensor, type TensorValue, toTensor } from "../tensors/tensor";
import { isClassifier } from "../trace/generation";
import { nodeOf } from "../trace/steps";
import type {
  AttributeRequest, Attribution, ControlRequest, DecodeLog, Erased, Manifest, Prediction, ProbeAnswer, ProbeRequest, RunInfo, SavedPageData, Stream, Sweep, SweepRequest, TraceNode, TraceRequest, TrainingNow,
} from "../types";

/** A saved page as a file to download, and what it lacks, a sentence each. */
export interface SavedFile {
  page: string;
  dropped: string[];
}

/** What can be asked, by its path on the server. */
export interface Routes {
  run: () => RunInfo;
  attribute: (request: AttributeRequest) => Attribution;
  erase: (request: AttributeRequest) => Erased;
  /** Edits made in turn. */
  sweep: (request: SweepRequest) => Sweep;
  decode: (request: TraceRequest) => { decode: DecodeLog; answer: Manifest["answer"]; streams: Stream[] };
  /** The file of a saved page. */
  save: (what: { request: TraceRequest; other: TraceRequest | null; view: string; training?: string[] }) => SavedFile;
  /** The training so far, its steps after one of them. */
  training: (request: { after: number }) => TrainingNow;
  control: (request: ControlRequest) => unknown;
  /** Texts for the answers of snapshots, or why there are none, a sentence. */
  probes: () => { texts: string[]; missing: string | null };
  probe: (request: ProbeRequest) => ProbeAnswer;
}
export type Asked<K extends keyof Routes> = Parameters<Routes[K]>;
export type Answered<K extends keyof Routes> = Promise<ReturnType<Routes[K]>>;

/** An error for the reader, with a hint. */
export class Problem extends Error {
  constructor(message: string, readonly hint = "", readonly status = 0) {
    super(message);
  }
}

/** What is said where the server has ended. */
export const noServer = () => new Problem("The server does not respond", "check that `glassformer explain` is still running in its terminal");

/** The token of the server, from the address that the command printed. */
export const server = { token: "" };

/** What an optimizer keeps of a parameter is of the parameter's shape: "head.weight.exp_avg_sq_before". */
const parameterOf = (id: string) => id.replace(/\.(before|clipped_grad|(exp_avg|exp_avg_sq|momentum_buffer)(_before)?)$/, "");

/** The names of a node's or parameter's dimensions. */
const axesOf = (trace: Manifest | null | undefined, id: string): string[] =>
  ((trace && nodeOf(trace, id)) ?? trace?.params[parameterOf(id)])?.axes.map((axis) => axis.name) ?? [];

/** The least recently used tensors are dropped where all take more than `limit` bytes. */
export class TensorCache {
  private kept = new Map<string, TensorValue>();

  constructor(private limit = 256e6) {}

  private use(key: string): TensorValue | null {
    const hit = this.kept.get(key);
    if (!hit) return null;
    this.kept.delete(key); // a map is in insertion order: move to the end
    this.kept.set(key, hit);
    return hit;
  }

  /** `axes` are the names of the dimensions. Returns the same object until it is dropped. */
  get(trace: string, id: string, slice = "", axes: readonly string[] = []): TensorValue | null {
    const exact = this.use(`${trace}/${id}?${slice}`);
    if (exact || !slice || !axes.length) return exact;
    const whole = this.use(`${trace}/${id}?`);
    if (!whole) return null;
    return this.set(trace, id, slice, sliceTensor(whole, axes, slice));
  }

  /** A whole tensor replaces its slices. The newest one is kept even if it exceeds the limit. */
  set(trace: string, id: string, slice: string, value: TensorValue): TensorValue {
    const key = `${trace}/${id}?${slice}`;
    for (const old of this.kept.keys()) if (slice ? old === key : old.startsWith(key)) this.kept.delete(old);
    this.kept.set(key, value);
    const bytes = () => [...this.kept.values()].reduce((sum, { data }) => sum + data.byteLength, 0);
    for (const old of this.kept.keys()) {
      if (bytes() <= this.limit || old === key) break;
      this.kept.delete(old);
    }
    return value;
  }
}

/** Long work of a page with a model: the share that is done, the seconds that the rest takes, and what ends it. */
export interface Work {
  share: number;
  seconds: number;
  stop: () => void;
  /** Whether it is for one screen, and ends with that. */
  ofScreen: boolean;
}

export abstract class Source {
  /** Whether there may be curves and checkpoints of the training. */
  readonly hasTraining: boolean = true;
  /** Called while long work is done, and with null at its end. */
  onWork: (work: Work | null) => void = () => {};
  /** True with a server: other texts can be traced. */
  abstract readonly live: boolean;
  protected cache = new TensorCache();

  /** Of a saved page its traces, what it lacks to limit its size, a sentence each, and where it begins, an address. */
  constructor(readonly stored: readonly Manifest[] = [], readonly dropped: readonly string[] = [], readonly view = "") {}

  abstract ask<K extends keyof Routes>(what: K, ...request: Asked<K>): Answered<K>;
  abstract trace(request: TraceRequest): Promise<Manifest>;
  /** The tensor of one trace if it is here, and what fetches it. */
  protected abstract own(traceId: string, id: string, slice: string): TensorValue | null;
  protected abstract load(traceId: string, id: string, slice: string): Promise<TensorValue>;

  /** The tensor if it is here, else null. */
  peek(traceId: string, id: string, slice = ""): TensorValue | null {
    const [after = "", before] = traceId.split("~");
    if (before === undefined) return this.own(after, id, slice);
    const known = this.cache.get(traceId, id, slice);
    if (known) return known;
    const [a, b] = [this.own(after, id, slice), this.own(before, id, slice)];
    return a && b && this.cache.set(traceId, id, slice, subtract(a, b));
  }

  /** `slice`: "head:3;token:0-8" (see explain/record_store.py); an index drops its axis. */
  async tensor(traceId: string, id: string, slice = ""): Promise<TensorValue> {
    const here = this.peek(traceId, id, slice);
    if (here) return here;
    const [a, b] = await Promise.all(traceId.split("~").map((trace) => this.own(trace, id, slice) ?? this.load(trace, id, slice)));
    return b ? this.cache.set(traceId, id, slice, subtract(a!, b)) : a!;
  }
}

/** Maximum number of known manifests. */
const MAX_TRACES = 64;

/** A trace with its current id on the server, which keeps four traces and traces an older one again under a new id. */
interface Traced {
  request: TraceRequest;
  manifest: Manifest;
  currentId: string;
  renewing: Promise<string> | null;
}

/** Requests to the server. Traces that the server has dropped are traced again. */
export class LiveSource extends Source {
  readonly live = true;
  private pending = new Map<string, Promise<TensorValue>>();
  /** The last used first. */
  private traced: Traced[] = [];

  private find(is: (one: Traced) => boolean): Traced | undefined {
    const found = this.traced.find(is);
    if (found) this.traced = [found, ...this.traced.filter((one) => one !== found)];
    return found;
  }

  private async inTrace<T>(id: string, request: (id: string) => Promise<T>): Promise<T> {
    const known = this.find(({ manifest }) => manifest.id === id);
    const current = known?.currentId ?? id;
    try {
      return await request(current);
    } catch (error) {
      if (!known || !(error instanceof Problem) || error.status !== 404) throw error;
      if (known.currentId === current) {
        known.renewing ??= this.json<Manifest>("api/trace", known.request).then((renewed) => (known.currentId = renewed.id)).finally(() => (known.renewing = null));
        await known.renewing;
      }
      return request(known.currentId);
    }
  }

  private async fetch(path: string, body?: unknown): Promise<Response> {
    const headers = { "X-Glassformer-Token": server.token };
    const init = body === undefined ? { headers } : { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(path, init).catch(() => {
      throw noServer();
    });
    if (response.ok) return response;
    const failure = (await response.json().catch(() => null)) as { error: { message: string; hint: string } } | null;
    throw new Problem(failure?.error.message ?? `The server returned HTTP status ${response.status}`, failure?.error.hint, response.status);
  }

  private async json<T>(path: string, body?: unknown): Promise<T> {
    return (await this.fetch(path, body)).json() as Promise<T>;
  }

  ask<K extends keyof Routes>(what: K, ...[request]: Asked<K>): Answered<K> {
    const path = `api/${what}`;
    if (request && "after" in request) return this.json(`${path}?after=${request.after}`);
    const named = (["trace", "other"] as const).filter((name) => typeof request?.[name as never] === "string");
    const sent = (body: object | undefined, [name, ...rest]: readonly string[]): Answered<K> =>
      (name ? this.inTrace(request![name as never], (id) => sent({ ...body, [name]: id }, rest)) : this.json(path, body));
    return sent(request, named);
  }

  async trace(request: TraceRequest) {
    const key = JSON.stringify(request);
    const known = this.find((one) => JSON.stringify(one.request) === key);
    if (known) return known.manifest;
    const manifest = await this.json<Manifest>("api/trace", request);
    this.traced = [{ request, manifest, currentId: manifest.id, renewing: null }, ...this.traced].slice(0, MAX_TRACES);
    return manifest;
  }

  /** The trace to take a tensor from: what no edit changes, and parameters, are those of the trace without edits. */
  private owner(traceId: string, id: string): string {
    const edited = this.find(({ manifest }) => manifest.id === traceId)?.manifest;
    if (!edited?.edited || !(edited.edited.same.includes(id) || id in edited.params)) return traceId;
    const { edits: _, other_text: __, ...without } = edited.request;
    const key = JSON.stringify(without);
    return this.find(({ manifest }) => JSON.stringify(manifest.request) === key)?.manifest.id ?? traceId;
  }

  protected own(traceId: string, id: string, slice: string) {
    const owner = this.owner(traceId, id);
    const known = slice ? this.find(({ manifest }) => manifest.id === owner) : null;
    return this.cache.get(owner, id, slice, axesOf(known?.manifest, id));
  }

  protected async load(traceId: string, id: string, slice: string): Promise<TensorValue> {
    const owner = this.owner(traceId, id), key = `${owner}/${id}?${slice}`;
    if (slice) await this.pending.get(`${owner}/${id}?`)?.catch(() => null); // the whole tensor is being fetched
    const here = this.own(owner, id, slice);
    if (here) return here;
    const pending = this.pending.get(key) ?? this.received(owner, id, slice).finally(() => this.pending.delete(key));
    this.pending.set(key, pending);
    return pending;
  }

  private async received(traceId: string, id: string, slice: string): Promise<TensorValue> {
    const query = slice ? `?slice=${encodeURIComponent(slice)}&dtype=f32` : "?dtype=f32";
    const response = await this.inTrace(traceId, (trace) =>
      this.fetch(`api/trace/${encodeURIComponent(trace)}/t/${encodeURIComponent(id)}${query}`));
    const shape = (response.headers.get("X-Shape") ?? "").split(",").filter(Boolean).map(Number);
    return this.cache.set(traceId, id, slice, toTensor(response.headers.get("X-Dtype") ?? "f32", shape, await response.arrayBuffer()));
  }
}

/** JSON with the fields of objects in alphabetical order. */
const canonical = (value: unknown) =>
  JSON.stringify(value, (_, one: unknown) => (one && typeof one === "object" && !Array.isArray(one) ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))) : one));
const jsonEqual = (a: unknown, b: unknown) => canonical(a) === canonical(b);
const OFFLINE_HINT = "open the run with `glassformer explain` to compute it";
const notHeld = (what: string) => new Problem(`This saved page does not hold ${what}`, OFFLINE_HINT);

/** The traces, tensors and attributions in a saved page. */
export class FileSource extends Source {
  readonly live = false;
  private answers: Partial<{ [K in keyof Routes]: Routes[K] }> = {
    run: () => this.data.run,
    attribute: (request) => this.attribution(request),
    erase: (request) => this.erased(request),
    training: () => {
      if (!this.data.training) throw new Problem("This saved page holds no training", "to save one: glassformer watch RUN -o replay.html");
      return this.data.training.now;
    },
    probes: () => ({ texts: this.data.training!.texts, missing: null }),
    probe: ({ text, checkpoint }) => {
      const found = this.data.training!.answers.find((one) => one.text === text && one.checkpoint === checkpoint);
      if (!found) throw notHeld("this answer");
      return found;
    },
  };

  constructor(private readonly data: SavedPageData) {
    super(data.traces, data.dropped, data.view);
  }

  async ask<K extends keyof Routes>(what: K, ...request: Asked<K>): Answered<K> {
    const answer = this.answers[what] as ((...request: Asked<K>) => ReturnType<Routes[K]>) | undefined;
    if (!answer) throw new Problem("A saved page cannot run the model", OFFLINE_HINT);
    return answer(...request);
  }

  async trace(request: TraceRequest): Promise<Manifest> {
    const found = this.stored.find((trace) => jsonEqual(trace.request, request));
    if (!found) throw new Problem("This saved page does not hold the trace of this text with these settings and edits", OFFLINE_HINT, 400);
    return found;
  }

  protected own(traceId: string, id: string, slice: string): TensorValue | null {
    if (!this.cache.get(traceId, id)) {
      const stored = this.data.tensors[traceId]?.[id] ?? this.shared(traceId, id);
      if (!stored) return null;
      this.cache.set(traceId, id, "", toTensor(stored.dtype, stored.shape, decodeBase64(stored.data)));
    }
    return this.cache.get(traceId, id, slice, axesOf(this.stored.find((one) => one.id === traceId), id));
  }

  protected async load(_: string, id: string): Promise<never> {
    throw new Problem(`The tensor ${id} is not in this saved page, to limit its size`, OFFLINE_HINT);
  }

  /** What is stored with the first trace alone: parameters of the same checkpoint, and steps that edits leave as they are. */
  private shared(traceId: string, id: string) {
    const first = this.stored[0];
    const trace = this.stored.find((one) => one.id === traceId);
    if (!first || !trace || trace === first) return undefined;
    const ofLabel = id.startsWith("head.") && trace.labels?.shown !== first.labels?.shown; // its own row of the head
    const same = trace.edited?.same.includes(id) || (trace.model.checkpoint === first.model.checkpoint && !trace.learning?.learned && !ofLabel && id in trace.params);
    return same ? this.data.tensors[first.id]?.[id] : undefined;
  }

  private attribution({ target, ...asked }: AttributeRequest): Attribution {
    const plain = ({ trace, method, prediction = 0, foil }: Omit<AttributeRequest, "target">) => ({ trace, method, prediction, foil: foil ?? null });
    const found = this.data.attributions.find(({ request, attribution }) =>
      jsonEqual(plain(asked), plain(request)) && (target === undefined || request.target === target || attribution.target.id === target));
    if (!found) throw notHeld("this attribution");
    return found.attribution;
  }

  /** A saved result is for the default target; for another class, token or contrast it is derived from the two predictions. */
  private erased(request: AttributeRequest): Erased {
    const index = request.prediction ?? 0;
    const found = this.data.erased.find(({ request: r }) => r.trace === request.trace && jsonEqual(r.erase, request.erase) && (r.prediction ?? 0) === index);
    if (!found) throw new Problem("This saved page holds each word masked alone, not this combination", OFFLINE_HINT);
    const trace = this.stored.find((one) => one.id === request.trace)!, whole = trace.predictions[index];
    if (!whole) return found.erased; // of a number
    const decided = isClassifier(trace);
    const defaultTarget = decided ? whole.top[0]!.id : whole.actual?.id ?? whole.top[0]!.id;
    const target = request.target ?? defaultTarget;
    const runnerUp = (of: number) => (decided ? whole.top.find((one) => one.id !== of)?.id ?? null : null);
    const foil = request.foil ?? runnerUp(target);
    if (target === defaultTarget && foil === runnerUp(defaultTarget)) return found.erased;
    const [value, original] = [found.erased.prediction, whole].map((prediction) => quantity(prediction, target, foil));
    if (value == null || original == null) throw notHeld("the probability of this token");
    return { ...found.erased, value, original };
  }
}

/** log p of a class or token, or its logit minus that of the contrast; null where one of them is not a candidate. */
function quantity({ top, actual }: Prediction, target: number, foil: number | null): number | null {
  const [candidate, contrast] = [target, foil].map((id) => [...top, actual].find((other) => other?.id === id));
  if (!candidate || (foil !== null && !contrast)) return null;
  return contrast ? candidate.logit - contrast.logit : candidate.log_prob;
}

/** The two traces whose difference a trace is. */
interface Passes {
  before: Manifest;
  after: Manifest;
}

/** The manifest of a difference: that of `after`, with the values of all its steps signed. Its predictions are those of `after`. */
export function differenceOf(after: Manifest, before: Manifest): Manifest & { passes: Passes } {
  const marked = (all: TraceNode[]) => all.map((node) => ({ ...node, attrs: { ...node.attrs, difference: true } }));
  return { ...after, id: `${after.id}~${before.id}`, nodes: marked(after.nodes), gradients: marked(after.gradients), passes: { before, after } };
}

/** The traces before and after, of a difference; null of other traces. */
export const passesOf = (trace: Manifest): Passes | null => (trace as { passes?: Passes }).passes ?? null;

/** The trace whose masks, token ids and tables hold for what a trace shows: of a difference the one after. */
export const passOf = (trace: Manifest): Manifest => passesOf(trace)?.after ?? trace;

/** Every number minus its partner; 0 where both are the same, infinity included. */
export function subtract(a: TensorValue, b: TensorValue): TensorValue {
  if (a.shape.join() !== b.shape.join()) throw new Problem(`The shapes ${a.shape.join(" × ")} and ${b.shape.join(" × ")} have no difference`);
  const of = a.dtype === "u8" ? Int32Array : (a.data.constructor as Float32ArrayConstructor);
  const data = new of(a.data.length);
  if (a.data !== b.data) for (let i = 0; i < data.length; i++) data[i] = a.data[i] === b.data[i] ? 0 : a.data[i]! - b.data[i]!;
  return { shape: a.shape, dtype: a.dtype === "u8" ? "i32" : a.dtype, data };
}
