/**
 * Learns an answer in a copy of the weights: its loss, the gradients of the program, and steps of the run's optimizer
 * (`explain/learn/learning.py`, `training/optimizer.py`).
 */
import { FAST, type Values } from "../tensors/walk";
import type { LearningFacts, Manifest, ParameterGroup, RunInfo, TraceRequest } from "../types";
import type { Progress } from "./effects";
import { type Explained, explainEncoded, looked, numberText, outputOf } from "./explain";
import { execute, type Feed, type Steps } from "./program";
import { encode, type Encoded, MAX_EDITED, type Model, Refused } from "./texts";

const [NOT, FARTHEST, NEAR] = ["not ", 1e6, 0.1];
const [ROUNDS, COEFFICIENTS] = [5, [3.4445, -4.775, 2.0315] as const];

/** A text as the model reads it, with what it should answer: a class or token for each row of the logits, or a number. */
interface Lesson {
  encoded: Encoded;
  labels: (number | null)[];
  text: string;
  target: number | null;
}

const normal = (label: string) => label.replace(/\p{Cf}/gu, "").normalize("NFC").trim();

function knownIds(model: Model, answer: string): number[] {
  const ids = model.target.tokenizer.encode(answer).map(({ id }) => id);
  if (!ids.length) throw new Refused(`the answer ${answer.slice(0, 60)} has no tokens`, "write it otherwise");
  if (ids.includes(model.target.unknown)) throw new Refused(`the answer ${answer.slice(0, 60)} has tokens that are not in the vocabulary`, "write it otherwise");
  return ids;
}

/** Encodes a text and the answer that it should have. */
function lessonOf(model: Model, names: readonly string[] | null, request: TraceRequest, answer: string): Lesson {
  const { kind, scale, max_len: longest } = model.task;
  if (!answer.trim()) throw new Refused("the answer to learn is empty", "write what the model should answer");
  switch (kind) {
    case "text_embedder": throw new Refused("a bare encoder has no answer to learn", "train a classifier from it: --init-from");
    case "regressor": {
      const written = normal(answer), number = Number(written), target = (number - scale[0]) / scale[1];
      if (!written || !Number.isFinite(number)) throw new Refused(`the answer to learn is a number, and ${written.slice(0, 40)} is none`, "write one, as in 12.5");
      if (!(Math.abs(target) <= FARTHEST)) throw new Refused(`${written.slice(0, 40)} is more than 1e+06 standard deviations from the mean of the training numbers`, "learn a number that is nearer");
      return { encoded: encode(model, request), labels: [], text: numberText(number), target };
    }
    case "translator": {
      const n = knownIds(model, answer).length, most = Math.min(longest, MAX_EDITED) - 1;
      if (n > most) throw new Refused(`the answer has ${n} tokens; at most ${most} can be learned at once`);
      const encoded = encode(model, { ...request, target: answer });
      return { encoded, labels: [...encoded.following], text: encoded.text, target: null };
    }
    case "masked_language_model": {
      const encoded = encode(model, request), masked = encoded.decode.masked ?? [], ids = knownIds(model, answer);
      if (!masked.length) throw new Refused("the text holds no [MASK] for the answer to stand at", "put [MASK] where the answer belongs");
      if (ids.length !== masked.length) throw new Refused(`the answer has ${ids.length} tokens, and the text ${masked.length} [MASK]`);
      return { encoded, labels: encoded.streams[0]!.ids.map((_, i) => ids[masked.indexOf(i)] ?? null), text: ids.map((id) => encoded.streams[0]!.pieces[id] ?? model.source.tokenizer.stored(id)).join(" "), target: null };
    }
    case "language_model": {
      knownIds(model, answer);
      const encoded = encode(model, { ...request, target: answer, prefix: [] }), { first } = encoded.decode;
      if (first < 0) throw new Refused("prompt and answer have more tokens than are read at once", "shorten them");
      return { encoded, labels: encoded.following.map((id, i) => (i < first ? null : id)), text: encoded.text, target: null };
    }
    default: {
      const label = (names ?? []).map(normal).indexOf(normal(answer));
      if (label < 0) throw new Refused(`${answer.slice(0, 60)} is not a class of this model`, `there are ${(names ?? []).slice(0, 10).join(", ")}`);
      return { encoded: encode(model, request), labels: [label], text: names![label]!, target: null };
    }
  }
}

/** What the optimizer keeps of a parameter. */
type State = Record<string, Float32Array>;
const floats = (x: Values) => x.data as Float32Array;
const norm = (x: Float32Array) => Math.sqrt(x.reduce((sum, one) => sum + one * one, 0));

