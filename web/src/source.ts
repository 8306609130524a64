/**
 * Where the page's numbers come from: a server beside the model (`LiveSource`) or the data inlined in an
 * exported file (`FileSource`). Screens know the interface `Source` alone.
 */
import { Problem } from "./problem";
import { Store } from "./store";
import { decodeBase64, sliceTensor, toTensor, type TensorValue } from "./tensor";
import type {
  Alignments, ApiError, AttributeRequest, Attribution, DecodeLog, Erased, EraseRequest, Manifest, Prediction, ReportData, RunFacts, Stream,
  TraceRequest,
} from "./types";

export type { TensorValue } from "./tensor";

export interface Source {
  /** True with a server: other texts can be traced. */
  readonly live: boolean;
  /** Traces an exported page was saved with; none with a server. */
  readonly stored: readonly Manifest[];
  /** What found no room in an exported page, a sentence each; nothing with a server. */
  readonly dropped: readonly string[];
  run(): Promise<RunFacts>;
  trace(request: TraceRequest): Promise<Manifest>;
  /** `slice`: "head:3;token:0-8" (see explain/tensors.py); an index drops its axis. */
  tensor(traceId: string, id: string, slice?: string): Promise<TensorValue>;
  /** The same tensor if it is here already. */
  peek(traceId: string, id: string, slice?: string): TensorValue | null;
  /** Where a translation's alignment can be read, the best place first. */
  alignment(traceId: string): Promise<Alignments>;
  attribute(request: AttributeRequest): Promise<Attribution>;
  erase(request: EraseRequest): Promise<Erased>;
  decode(request: TraceRequest): Promise<{ decode: DecodeLog; answer: Manifest["answer"]; streams: Stream[] }>;
}

const CACHE_BYTES = 256e6;

export class LiveSource implements Source {
  readonly live = true;
  readonly stored = [];
  readonly dropped = [];
  private cache = new Store<TensorValue>(CACHE_BYTES, ({ data }) => data.byteLength);
  private pending = new Map<string, Promise<TensorValue>>();
  /** What was traced, and under which id the server has it now: it keeps four traces, and an older one is traced again. */
  private traced = new Map<string, { request: TraceRequest; now: string; renewing: Promise<string> | null }>();

  private async inTrace<T>(id: string, ask: (now: string) => Promise<T>): Promise<T> {
    const known = this.traced.get(id);
    const now = known?.now ?? id;
    try {
      return await ask(now);
    } catch (error) {
      if (!known || !(error instanceof Problem) || error.status !== 404) throw error;
      if (known.now === now) {
        known.renewing ??= this.json<Manifest>("api/trace", known.request).then((again) => (known.now = again.id)).finally(() => (known.renewing = null));
        await known.renewing;
      }
      return ask(known.now);
    }
  }

  private async fetch(path: string, body?: unknown): Promise<Response> {
    const asked = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(path, asked).catch(() => {
      throw new Problem("The server does not answer.", "Is `glassformer explain` still running in its terminal?");
    });
    if (response.ok) return response;
    const told = (await response.json().catch(() => null)) as ApiError | null;
    throw new Problem(told?.error.message ?? `The server answered ${response.status}.`, told?.error.hint, response.status);
  }

  private async json<T>(path: string, body?: unknown): Promise<T> {
    return (await this.fetch(path, body)).json() as Promise<T>;
  }

  run() {
    return this.json<RunFacts>("api/run");
  }
  async trace(request: TraceRequest) {
    const manifest = await this.json<Manifest>("api/trace", request);
    this.traced.set(manifest.id, { request, now: manifest.id, renewing: null });
    return manifest;
  }
  alignment(traceId: string) {
    return this.inTrace(traceId, (trace) => this.json<Alignments>(`api/trace/${trace}/alignment`));
  }
  attribute(request: AttributeRequest) {
    return this.inTrace(request.trace, (trace) => this.json<Attribution>("api/attribute", { ...request, trace }));
  }
  erase(request: EraseRequest) {
    return this.inTrace(request.trace, (trace) => this.json<Erased>("api/erase", { ...request, trace }));
  }
  decode(request: TraceRequest) {
    return this.json<{ decode: DecodeLog; answer: Manifest["answer"]; streams: Stream[] }>("api/decode", request);
  }

  peek(traceId: string, id: string, slice = "") {
    return this.cache.get(`${traceId}/${id}?${slice}`);
  }

  tensor(traceId: string, id: string, slice = "") {
    const key = `${traceId}/${id}?${slice}`;
    const hit = this.peek(traceId, id, slice);
    if (hit) return Promise.resolve(hit);
    let pending = this.pending.get(key);
    if (!pending) {
      pending = this.load(traceId, id, slice).finally(() => this.pending.delete(key));
      this.pending.set(key, pending);
    }
    return pending;
  }

  private async load(traceId: string, id: string, slice: string): Promise<TensorValue> {
    const query = slice ? `?slice=${encodeURIComponent(slice)}&dtype=f32` : "?dtype=f32";
    const response = await this.inTrace(traceId, (trace) =>
      this.fetch(`api/trace/${encodeURIComponent(trace)}/t/${encodeURIComponent(id)}${query}`));
    const shape = (response.headers.get("X-Shape") ?? "").split(",").filter(Boolean).map(Number);
    const value = toTensor(response.headers.get("X-Dtype") ?? "f32", shape, await response.arrayBuffer());
    this.cache.set(`${traceId}/${id}?${slice}`, value);
    return value;
  }
}

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
const OFFLINE_HINT = "Open the run with `glassformer explain` to compute it.";

