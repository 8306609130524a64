/**
 * A page that holds a model: every text is computed here, by the program of the run. Long work is done in parts, between which the
 * page lives.
 */
import { type Answered, type Asked, Problem, type Routes, Source } from "../sources/source";
import { capital } from "../tensors/format";
import { sliceTensor, type TensorValue } from "../tensors/tensor";
import type { Values } from "../tensors/walk";
import { table } from "../trace/steps";
import type { Manifest, RunInfo, TraceNode, TraceRequest } from "../types";
import { attribute, erase } from "./attribute";
import { type Progress, sweep, whyNoSum, withEdits } from "./effects";
import { explain, type Explained, textAnswer } from "./explain";
import { learn, type LearnData } from "./learn";
import { encode, makeVocabulary, MAX_EDITED, type Model, Refused, type TaskData } from "./texts";

/** The data of a page with a model (`page/model_page.py`). */
export interface ModelData {
  run: RunInfo;
  task: TaskData;
  learn: LearnData;
  nodes: TraceNode[];
  params: Manifest["params"];
  /** The tokenizer of texts, and of translations where that is another one. */
  tokenizers: object[];
  /** Where the weights of each member of an ensemble are among the bytes that follow: their type, shape and first byte. */
  weights: Record<string, { dtype: "f16" | "f32"; shape: number[]; start: number }>[];
  start: TraceRequest[];
}

export type ModelFile = [said: string[], facts: string, weights: string];

/** The number of every 16-bit float; weights are finite. */
const halfFloats = () => Float32Array.from({ length: 1 << 16 }, (_, half) => {
  const [sign, exponent, fraction] = [half & 0x8000 ? -1 : 1, (half >> 10) & 31, half & 1023];
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
});

