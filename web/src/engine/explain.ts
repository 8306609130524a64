/**
 * Explains a text in the page as `explain/explanation.py` does: its steps with all their numbers, its predictions and its
 * answer.
 */
import { FAST, run as compute, softmax, type Values } from "../tensors/walk";
import { isGradient, table } from "../trace/steps";
import type { Answer, Labels, Manifest, Prediction, RunInfo, TraceNode, TraceRequest } from "../types";
import { execute, type Program, type Steps } from "./program";
import { pieceOf } from "./streams";
import { encode, type Encoded, logged, type Model, Refused, wordsOf } from "./texts";

const MOST_CANDIDATES = 50;
const [NUMBER, NOT, MASK, OUTSIDE, THRESHOLD] = ["number", "not ", "[MASK]", "O", 0.5];
const DIGITS = 6, EXACT = 15;

/** A text on one line, its end left out where it is too long. */
export function shortened(text: string, longest: number): string {
  const line = Array.from(text.split(/\p{White_Space}+/u).filter(Boolean).join(" "));
  return line.length <= longest ? line.join("") : `${line.slice(0, longest - 1).join("").trimEnd()}…`;
}

/** A number to so many significant digits, as Python writes it ("%.6g"). */
export function general(x: number, digits: number): string {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (x === 0) return Object.is(x, -0) ? "-0" : "0";
  const exponent = Number(x.toExponential(digits - 1).split("e")[1]);
  const trimmed = (text: string) => String(Number(text)); // without zeros at the end
  if (exponent >= -4 && exponent < digits) return trimmed(x.toFixed(Math.max(0, digits - 1 - exponent)));
  const [mantissa, power] = x.toExponential(digits - 1).split("e") as [string, string];
  return `${trimmed(mantissa)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

export function numberText(x: number): string {
  const whole = Number.isFinite(x) ? Math.abs(x).toFixed(0).length : 0;
  return general(x, whole >= DIGITS && whole <= EXACT ? whole + 2 : DIGITS);
}
export const withMinus = (text: string) => text.replaceAll("-", "−");

/** A 32-bit float as the shortest decimal that rounds to it. */
const shortest = (x: number) => [6, 7, 8, 9].map((digits) => Number(x.toPrecision(digits))).find((one) => Math.fround(one) === x) ?? x;

/** The class or token of an id in readable form. */
export const readable = (model: Model, names: readonly string[] | null, id: number) => (model.task.kind === "regressor" ? NUMBER : names ? names[id]! : pieceOf(model.target, id));

/** The predictions at so many positions, one row of the logits each. */
export function predictionsOf(model: Model, names: readonly string[] | null, logits: Values, { positions, following }: Pick<Encoded, "positions" | "following">): Prediction[] {
  const width = logits.shape.at(-1)!;
  return positions.map((position, row) => {
    const z = logits.data as Float32Array, start = row * width, ids: number[] = [];
    for (let id = 0; id < width; id++) {
      const x = z[start + id]!;
      if (ids.length === MOST_CANDIDATES && x <= z[start + ids.at(-1)!]!) continue;
      let at = ids.length;
      while (at && z[start + ids[at - 1]!]! < x) at--;
      ids.splice(at, 0, id);
      if (ids.length > MOST_CANDIDATES) ids.pop();
    }
    const peak = z[start + ids[0]!]!;
    let sum = 0;
    for (let id = 0; id < width; id++) sum += Math.exp(z[start + id]! - peak);
    const norm = peak + Math.log(sum);
    if (!Number.isFinite(norm)) throw new Refused("the model's logits are NaN or infinite, so there is nothing to explain", "the model diverged in training: use an earlier checkpoint");
    const candidate = (id: number) => ({ id, piece: readable(model, names, id), logit: shortest(z[start + id]!), log_prob: Number((z[start + id]! - norm).toFixed(7)) });
    const token = following[row] ?? null;
    let rank = 0;
    if (token !== null) for (let id = 0; id < width; id++) rank += Number(z[start + id]! > z[start + token]!);
    return { position, logsumexp: norm, top: ids.map(candidate), actual: token === null ? null : candidate(token), rank: token === null ? null : rank } as Prediction;
  });
}

/** What is looked at of a model with several answers: one of its labels, or the tag of one word. */
export interface Look {
  labels: Labels;
  names: string[];
}

const percent = (p: number) => (p > 0.999 ? ">99.9%" : `${(100 * p).toFixed(1)}%`);

/** The answer that is read from the output, where no text is decoded; of edits compared with that `before`. */
export function answerOf(model: Model, look: Look | null, encoded: Encoded, text: string, output: Values, predictions: readonly Prediction[], before?: Values): Answer {
  const { task } = model, { masked } = encoded.decode;
  if (masked) {
    const width = output.shape.at(-1)!, hidden = new Set(task.without_text);
    if (!masked.length) return { headline: text, detail: `no ${MASK}` };
    const found = masked.map((row) => {
      const p = softmax(Array.from((output.data as Float32Array).subarray(row * width, (row + 1) * width), (z, id) => (hidden.has(id) ? -Infinity : z)));
      const id = p.indexOf(Math.max(...p)), { tokenizer } = model.source;
      return { word: tokenizer.decode([id]).trim() || pieceOf(model.source, id), share: p[id]! };
    });
    const parts = text.split(MASK);
    const filled = parts[0] + parts.slice(1).map((part, i) => (found[i]?.word ?? MASK) + part).join("");
    return { headline: filled, detail: found.map(({ word, share }) => `${word} ${(100 * share).toFixed(1)}%`).join(", ") };
  }
  if (task.kind === "regressor") {
    const [mean, sd] = task.scale, number = mean + sd * output.data[0]!;
    const was = before && mean + sd * before.data[0]!;
    const change = was === undefined ? "" : `${number >= was ? "+" : ""}${general(number - was, 4)} from ${numberText(was)} without edits`;
    return { headline: withMinus(numberText(number)), detail: withMinus(change || `${numberText(mean)} + ${numberText(sd)} × ${output.data[0]!.toFixed(4)}`) };
  }
  if (task.kind === "text_embedder") {
    const x = Array.from(output.data), norm = (a: readonly number[]) => Math.sqrt(a.reduce((sum, one) => sum + one * one, 0));
    const shown = withMinus(x.slice(0, 4).map((one) => one.toFixed(4)).join(" "));
    const cosine = before && x.reduce((sum, one, i) => sum + one * before.data[i]!, 0) / (norm(x) * norm(Array.from(before.data)));
    return { headline: `${shown}${x.length > 4 ? " …" : ""} (${x.length} numbers)`, detail: cosine === undefined ? `length ${norm(x).toFixed(3)}` : `cosine ${cosine.toFixed(4)} with the vector without edits` };
  }
  const [{ top }] = predictions as [Prediction], choice = look?.labels.each[look.labels.shown], threshold = choice?.threshold ?? null;
  const isAnswered = threshold !== null && top.some((one) => one.id === 1 && Math.exp(one.log_prob) >= threshold);
  const best = threshold === null ? top[0]! : top.find((one) => one.id === Number(isAnswered))!;
  const detail = percent(Math.exp(best.log_prob));
  if (choice?.word != null) return { headline: best.piece, detail: `${detail}, word ${look!.labels.shown + 1} “${shortened(choice.word, 40)}”` };
  if (choice && threshold !== THRESHOLD) return { headline: best.piece, detail: `${detail}; ${choice.name} is answered from ${(100 * threshold!).toFixed(1)}% on` };
  return { headline: best.piece, detail };
}

/** The answer of a translator or a language model: its best text, with the log-probability of that. */
export function textAnswer(text: string, { hypotheses: [best], kind }: Encoded["decode"]): Answer {
  const n = best!.ids.length + Number(best!.finished);
  return { headline: text, detail: `log-probability ${withMinus(general(best!.log_prob, 3))} over ${n === 1 ? "1 token" : `${n} tokens`}${best!.finished || kind === "given" ? "" : ", truncated before its end"}` };
}

interface Pass {
  program: Program;
  steps: Steps;
}

/** The pass of each member of an ensemble over a text, given that of the one that is looked at; of a single model that alone. */
const passesOf = ({ program, members, member }: Model, { feed }: Encoded, steps: Steps): Pass[] =>
  members.map((params, i) => (i === member ? { program, steps } : { program: { ...program, params }, steps: execute({ ...program, params }, feed) }));
const meanOf = (all: readonly (readonly number[])[]) => all[0]!.map((_, i) => all.reduce((sum, one) => sum + one[i]!, 0) / all.length);
export const outputOf = (steps: Steps) => steps.get("logits") ?? steps.get("pooled")!;

/** The output of all members of an ensemble together: their mean number, or the logarithm of their mean probability. */
function outputTogether(passes: readonly Pass[]): Values {
  const outputs = passes.map(({ steps }) => outputOf(steps)), { shape } = outputs[0]!, width = shape.at(-1)!;
  const all = outputs.map(({ data }) => Array.from({ length: data.length / width }, (_, r) => {
    const row = Array.prototype.slice.call(data, r * width, (r + 1) * width) as number[];
    return width > 1 ? softmax(row) : row;
  }).flat());
  return { shape, data: Float32Array.from(meanOf(all), (x) => (width > 1 ? Math.log(x) : x)) };
}

/** What a request looks at of a model with several answers. */
function lookAt(model: Model, request: TraceRequest, encoded: Encoded, steps: Steps): Look | null {
  const { task, program } = model, names = task.labels ?? [], passes = passesOf(model, encoded, steps);
  if (task.kind === "multilabel_classifier") {
    const from = program.nodes.find(({ id }) => id === "head")!.inputs[0]!;
    const of = ({ program: { params }, steps }: Pass) => compute(table.rows.linear!, { x: steps.get(from)!, weight: params["head.weight"]!, bias: params["head.bias"]! }, FAST).data;
    const shares = meanOf(passes.map((pass) => Array.from(of(pass), (z) => 1 / (1 + Math.exp(-z)))));
    const named = request.label ?? (request.answer === undefined ? undefined : names.includes(request.answer) ? request.answer : request.answer.replace(NOT, ""));
    const shown = named === undefined ? shares.indexOf(Math.max(...shares)) : names.indexOf(named);
    if (shown < 0) throw new Refused(`${named} is not a label of this model`, `there are ${names.slice(0, 10).join(", ")}${names.length > 10 ? ", …" : ""}`);
    const each = names.map((name, i) => ({ name, probability: shares[i]!, threshold: task.thresholds?.[i] ?? THRESHOLD, word: null }));
    return { labels: { shown, each }, names: [`${NOT}${names[shown]}`, names[shown]!] };
  }
  if (task.kind !== "tagger") {
    if (request.label !== undefined) throw new Refused("this run's texts have one answer each, so there is no label to choose", "remove label");
    return null;
  }
  const { words, spans } = wordsOf(request.text), tokens = encoded.streams[0]!.spans, places = words.map(() => -1);
  tokens.forEach((span, token) => {
    if (!span || span[1] <= span[0]) return;
    const word = spans.findIndex(([, end]) => end > span[0]);
    if (word >= 0 && spans[word]![0] < span[1] && places[word]! < 0) places[word] = token;
  });
  const known = places.findLastIndex((place) => place >= 0) + 1;
  if (!known) throw new Refused("the text holds no word that the model reads", "give a text with words");
  const tagged = places.slice(0, known).map((place) => {
    if (place < 0) return { tag: names[0]!, probability: 1 };
    const p = meanOf(passes.map(({ program, steps }) => softmax(execute(program, { ...encoded.feed, word: place }, { wanted: ["logits"], known: withoutWord(steps) }).get("logits")!.data)));
    const best = p.indexOf(Math.max(...p));
    return { tag: names[best]!, probability: p[best]! };
  });
  const asked = request.label?.trim(), number = Number(/^(\d{1,9})( [\s\S]*)?$/.exec(asked ?? "")?.[1]);
  const spelled = (f: (text: string) => string) => words.slice(0, known).findIndex((word) => f(word) === f(asked!));
  const shown = asked === undefined ? Math.max(0, tagged.findIndex(({ tag }) => tag !== OUTSIDE))
    : number >= 1 && number <= known ? number - 1 : [spelled((text) => text), spelled((text) => text.toLowerCase())].find((i) => i >= 0) ?? -1;
  if (shown < 0) throw new Refused(`${asked} is not a word of this text that the model reads`, `name one of them, or its number from 1 to ${known}`);
  if (places[shown]! < 0) throw new Refused(`the model has no token for word ${shown + 1}, ${words[shown]}`, "choose another word");
  encoded.feed.word = places[shown];
  return { labels: { shown, each: tagged.map(({ tag, probability }, i) => ({ name: `${i + 1} ${words[i]} ${tag}`, probability, threshold: null, word: words[i]! })) }, names };
}

/** The steps of a pass that no choice of a word changes. */
const withoutWord = (steps: Steps): Steps => new Map([...steps].filter(([id]) => id !== "mask" && id !== "pooled" && id !== "logits" && id !== "head"));

/** A text that was explained: its manifest, and the values of its steps. */
export interface Explained {
  manifest: Manifest;
  steps: Steps;
  encoded: Encoded;
  model: Model;
  look: Look | null;
  /** The same text without the edits of the request, and the second text whose values they take. */
  base?: Explained;
  other?: Explained;
  /** The last step of the optimizer: of each parameter its value before it, the gradient, and what is kept of it. */
  update?: Steps;
}

/** Of several labels the program of one, which has one row of the head. */
export function ofLabel(model: Model, label: number): Model {
  const one = (params: Program["params"]) => {
    const weight = params["head.weight"]!, bias = params["head.bias"]!, width = weight.shape[1]!;
    const row = { shape: [1, width], data: (weight.data as Float32Array).subarray(label * width, (label + 1) * width) };
    return { ...params, "head.weight": row, "head.bias": { shape: [1], data: [bias.data[label]!] } };
  };
  return { ...model, members: model.members.map(one), program: { ...model.program, params: one(model.program.params) } };
}

/** The nodes of a text: those of the program with the sizes of its own tokens. */
export function nodesOf(model: Model, encoded: Encoded, steps: Steps): TraceNode[] {
  return model.program.nodes.filter(({ id }) => steps.has(id)).map((node) => {
    const { shape, data } = steps.get(node.id)!;
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < data.length; i++) if (Math.abs(data[i]!) < 1e30) [low, high] = [Math.min(low, data[i]!), Math.max(high, data[i]!)];
    const { word = 0, labels, number } = encoded.feed, own: TraceNode["attrs"] = { token: word, labels: [...(labels ?? [])], number: number! };
    const attrs = Object.fromEntries(Object.entries(node.attrs).map(([name, value]) => [name, name in own ? own[name]! : value]));
    return { ...node, attrs, inputs: node.inputs.filter((one) => steps.has(one)), axes: node.axes.map((axis, i) => ({ ...axis, size: shape[i]! })), min: low <= high ? low : null, max: low <= high ? high : null };
  });
}

/** A model as a request looks at it, the steps of its text, and of a tagger the token of the word. */
export function looked(model: Model, request: TraceRequest, encoded = encode(model, request)): { model: Model; look: Look | null; word: number | undefined; steps: Steps } {
  let steps = execute(model.program, encoded.feed);
  const look = lookAt(model, request, encoded, steps), { word } = encoded.feed;
  if (!look) return { model, look, word, steps };
  if (word === undefined) model = ofLabel(model, look.labels.shown);
  steps = execute(model.program, encoded.feed, { known: withoutWord(steps) });
  return { model, look, word, steps };
}

/** Explains a text without edits and without learning. */
export function explain(model: Model, run: RunInfo, request: TraceRequest, id: string, params: Manifest["params"]): Explained {
  const encoded = encode(model, request), view = looked(model, request, encoded);
  return explainEncoded(view.model, run, request, id, params, encoded, view.steps, view.look);
}

/** Explains an encoded text, given the values of its steps. */
export function explainEncoded(model: Model, run: RunInfo, request: TraceRequest, id: string, params: Manifest["params"], encoded: Encoded, steps: Steps, look: Look | null): Explained {
  const output = outputOf(steps), names = look?.names ?? model.task.labels;
  const predictions = predictionsOf(model, names, output, encoded);
  const decode = encoded.decode.kind === "given" ? scored(model, encoded, predictions) : encoded.decode;
  const answer = decode.hypotheses.length ? textAnswer(encoded.text, decode) : answerOf(model, look, encoded, request.text, output, predictions);
  const n = model.members.length, warnings = [...encoded.warnings];
  let together: Answer | null = null;
  if (n > 1 && !decode.hypotheses.length) {
    const all = outputTogether(passesOf(model, encoded, steps));
    together = answerOf(model, look, encoded, request.text, all, predictionsOf(model, names, all, encoded));
    const shown = ({ headline, detail }: Answer) => `${shortened(headline, 80)} (${detail})`;
    warnings.push(`all ${n} models together answer ${shown(together)}; member ${model.member}, shown here, answers ${shown(answer)}`);
  }
  const nodes = nodesOf(model, encoded, steps), manifest: Manifest = {
    format: "glassformer-trace-1", id, model: look ? { ...run.model, label_names: look.names } : run.model, request, streams: encoded.streams, answer, labels: look?.labels ?? null,
    temperature: model.task.temperature, together, nodes: nodes.filter((node) => !isGradient(node)), gradients: nodes.filter(isGradient), params, predictions, decode,
    checks: [], warnings, refused: {}, seconds: 0, edited: null, learning: null,
  };
  return { manifest, steps, encoded, model, look };
}

/** The log of a text with the log-probability that other predictions give it. */
export function given({ decode, streams }: Encoded, predictions: readonly Prediction[]): Encoded["decode"] {
  const first = streams.length > 1 ? 0 : decode.first, [best, ...others] = decode.hypotheses;
  const log_prob = predictions.slice(first).reduce((sum, { actual }) => sum + (actual?.log_prob ?? 0), 0);
  return best ? { ...decode, hypotheses: [{ ...best, log_prob }, ...others] } : decode;
}

/** The log of a text that was given, with the model's score of it. */
function scored({ target, task }: Model, { decode, following }: Encoded, predictions: readonly Prediction[]): Encoded["decode"] {
  const written = predictions.slice(decode.first, following.length).flatMap(({ actual }) => (actual ? [actual] : []));
  const log_prob = written.reduce((sum, one) => sum + one.log_prob, 0), all = written.map(({ id }) => id);
  const finished = all.at(-1) === task.special.eos, ids = finished ? all.slice(0, -1) : all;
  return { ...decode, hypotheses: [logged(target, { ids, score: log_prob / (all.length || 1) ** decode.settings.length_penalty, log_prob, finished, end: null })] };
}