/** Approximately U Vᵀ of a matrix U S Vᵀ, by the Newton–Schulz iteration of Jordan et al. 2024. */
function orthogonalised(x: Values): Values {
  const [times, byRows, T] = [FAST["@"]!, FAST.byRows!, FAST.T!] as ((...of: Values[]) => Values)[] as [any, any, any];
  const isTall = x.shape[0]! > x.shape[1]!, [a, b, c] = COEFFICIENTS, size = Math.max(norm(floats(x)), 1e-7);
  let found: Values = isTall ? T(x) : x;
  found = { ...found, data: floats(found).map((one) => one / size) };
  for (let round = 0; round < ROUNDS; round++) {
    const gram: Values = byRows(found, found), square: Values = times(gram, gram);
    const mixed = { ...gram, data: floats(gram).map((one, i) => b * one + c * square.data[i]!) }, more: Values = times(mixed, found);
    found = { ...found, data: floats(found).map((one, i) => a * one + more.data[i]!) };
  }
  return isTall ? T(found) : found;
}

/** The new values of a parameter after one step; what the optimizer keeps of it is written into its state. */
function moved({ optimizer, constants }: ParameterGroup, { shape, data }: Values, g: Float32Array, state: State, step: number): Float32Array {
  const { lr = 0, weight_decay: decay = 0, momentum = 0, beta1 = 0, beta2 = 0, eps = 0 } = constants, p = data as Float32Array;
  const zeros = () => new Float32Array(p.length);
  if (optimizer === "sgd") {
    const slope = decay ? g.map((one, i) => one + decay * p[i]!) : g;
    if (!momentum) return p.map((one, i) => one - lr * slope[i]!);
    const kept = state.momentum_buffer, buffer = kept ? kept.map((one, i) => momentum * one + slope[i]!) : Float32Array.from(slope);
    state.momentum_buffer = buffer;
    return p.map((one, i) => one - lr * buffer[i]!);
  }
  if (optimizer === "muon") {
    const average = (state.momentum_buffer ?? zeros()).map((one, i) => one + (1 - momentum) * (g[i]! - one));
    state.momentum_buffer = average;
    const update = orthogonalised({ shape, data: g.map((one, i) => one + momentum * (average[i]! - one)) }), rate = lr * Math.sqrt(Math.max(1, shape[0]! / shape[1]!));
    return p.map((one, i) => one * (1 - lr * decay) - rate * update.data[i]!);
  }
  const isDecoupled = optimizer === "adamw", slope = !isDecoupled && decay ? g.map((one, i) => one + decay * p[i]!) : g;
  const first = (state.exp_avg ?? zeros()).map((one, i) => one + (1 - beta1) * (slope[i]! - one)), second = (state.exp_avg_sq ?? zeros()).map((one, i) => beta2 * one + (1 - beta2) * slope[i]! * slope[i]!);
  [state.exp_avg, state.exp_avg_sq] = [first, second];
  const [rate, scale] = [lr / (1 - beta1 ** step), Math.sqrt(1 - beta2 ** step)];
  return p.map((one, i) => one * (isDecoupled ? 1 - lr * decay : 1) - (rate * first[i]!) / (Math.sqrt(second[i]!) / scale + eps));
}

/** How the run learns: its constants, and the parameters by how each optimizer treats them. */
export interface LearnData {
  smoothing: number;
  max_grad_norm: number;
  groups: Record<string, ParameterGroup[]>;
  left_out: string[];
}

const feedOf = ({ encoded, labels, target }: Lesson): Feed => ({ ...encoded.feed, labels, number: target ?? undefined });

function lossOf(model: Model, lesson: Lesson, isSmoothed = true): { loss: number; right: boolean; steps: Steps } {
  const nodes = isSmoothed ? model.program.nodes : model.program.nodes.map((node) => (node.op === "targets" ? { ...node, attrs: { ...node.attrs, smoothing: 0 } } : node));
  const steps = execute({ ...model.program, nodes }, feedOf(lesson), { wanted: ["loss"] }), logits = outputOf(steps), width = logits.shape.at(-1)!;
  const right = lesson.target !== null ? Math.abs(logits.data[0]! - lesson.target) <= NEAR : lesson.labels.every((label, row) => {
    const z = Array.prototype.slice.call(logits.data, row * width, (row + 1) * width) as number[];
    return label === null || z.indexOf(Math.max(...z)) === label;
  });
  return { loss: steps.get("loss")!.data[0]!, right, steps };
}

