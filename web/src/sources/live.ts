/** The server beside the model: asks it, keeps what it sent, and traces again what it has forgotten. */
import { type TensorValue, toTensor } from "../tensors/tensor";
import type {
  Alignments, ApiError, AttributeRequest, Attribution, DecodeLog, Erased, EraseRequest, Manifest, RunInfo, Stream, TraceRequest,
} from "../types";
import { Problem, type Source } from "./source";
import { axesOf, Store, TensorStore } from "./store";

/** Traces that are remembered; one of another text is asked for anew when it comes up again. */
const MOST_TRACED = 64;

/** A trace, and under which id the server has it now: it keeps four of them, and an older one is traced again. */
interface Traced {
  request: TraceRequest;
  manifest: Manifest;
  now: string;
  renewing: Promise<string> | null;
}

export class LiveSource implements Source {
  readonly live = true;
  readonly stored = [];
  readonly dropped = [];
  private kept = new TensorStore();
  private pending = new Map<string, Promise<TensorValue>>();
  private traced = new Store<Traced>(MOST_TRACED, () => 1);

  private async inTrace<T>(id: string, ask: (now: string) => Promise<T>): Promise<T> {
    const known = this.traced.find(({ manifest }) => manifest.id === id);
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
    return this.json<RunInfo>("api/run");
  }
  async trace(request: TraceRequest) {
    const key = JSON.stringify(request);
    const known = this.traced.get(key);
    if (known) return known.manifest;
    const manifest = await this.json<Manifest>("api/trace", request);
    this.traced.set(key, { request, manifest, now: manifest.id, renewing: null });
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
    const known = slice ? this.traced.find(({ manifest }) => manifest.id === traceId) : null;
    return this.kept.get(traceId, id, slice, axesOf(known?.manifest, id));
  }

  async tensor(traceId: string, id: string, slice = ""): Promise<TensorValue> {
    if (slice) await this.pending.get(`${traceId}/${id}?`)?.catch(() => null); // all of it is on its way
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
    this.kept.set(traceId, id, slice, value);
    return value;
  }
}