export class FileSource implements Source {
  readonly live = false;
  readonly stored: readonly Manifest[];
  readonly dropped: readonly string[];
  private whole = new Map<string, TensorValue>();

  constructor(readonly data: ReportData) {
    this.stored = data.traces;
    this.dropped = data.dropped;
  }

  async run() {
    return this.data.run;
  }
  async trace(request: TraceRequest): Promise<Manifest> {
    const found = this.data.traces.find((trace) => same(trace.request, request))
      ?? this.data.traces.find((trace) => trace.request.text === request.text && trace.request.checkpoint === request.checkpoint);
    if (!found) throw new Problem("This saved page holds one traced text; another cannot be computed here.", OFFLINE_HINT);
    return found;
  }
  peek(traceId: string, id: string, slice = ""): TensorValue | null {
    const key = `${traceId}/${id}`;
    let whole = this.whole.get(key);
    if (!whole) {
      const stored = this.data.tensors[traceId]?.[id] ?? this.shared(traceId, id);
      if (!stored) return null;
      whole = toTensor(stored.dtype, stored.shape, decodeBase64(stored.data));
      this.whole.set(key, whole);
    }
    if (!slice) return whole;
    const trace = this.data.traces.find((one) => one.id === traceId);
    const axes = (trace?.nodes.find((node) => node.id === id) ?? trace?.params[id])?.axes.map((axis) => axis.name) ?? [];
    return sliceTensor(whole, axes, slice);
  }
  /** A parameter of the other trace, when both are of one checkpoint: it is stored once. */
  private shared(traceId: string, id: string) {
    const [first, second] = this.data.traces;
    const alike = second?.id === traceId && second.model.checkpoint === first?.model.checkpoint && id in second.params;
    return alike ? this.data.tensors[first.id]?.[id] : undefined;
  }
  async tensor(traceId: string, id: string, slice = "") {
    const value = this.peek(traceId, id, slice);
    if (!value) throw new Problem(`The numbers of ${id} did not fit into this saved page.`, OFFLINE_HINT);
    return value;
  }
  async alignment(traceId: string) {
    const found = this.data.alignments?.[traceId];
    if (!found) throw new Problem("This saved page does not say which reading agrees best with erasing.", OFFLINE_HINT);
    return found;
  }
  async attribute(request: AttributeRequest) {
    const wanted = { trace: request.trace, method: request.method, prediction: request.prediction ?? 0, foil: request.foil ?? null };
    const found = this.data.attributions.find(({ request: r, attribution }) =>
      same(wanted, { trace: r.trace, method: r.method, prediction: r.prediction ?? 0, foil: r.foil ?? null })
      && (request.target === undefined || r.target === request.target || attribution.target.id === request.target));
    if (!found) throw new Problem("This attribution is not in the saved page.", OFFLINE_HINT);
    return found.attribution;
  }
  async erase(request: EraseRequest) {
    const found = this.data.erased.find(({ request: r }) =>
      r.trace === request.trace && same(r.erase, request.erase) && (r.prediction ?? 0) === (request.prediction ?? 0));
    if (!found) throw new Problem("The saved page holds each word erased alone, not this combination.", OFFLINE_HINT);
    return this.asAsked(found.erased, request);
  }
  /** What is saved answers the question for the answer itself; for another class, token or foil it is asked of the same two predictions. */
  private asAsked(erased: Erased, request: EraseRequest): Erased {
    const trace = this.data.traces.find((one) => one.id === request.trace)!;
    const whole = trace.predictions[request.prediction ?? 0]!;
    const classify = trace.model.task === "classify";
    const usual = classify ? whole.top[0]!.id : whole.actual?.id ?? whole.top[0]!.id;
    const target = request.target ?? usual;
    const rival = (of: number) => (classify ? whole.top.find((one) => one.id !== of)?.id ?? null : null);
    const foil = request.foil ?? rival(target);
    if (target === usual && foil === rival(usual)) return erased;
    const [value, original] = [erased.prediction, whole].map((prediction) => quantityOf(prediction, target, foil));
    if (value == null || original == null) throw new Problem("This saved page does not hold what is asked of that token.", OFFLINE_HINT);
    return { ...erased, value, original };
  }
  async decode(): Promise<never> {
    throw new Problem("A saved page cannot decode again.", OFFLINE_HINT);
  }
}

/** log p of a class or token, or how far its logit is above its foil's; null where one of them is not among the candidates. */
function quantityOf({ top, actual }: Prediction, target: number, foil: number | null): number | null {
  const [one, rival] = [target, foil].map((id) => [...top, actual].find((candidate) => candidate?.id === id));
  if (!one || (foil !== null && !rival)) return null;
  return rival ? one.logit - rival.logit : one.log_prob;
}

/** The data inlined in an exported page if there is some, the server otherwise. */
export function openSource(): Source {
  const inlined = document.getElementById("glassformer-data")?.textContent;
  if (inlined) return new FileSource(JSON.parse(inlined) as ReportData);
  return new LiveSource();
}