/** A text with the loss of the answer that it should have, its gradients, and what steps of the optimizer change. */
export async function learn(model: Model, run: RunInfo, data: LearnData, request: TraceRequest, id: string, params: Manifest["params"], progress: Progress): Promise<Explained> {
  if (request.edits?.length) throw new Refused("a model learns without edits only", "remove the edits, or the answer to learn");
  const { answer, learn_steps: nSteps = 0, lr, optimizer, ...plain } = request, view = looked(model, request);
  const lesson = lessonOf(view.model, view.look?.names ?? model.task.labels, plain, answer!.replace(view.look && !view.look.names.includes(answer!) ? NOT : "", ""));
  if (view.word !== undefined) lesson.encoded.feed.word = view.word;
  const count = Math.max(...lesson.encoded.streams.map(({ ids }) => ids.length));
  if (count > MAX_EDITED) throw new Refused(`learning takes up to ${MAX_EDITED} tokens, and this text has ${count}`, "shorten it");
  const factor = lr === undefined ? 1 : lr / run.learn.lr, groups = data.groups[optimizer ?? run.learn.optimizer]!.map((group) => ({ ...group, constants: { ...group.constants, lr: group.constants.lr! * factor } }));
  const groupOf = new Map(groups.flatMap((group) => group.params.map((name): [string, ParameterGroup] => [name, group])));
  const states = new Map<string, State>(), taken: NonNullable<LearningFacts["learned"]>["steps"] = [], update: Steps = new Map();
  let learned = view.model;
  const wanted = model.program.nodes.map((node) => node.id), gradients = [...groupOf.keys()].filter((name) => wanted.includes(`${name}.grad`));
  const examples = run.learn.examples.filter(({ text }) => text !== lesson.encoded.streams[0]!.text).slice(0, 8), nWork = nSteps + 2 + examples.length;
  for (let step = 1; step <= nSteps; step++) {
    await progress(step - 1, nWork);
    const { loss, right, steps } = lossOf(learned, lesson), found = execute(learned.program, feedOf(lesson), { wanted: gradients.map((name) => `${name}.grad`), known: steps });
    const size = Math.sqrt(gradients.reduce((sum, name) => sum + norm(floats(found.get(`${name}.grad`)!)) ** 2, 0)), most = data.max_grad_norm > 0 ? data.max_grad_norm : Infinity;
    const clipped = Math.min(1, most / (size + 1e-6)), next = { ...learned.program.params };
    if (!Number.isFinite(loss) || !Number.isFinite(size)) throw new Refused(`after ${step - 1} steps the loss is ${loss}`, "lower the learning rate");
    update.clear();
    for (const name of gradients) {
      const before = next[name]!, g = floats(found.get(`${name}.grad`)!).map((one) => one * clipped), state = states.get(name) ?? {}, { shape } = before;
      for (const key of ["exp_avg", "exp_avg_sq", "momentum_buffer"]) if (state[key]) update.set(`${name}.${key}_before`, { shape, data: state[key]! });
      next[name] = { shape, data: moved(groupOf.get(name)!, before, g, state, step) };
      states.set(name, state);
      update.set(`${name}.before`, before).set(`${name}.clipped_grad`, { shape, data: g });
      for (const [key, data] of Object.entries(state)) {
        update.set(`${name}.${key}`, { shape, data });
        if (!update.has(`${name}.${key}_before`)) update.set(`${name}.${key}_before`, { shape, data: new Float32Array(data.length) });
      }
    }
    taken.push({ loss, grad_norm: size, clipped, right });
    learned = { ...learned, program: { ...learned.program, params: next } };
  }
  const explained = (of: Model, own: string, steps: number): Explained => {
    const all = execute(of.program, feedOf(lesson), { wanted });
    const found = explainEncoded(of, run, { ...request, learn_steps: steps || undefined }, own, params, { ...lesson.encoded, feed: feedOf(lesson) }, all, view.look);
    return { ...found, update };
  };
  await progress(nSteps, nWork);
  const first = lossOf(view.model, lesson), base = explained(view.model, nSteps ? `${id}-before` : id, 0);
  const facts: LearningFacts = { answer: lesson.text, labels: lesson.labels, target: lesson.target, loss: first.loss, smoothing: lesson.target === null ? data.smoothing : 0, max_grad_norm: data.max_grad_norm, groups, left_out: data.left_out, learned: null };
  base.manifest.learning = facts;
  if (!nSteps) return base;
  const last = lossOf(learned, lesson), others: NonNullable<LearningFacts["learned"]>["others"] = [];
  for (const [i, { text, answer: right }] of examples.entries()) {
    await progress(nSteps + 1 + i, nWork);
    try {
      const other = lessonOf(view.model, view.look?.names ?? model.task.labels, { text }, right);
      others.push({ text, answer: other.text, loss_before: lossOf(view.model, other, false).loss, loss_after: lossOf(learned, other, false).loss });
    } catch {
      // one that has words unknown to the model
    }
  }
  const changes = Object.fromEntries(gradients.map((name) => {
    const [was, now] = [floats(view.model.program.params[name]!), floats(learned.program.params[name]!)];
    return [name, norm(now.map((one, i) => one - was[i]!)) / Math.max(norm(was), 1e-12)];
  }));
  const after = explained(learned, id, nSteps);
  after.manifest.learning = { ...facts, learned: { steps: taken, loss: last.loss, right: last.right, moved: changes, others } };
  return { ...after, base };
}
