/**
 * A page that holds a model: every text is computed here, by the program of the run. Long work is done in parts, between which the
 * page lives.
 */
import { Problem, Source } from "../sources/source";
import { sliceTensor, type TensorValue } from "../tensors/tensor";
import type { Values } from "../tensors/walk";
import { table } from "../trace/steps";
import type { Manifest, RunInfo, TraceNode, TraceRequest } from "../types";
import { attribute, erase } from "./attribute";
import { type Progress, sweep, whyNoSum, withEdits } from "./effects";
import { explain, type Explained, textAnswer } from "./explain";
import { learn, type LearnData } from "./learn";
import { encode, makeVocabulary, MAX_EDITED, type Model, Refused, type TaskData } from "./texts";

/** The data of a page with a model (`page/model_file.py`). */
export interface ModelData {
  run: RunInfo;
  task: TaskData;
  learn: LearnData;
  nodes: TraceNode[];
  params: Manifest["params"];
  /** The tokenizer of texts, and of translations where that is another one. */
  tokenizers: object[];
  /** Where the weights are among the bytes that follow: their type, shape and first byte. */
  weights: Record<string, { dtype: "f16" | "f32"; shape: number[]; start: number }>;
  start: TraceRequest[];
}

const PIECE = 1 << 16;
const halves = new Float32Array(PIECE);
for (let half = 0; half < PIECE; half++) {
  const [sign, exponent, fraction] = [half & 0x8000 ? -1 : 1, (half >> 10) & 31, half & 1023];
  halves[half] = sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

/** The bytes of a text in base64, decompressed. */
async function inflated(text: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

/** Answers in turn: at most so many milliseconds at a time. */
const TURN = 30;
function makeProgress(): Progress {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < TURN) return;
    await new Promise((resolve) => setTimeout(resolve));
    began = performance.now();
  };
}

const KEPT = 12;

export class ModelSource extends Source {
  readonly live = true;
  private data!: ModelData;
  private model!: Model;
  private readonly ready: Promise<void>;
  private known: { key: string; explained: Explained }[] = [];
  private count = 0;

  /** `parts` are the data and the weights, compressed, in base64. */
  constructor(parts: readonly [string, string]) {
    super();
    this.ready = this.open(parts);
  }

  private async open([facts, weights]: readonly [string, string]) {
    const [text, bytes] = await Promise.all([inflated(facts), inflated(weights)]);
    this.data = JSON.parse(new TextDecoder().decode(text)) as ModelData;
    const { run, task, nodes, tokenizers } = this.data;
    const params = Object.fromEntries(Object.entries(this.data.weights).map(([name, { dtype, shape, start }]): [string, Values] => {
      const n = shape.reduce((a, b) => a * b, 1);
      if (dtype === "f32") return [name, { shape, data: new Float32Array(bytes, start, n) }];
      const data = new Float32Array(n), half = new Uint16Array(bytes, start, n);
      for (let i = 0; i < n; i++) data[i] = halves[half[i]!]!;
      return [name, { shape, data }];
    }));
    table.rows = run.operations;
    const [source, target] = tokenizers.map((content) => makeVocabulary(content, task));
    this.model = { program: { nodes, params }, task, source: source!, target: target ?? source! };
  }

  async ask(what: any, request?: any): Promise<any> {
    await this.ready;
    const progress = makeProgress(), of = () => this.explained(request.trace);
    try {
      switch (what) {
        case "run": return { ...this.data.run, start: this.data.start };
        case "attribute": return await attribute(of(), request, progress);
        case "erase": return erase(of(), request);
        case "sweep": return await sweep(of(), request.kind, request.other ? this.explained(request.other) : null, request.prediction, progress);
        case "decode": {
          const { decode, text, streams } = encode(this.model, request);
          return decode.hypotheses.length ? { decode, streams, answer: textAnswer(text, decode) } : { decode, streams, answer: (await this.trace(request)).answer };
        }
      }
    } catch (error) {
      throw problemOf(error);
    }
    throw new Problem("This page holds a model, and nothing of its training", "open the run with `glassformer explain` to see it");
  }