/** The bytes of a text in base64, decompressed. */
async function inflated(text: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

/** Milliseconds of work between which the page lives, and after which it is shown. */
const TURN = 30, SHOWN = 1000;
/** The most texts that are kept, and from how many bytes of numbers on all but the last few are dropped. */
const KEPT = 12, FEW = 4, BYTES = 256e6;
const bytesOf = ({ explained }: { explained: Explained }) => [...explained.steps.values()].reduce((sum, { data }) => sum + (data as Float32Array).byteLength, 0);

export class ModelSource extends Source {
  readonly live = true;
  override readonly hasTraining = false;
  private data!: ModelData;
  private model!: Model;
  private readonly ready: Promise<void>;
  private known: { key: string; explained: Explained }[] = [];
  private count = 0;
  private stops = 0;

  /** What is to be said of the model, and, compressed, in base64, the data and the weights. */
  constructor([said, facts, weights]: ModelFile) {
    super([], said);
    this.ready = this.open(facts, weights).catch(() => {
      throw new Problem("This file is damaged", "write it again: glassformer explain RUN -o page.html");
    });
  }

  private async open(facts: string, weights: string) {
    const [text, bytes] = await Promise.all([inflated(facts), inflated(weights)]);
    this.data = JSON.parse(new TextDecoder().decode(text)) as ModelData;
    const { run, task, nodes, tokenizers } = this.data, halves = halfFloats();
    const members = this.data.weights.map((weights) => Object.fromEntries(Object.entries(weights).map(([name, { dtype, shape, start }]): [string, Values] => {
      const n = shape.reduce((a, b) => a * b, 1);
      if (dtype === "f32") return [name, { shape, data: new Float32Array(bytes, start, n) }];
      const data = new Float32Array(n), half = new Uint16Array(bytes, start, n);
      for (let i = 0; i < n; i++) data[i] = halves[half[i]!]!;
      return [name, { shape, data }];
    })));
    table.rows = run.operations;
    const [source, target] = tokenizers.map((content) => makeVocabulary(content, task));
    this.model = { program: { nodes, params: members[0]! }, members, member: 0, task, source: source!, target: target ?? source! };
  }

  private modelOf({ member = 0 }: TraceRequest): Model {
    const { members, program } = this.model, params = members[member];
    if (!params) throw new Refused(`there is no member ${member}: this page holds ${members.length}`, "members are counted from 0");
    return { ...this.model, member, program: { ...program, params } };
  }

  /** Returns what long work calls between its parts: it shows how much is done and how long the rest takes, and ends the work where that is asked. */
  private makeProgress(ofScreen: boolean): Progress {
    const began = performance.now(), before = this.stops;
    let last = began;
    return async (done, of) => {
      const now = performance.now();
      if (now - last < TURN) return;
      if (now - began > SHOWN) this.onWork({ share: done / of, seconds: ((now - began) / 1000) * (of / Math.max(done, 1) - 1), stop: () => this.stops++, ofScreen });
      await new Promise((resolve) => setTimeout(resolve));
      if (this.stops > before) throw new Refused("this was stopped", "choose it again, and it begins anew");
      last = performance.now();
    };
  }

  /** Does long work; its refusals are problems that the page shows. */
  private async working<T>(how: (progress: Progress) => T | Promise<T>, ofScreen = true): Promise<T> {
    await this.ready;
    await new Promise((resolve) => setTimeout(resolve)); // so that the page shows that it computes
    try {
      return await how(this.makeProgress(ofScreen));
    } catch (error) {
      throw error instanceof Refused ? new Problem(capital(error.message), error.hint, 400) : error;
    } finally {
      this.onWork(null);
    }
  }

  ask<K extends keyof Routes>(what: K, ...[request]: Asked<K>): Answered<K> {
    return this.working<any>((progress) => {
      const of = () => this.explained((request as any).trace);
      const answers: { [K in keyof Routes]?: (request: any) => unknown } = {
        run: () => ({ ...this.data.run, start: this.data.start }),
        attribute: (request) => attribute(of(), request, progress),
        erase: (request) => erase(of(), request),
        sweep: ({ kind, other, prediction }) => sweep(of(), kind, other ? this.explained(other) : null, prediction, progress),
        decode: async (request) => {
          const { decode, text, streams } = encode(this.modelOf(request), request);
          return { decode, streams, answer: decode.hypotheses.length ? textAnswer(text, decode) : (await this.find(request, progress)).manifest.answer };
        },
      };
      const answer = answers[what];
      if (!answer) throw new Problem("This page holds the model alone, without its training", "the run folder has that");
      return answer(request);
    });
  }

  private explained(id: string): Explained {
    const found = this.known.find(({ explained }) => explained.manifest.id === id);
    if (!found) throw new Problem("This text is no longer kept", "trace it again");
    return found.explained;
  }

  trace(request: TraceRequest): Promise<Manifest> {
    return this.working(async (progress) => (await this.find(request, progress)).manifest, false);
  }

  private async find(request: TraceRequest, progress: Progress): Promise<Explained> {
    const key = JSON.stringify(request), known = this.known.find((one) => one.key === key) ?? { key, explained: await this.compute(request, progress) };
    let left = BYTES;
    this.known = [known, ...this.known.filter((one) => one.key !== key)].filter((one, i) => i < FEW || (i < KEPT && (left -= bytesOf(one)) > 0));
    return known.explained;
  }

  private async compute(request: TraceRequest, progress: Progress): Promise<Explained> {
    const id = `t${++this.count}`, { edits, other_text: otherText, ...plain } = request, { run, params } = this.data, began = performance.now();
    if (request.checkpoint && request.checkpoint !== run.model.checkpoint) throw new Refused(`this page holds the weights of ${run.model.checkpoint} alone`);
    let found: Explained;
    if (edits?.length) {
      const base = await this.find(plain, progress), { labels } = base.manifest, label = labels ? { label: labels.each[labels.shown]!.name } : {};
      found = withEdits(base, edits, otherText === undefined ? null : await this.find({ text: otherText, member: request.member, ...label }, progress), id, request);
    } else found = request.answer === undefined ? explain(this.modelOf(request), run, request, id, params) : await learn(this.modelOf(request), run, this.data.learn, request, id, params, progress);
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
