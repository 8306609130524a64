/**
 * The data source of a served page: requests to the server, with a cache. Traces that the server has dropped are
 * traced again.
 */
import { type TensorValue, toTensor } from "../tensors/tensor";
import type {
  ApiError, AttributeRequest, Attribution, DecodeLog, Erased, EraseRequest, Manifest, ProbeAnswer, ProbeRequest, ProbeTexts, RunInfo, SavedPageFile, Stream, SweepRequest, TraceRequest,
  TrainingNow,
} from "../types";
import { noServer, Problem, type Source, type Sweeps, server } from "./source";
import { axesOf, LruCache, TensorCache } from "./cache";

/** Maximum number of cached manifests. */
const MAX_TRACES = 64;

/** A trace with its current id on the server, which keeps four traces and traces an older one again under a new id. */
interface Traced {
  request: TraceRequest;
  manifest: Manifest;
  currentId: string;
  renewing: Promise<string> | null;
}

export class LiveSource implements Source {
  readonly live = true;
  readonly stored = [];
  readonly dropped = [];
  private cache = new TensorCache();
  private pending = new Map<string, Promise<TensorValue>>();
  private traced = new LruCache<Traced>(MAX_TRACES, () => 1);

  private async inTrace<T>(id: string, request: (id: string) => Promise<T>): Promise<T> {
    const known = this.traced.find(({ manifest }) => manifest.id === id);
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
    const failure = (await response.json().catch(() => null)) as ApiError | null;
    throw new Problem(failure?.error.message ?? `The server returned HTTP status ${response.status}`, failure?.error.hint, response.status);
  }

  private async json<T>(path: string, body?: unknown): Promise<T> {
    return (await this.fetch(path, body)).json() as Promise<T>;
  }

  run() {
    return this.json<RunInfo>("api/run");
  }
  save(what: object) {
    return this.json<SavedPageFile>("api/save", what);
  }
  training(after: number) {
    return this.json<TrainingNow>(`api/training?after=${after}`);
  }
  control(action: string) {
    return this.json("api/control", { action });
  }
  probes() {
    return this.json<ProbeTexts>("api/probes");
  }
  probe(request: ProbeRequest) {
    return this.json<ProbeAnswer>("api/probe", request);
  }
  async trace(request: TraceRequest) {
    const key = JSON.stringify(request);
    const known = this.traced.get(key);
    if (known) return known.manifest;
    const manifest = await this.json<Manifest>("api/trace", request);
    this.traced.set(key, { request, manifest, currentId: manifest.id, renewing: null });
    return manifest;
  }
  attribute(request: AttributeRequest) {
    return this.inTrace(request.trace, (trace) => this.json<Attribution>("api/attribute", { ...request, trace }));
  }
  erase(request: EraseRequest) {
    return this.inTrace(request.trace, (trace) => this.json<Erased>("api/erase", { ...request, trace }));
  }
  async sweep<K extends keyof Sweeps>(request: SweepRequest & { kind: K }): Promise<Sweeps[K]> {
    const { other } = request;
    const withOther = (trace: string) =>
      other === undefined ? this.json<Sweeps[K]>("api/sweep", { ...request, trace })
        : this.inTrace(other, (second) => this.json<Sweeps[K]>("api/sweep", { ...request, trace, other: second }));
    return this.inTrace(request.trace, withOther);
  }
  decode(request: TraceRequest) {
    return this.json<{ decode: DecodeLog; answer: Manifest["answer"]; streams: Stream[] }>("api/decode", request);
  }

  /** The trace to take a tensor from: what no edit changes, and parameters, are those of the trace without edits. */
  private owner(traceId: string, id: string): string {
    const edited = this.traced.find(({ manifest }) => manifest.id === traceId)?.manifest;
    if (!edited?.edited || !(edited.edited.same.includes(id) || id in edited.params)) return traceId;
    const { edits: _, other_text: __, ...without } = edited.request;
    const key = JSON.stringify(without);
    return this.traced.find(({ manifest }) => JSON.stringify(manifest.request) === key)?.manifest.id ?? traceId;
  }

  peek(traceId: string, id: string, slice = "") {
    const owner = this.owner(traceId, id);
    const known = slice ? this.traced.find(({ manifest }) => manifest.id === owner) : null;
    return this.cache.get(owner, id, slice, axesOf(known?.manifest, id));
  }

  async tensor(trace: string, id: string, slice = ""): Promise<TensorValue> {
    const traceId = this.owner(trace, id);
    if (slice) await this.pending.get(`${traceId}/${id}?`)?.catch(() => null); // the whole tensor is being fetched
    const hit = this.peek(traceId, id, slice);
    if (hit) return hit;
    const key = `${traceId}/${id}?${slice}`;
    const pending = this.pending.get(key) ?? this.load(traceId, id, slice).finally(() => this.pending.delete(key));
    this.pending.set(key, pending);
    return pending;
  }

  private async load(traceId: string, id: string, slice: string): Promise<TensorValue> {
    const query = slice ? `?slice=${encodeURIComponent(slice)}&dtype=f32` : "?dtype=f32";
    const response = await this.inTrace(traceId, (trace) =>
      this.fetch(`api/trace/${encodeURIComponent(trace)}/t/${encodeURIComponent(id)}${query}`));
    const shape = (response.headers.get("X-Shape") ?? "").split(",").filter(Boolean).map(Number);
    const value = toTensor(response.headers.get("X-Dtype") ?? "f32", shape, await response.arrayBuffer());
    this.cache.set(traceId, id, slice, value);
    return value;
  }
}
