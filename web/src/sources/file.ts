/** An exported page: what was saved in it, and a sentence for what was not. */
import { decodeBase64, type TensorValue, toTensor } from "../tensors/tensor";
import { decides } from "../trace/writing";
import type { AttributeRequest, Erased, EraseRequest, Manifest, Prediction, ReportData, TraceRequest } from "../types";
import { Problem, type Source } from "./source";
import { axesOf, TensorStore } from "./store";

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
const OFFLINE_HINT = "Open the run with `glassformer explain` to compute it.";

export class FileSource implements Source {
  readonly live = false;
  readonly stored: readonly Manifest[];
  readonly dropped: readonly string[];
  private kept = new TensorStore();

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
    if (!this.kept.get(traceId, id)) {
      const stored = this.data.tensors[traceId]?.[id] ?? this.shared(traceId, id);
      if (!stored) return null;
      this.kept.set(traceId, id, "", toTensor(stored.dtype, stored.shape, decodeBase64(stored.data)));
    }
    return this.kept.get(traceId, id, slice, axesOf(this.data.traces.find((one) => one.id === traceId), id));
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
    const decided = decides(trace);
    const usual = decided ? whole.top[0]!.id : whole.actual?.id ?? whole.top[0]!.id;
    const target = request.target ?? usual;
    const rival = (of: number) => (decided ? whole.top.find((one) => one.id !== of)?.id ?? null : null);
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