  private explained(id: string): Explained {
    const found = this.known.find(({ explained }) => explained.manifest.id === id);
    if (!found) throw new Problem("This text is no longer kept", "trace it again");
    return found.explained;
  }

  async trace(request: TraceRequest): Promise<Manifest> {
    await this.ready;
    await new Promise((resolve) => setTimeout(resolve)); // so that the page shows that it computes
    try {
      return this.find(request).manifest;
    } catch (error) {
      throw problemOf(error);
    }
  }

  private find(request: TraceRequest): Explained {
    const key = JSON.stringify(request), known = this.known.find((one) => one.key === key);
    this.known = [...(known ? [known] : [{ key, explained: this.compute(request) }]), ...this.known.filter((one) => one !== known)].slice(0, KEPT);
    return this.known[0]!.explained;
  }

  private compute(request: TraceRequest): Explained {
    const id = `t${++this.count}`, { edits, other_text: otherText, ...plain } = request, { run, params } = this.data, began = performance.now();
    if (request.checkpoint && request.checkpoint !== "model") throw new Refused("this page holds the finished model alone");
    let found: Explained;
    if (edits?.length) {
      const base = this.find(plain), { labels } = base.manifest, label = labels ? { label: labels.each[labels.shown]!.name } : {};
      found = withEdits(base, edits, otherText === undefined ? null : this.find({ text: otherText, ...label }), id, request);
    } else found = request.answer === undefined ? explain(this.model, run, request, id, params) : learn(this.model, run, this.data.learn, request, id, params);
    const count = Math.max(...found.encoded.streams.map(({ ids }) => ids.length)), tooLong = (what: string) => (count > MAX_EDITED ? `${what} at most ${MAX_EDITED} tokens, and this one has ${count}` : undefined);
    const noEdits = request.answer === undefined ? tooLong("edits need a text of") : "a model learns without edits only";
    const refused = { edits: noEdits, contributions: noEdits ?? whyNoSum(found.manifest.nodes), learn: found.model.task.kind === "text_embedder" ? "a bare encoder has no answer to learn" : tooLong("learning takes a text of") };
    found.manifest.refused = Object.fromEntries(Object.entries(refused).filter(([, why]) => why)) as Record<string, string>;
    found.manifest.seconds = (performance.now() - began) / 1000;
    return found;
  }

  protected own(traceId: string, id: string, slice: string): TensorValue | null {
    const found = this.known.find(({ explained }) => explained.manifest.id === traceId)?.explained;
    const value = found && (found.steps.get(id) ?? found.update?.get(id) ?? found.model.program.params[id]);
    if (!value) return null;
    const key = this.cache.get(traceId, id) ?? this.cache.set(traceId, id, "", tensorOf(value, found.manifest.nodes.find((node) => node.id === id)));
    if (!slice) return key;
    const axes = (found.manifest.nodes.find((node) => node.id === id) ?? found.manifest.gradients.find((node) => node.id === id))?.axes ?? this.data.params[id.replace(/\.(before|clipped_grad|(exp_avg|exp_avg_sq|momentum_buffer)(_before)?)$/, "")]?.axes ?? [];
    return this.cache.get(traceId, id, slice) ?? this.cache.set(traceId, id, slice, sliceTensor(key, axes.map(({ name }) => name), slice));
  }

  protected async load(traceId: string, id: string): Promise<never> {
    throw new Problem(`There is no tensor ${id} of ${traceId}`);
  }
}

function tensorOf({ shape, data }: Values, node: TraceNode | undefined): TensorValue {
  const dtype = node?.value ?? "f32", Numbers = { f32: Float32Array, i32: Int32Array, u8: Uint8Array }[dtype];
  return { shape: [...shape], dtype, data: data instanceof Numbers ? data : Numbers.from(data) };
}

const problemOf = (error: unknown) => (error instanceof Refused ? new Problem(`${error.message[0]!.toUpperCase()}${error.message.slice(1)}`, error.hint, 400) : error);
