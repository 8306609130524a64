/** The data source of an exported page: the traces, tensors and attributions saved in it. */
import { decodeBase64, type TensorValue, toTensor } from "../tensors/tensor";
import { isClassifier } from "../trace/generation";
import type { AttributeRequest, Erased, EraseRequest, Manifest, Prediction, ProbeRequest, SavedPageData, TraceRequest } from "../types";
import { Problem, type Source } from "./source";
import { axesOf, TensorCache } from "./cache";

/** JSON with the fields of objects in alphabetical order. */
const canonical = (value: unknown) =>
  JSON.stringify(value, (_, one: unknown) => (one && typeof one === "object" && !Array.isArray(one) ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))) : one));
const jsonEqual = (a: unknown, b: unknown) => canonical(a) === canonical(b);
const OFFLINE_HINT = "open the run with `glassformer explain` to compute it";

export class FileSource implements Source {
  readonly live = false;
  readonly stored: readonly Manifest[];
  readonly dropped: readonly string[];
  readonly view: string;
  private cache = new TensorCache();

  constructor(readonly data: SavedPageData) {
    this.stored = data.traces;
    this.dropped = data.dropped;
    this.view = data.view ?? "";
  }

  async run() {
    return this.data.run;
  }
  async trace(request: TraceRequest): Promise<Manifest> {
    const found = this.data.traces.find((trace) => jsonEqual(trace.request, request));
    if (!found) throw new Problem("This saved page does not hold the trace of this text with these settings and edits", OFFLINE_HINT, 400);
    return found;
  }
  peek(traceId: string, id: string, slice = ""): TensorValue | null {
    if (!this.cache.get(traceId, id)) {
      const stored = this.data.tensors[traceId]?.[id] ?? this.shared(traceId, id);
      if (!stored) return null;
      this.cache.set(traceId, id, "", toTensor(stored.dtype, stored.shape, decodeBase64(stored.data)));
    }
    return this.cache.get(traceId, id, slice, axesOf(this.data.traces.find((one) => one.id === traceId), id));
  }
  /** What is stored with the first trace alone: parameters of the same checkpoint, and steps that edits leave as they are. */
  private shared(traceId: string, id: string) {
    const first = this.data.traces[0];
    const trace = this.data.traces.find((one) => one.id === traceId);
    if (!first || !trace || trace === first) return undefined;
    const ofLabel = id.startsWith("head.") && trace.labels?.shown !== first.labels?.shown; // its own row of the head
    const same = trace.edited?.same.includes(id) || (trace.model.checkpoint === first.model.checkpoint && !trace.learning?.learned && !ofLabel && id in trace.params);
    return same ? this.data.tensors[first.id]?.[id] : undefined;
  }
  async tensor(traceId: string, id: string, slice = "") {
    const value = this.peek(traceId, id, slice);
    if (!value) throw new Problem(`The tensor ${id} is not in this saved page, to limit its size`, OFFLINE_HINT);
    return value;
  }
  async attribute(request: AttributeRequest) {
    const wanted = { trace: request.trace, method: request.method, prediction: request.prediction ?? 0, foil: request.foil ?? null };
    const found = this.data.attributions.find(({ request: r, attribution }) =>
      jsonEqual(wanted, { trace: r.trace, method: r.method, prediction: r.prediction ?? 0, foil: r.foil ?? null })
      && (request.target === undefined || r.target === request.target || attribution.target.id === request.target));
    if (!found) throw new Problem("This saved page does not hold this attribution", OFFLINE_HINT);
    return found.attribution;
  }
  async erase(request: EraseRequest) {
    const found = this.data.erased.find(({ request: r }) =>
      r.trace === request.trace && jsonEqual(r.erase, request.erase) && (r.prediction ?? 0) === (request.prediction ?? 0));
    if (!found) throw new Problem("This saved page holds each word masked alone, not this combination", OFFLINE_HINT);
    return this.forTarget(found.erased, request);
  }
  /** A saved result is for the default target; for another class, token or contrast it is derived from the two predictions. */
  private forTarget(erased: Erased, request: EraseRequest): Erased {
    const trace = this.data.traces.find((one) => one.id === request.trace)!;
    const whole = trace.predictions[request.prediction ?? 0];
    if (!whole) return erased; // of a number
    const decided = isClassifier(trace);
    const defaultTarget = decided ? whole.top[0]!.id : whole.actual?.id ?? whole.top[0]!.id;
    const target = request.target ?? defaultTarget;
    const runnerUp = (of: number) => (decided ? whole.top.find((one) => one.id !== of)?.id ?? null : null);
    const foil = request.foil ?? runnerUp(target);
    if (target === defaultTarget && foil === runnerUp(defaultTarget)) return erased;
    const [value, original] = [erased.prediction, whole].map((prediction) => quantity(prediction, target, foil));
    if (value == null || original == null) throw new Problem("This saved page does not hold the probability of this token", OFFLINE_HINT);
    return { ...erased, value, original };
  }
  async training() {
    if (!this.data.training) throw new Problem("This saved page holds no training", "to save one: glassformer watch RUN -o replay.html");
    return this.data.training.now;
  }
  async probes() {
    return { texts: this.data.training!.texts, missing: null };
  }
  async probe({ text, checkpoint }: ProbeRequest) {
    const found = this.data.training!.answers.find((one) => one.text === text && one.checkpoint === checkpoint);
    if (!found) throw new Problem("This saved page does not hold this answer", OFFLINE_HINT);
    return found;
  }
  async sweep(): Promise<never> {
    throw new Problem("A saved page cannot run the model", OFFLINE_HINT);
  }
  async decode(): Promise<never> {
    throw new Problem("A saved page cannot run the model", OFFLINE_HINT);
  }
}

/** log p of a class or token, or its logit minus that of the contrast; null where one of them is not a candidate. */
function quantity({ top, actual }: Prediction, target: number, foil: number | null): number | null {
  const [candidate, contrast] = [target, foil].map((id) => [...top, actual].find((other) => other?.id === id));
  if (!candidate || (foil !== null && !contrast)) return null;
  return contrast ? candidate.logit - contrast.logit : candidate.log_prob;
}
