/**
 * What is followed of a text, as one number for each prediction, and what edits change: of a text alone, and of the same kind of
 * edit all over a model (`explain/edits/effects.py`, `sweeps.py`).
 */
import { run, type Values } from "../tensors/walk";
import { argumentsOf, rowOfStep } from "../trace/operations";
import type { Effect, Manifest, Prediction, Sweep, SweepRow, TraceNode, WhatIf } from "../types";
import { Edits, unaffected } from "./edits";
import { answerOf, type Explained, given, nodesOf, numberText, outputOf, predictionsOf, readable, textAnswer, withMinus } from "./explain";
import { execute, type Steps } from "./program";
import { encode, Refused } from "./texts";

const [NUMBER, MEAN, MIN_DIFFERENCE, MIN_DEVIATIONS] = ["number", "mean of the training numbers", 0.5, 0.1];

/** What is followed: the log-probability of a class or token of each row of the logits, the logit minus that of a foil, or a number. */
export interface Measure {
  rows: number[];
  ids: number[];
  foil: number | null;
  /** Of a number what is added to the output times the second. */
  scale: [number, number] | null;
  target: string;
  contrast: string;
  positions: (number | null)[];
}

const isNumber = ({ model }: Explained) => model.task.kind === "regressor";
export const namesOf = ({ look, model }: Explained) => look?.names ?? model.task.labels;
const named = (e: Explained, id: number) => readable(e.model, namesOf(e), id);

/** The indices of the predictions that make the answer. */
export function answered({ manifest: { predictions, decode } }: Explained): number[] {
  if (predictions.length && predictions[0]!.position === null) return [0];
  if (decode.masked?.length) return decode.masked;
  return predictions.flatMap(({ position }, i) => (position !== null && position >= decode.first ? [i] : []));
}

function checkAnswer(e: Explained): void {
  if (e.model.task.kind === "text_embedder") throw new Refused("a bare encoder gives a vector, and no answer to explain", "edit a step, as in encoder.0.self.head1=0");
}

const chosenOf = ({ actual, top }: Prediction) => actual ?? top[0]!;

export function measureOfAnswer(e: Explained): Measure {
  checkAnswer(e);
  if (isNumber(e)) return { rows: [0], ids: [0], foil: null, scale: e.model.task.scale, target: NUMBER, contrast: "", positions: [null] };
  const rows = answered(e), chosen = rows.map((i) => e.manifest.predictions[i]!), ids = chosen.map((one) => chosenOf(one).id);
  return { rows, ids, foil: null, scale: null, target: named(e, ids[0]!), contrast: "", positions: chosen.map(({ position }) => position) };
}

/** The index of a prediction, by default the first of the answer. */
export function predictionIndex(e: Explained, prediction?: number): number {
  checkAnswer(e);
  const n = Math.max(e.manifest.predictions.length, Number(isNumber(e)));
  if (prediction === undefined) return answered(e)[0] ?? n - 1;
  if (prediction < 0 || prediction >= n) throw new Refused(`prediction ${prediction} does not exist`, `predictions run from 0 to ${n - 1}`);
  return prediction;
}

export function measureOfDifference(e: Explained, prediction: number, target?: number, foil?: number): Measure {
  if (isNumber(e)) return { rows: [0], ids: [0], foil: null, scale: [0, e.model.task.scale[1]], target: NUMBER, contrast: MEAN, positions: [null] };
  const chosen = e.manifest.predictions[prediction]!, id = target ?? chosenOf(chosen).id, other = foil ?? chosen.top.find((one) => one.id !== id)!.id;
  return { rows: [prediction], ids: [id], foil: other, scale: null, target: named(e, id), contrast: named(e, other), positions: [chosen.position] };
}

const rowsOf = ({ data, shape }: Values) => Array.from({ length: data.length / shape.at(-1)! }, (_, r) => Array.prototype.slice.call(data, r * shape.at(-1)!, (r + 1) * shape.at(-1)!) as number[]);
function logSoftmax(z: readonly number[]): number[] {
  const peak = z.reduce((a, b) => Math.max(a, b), -Infinity), norm = peak + Math.log(z.reduce((sum, x) => sum + Math.exp(x - peak), 0));
  return z.map((x) => x - norm);
}
const largest = (z: readonly number[]) => z.indexOf(z.reduce((a, b) => Math.max(a, b), -Infinity));
const sum = (all: readonly number[]) => all.reduce((a, b) => a + b, 0);

/** What is followed of each prediction, given the logits, or the output, of a text. */
export function followed({ rows, ids, foil, scale }: Measure, logits: Values): number[] {
  if (scale) return [scale[0] + scale[1] * logits.data[0]!];
  const all = rowsOf(logits);
  return rows.map((row, i) => (foil === null ? logSoftmax(all[row]!)[ids[i]!]! : all[row]![ids[i]!]! - all[row]![foil]!));
}

function read(e: Explained, measure: Measure, logits: Values): string[] {
  if (measure.scale) return followed(measure, logits).map((x) => withMinus(numberText(x)));
  const all = rowsOf(logits);
  return measure.rows.map((row) => named(e, largest(all[row]!)));
}

/**
 * The steps of a text under edits, of which only those are computed that depend on an edited one. The edits of the text itself
 * act first.
 */
export function edited(e: Explained, edits: readonly string[], other: Explained | null = null, wanted?: readonly string[]): { steps: Steps; tap: Edits } {
  const { base = e } = e, { nodes } = base.manifest, tap = new Edits(edits, nodes, other && { nodes: other.manifest.nodes, steps: other.steps });
  const first = e.manifest.edited && new Edits(e.manifest.edited.edits, nodes, e.other ? { nodes: e.other.manifest.nodes, steps: e.other.steps } : null);
  const both = (id: string, value: Values) => tap.tap(id, first ? first.tap(id, value) : value);
  const known = unaffected(base.model.program.nodes, base.steps, [...tap.steps, ...(first?.steps ?? [])]);
  for (const [id, value] of known) both(id, value); // states that an edit takes
  const steps = execute(base.model.program, base.encoded.feed, { tap: both, known, wanted: wanted ?? nodes.map(({ id }) => id) });
  if (tap.idle) throw new Refused(`the edit ${tap.idle} never acted: the forward pass did not reach its step`);
  return { steps, tap };
}

/** What changes in each prediction of the answer. */
function effectsOf(e: Explained, before: Values, after: Values): Effect[] {
  if (!e.manifest.predictions.length) return [];
  const [all, changed] = [rowsOf(before), rowsOf(after)];
  return answered(e).map((i) => {
    const prediction = e.manifest.predictions[i]!, [a, w] = [all[i]!, changed[i]!], target = chosenOf(prediction).id, instead = largest(w);
    const other = instead !== target ? instead : prediction.top.find(({ id }) => id !== target)!.id;
    return {
      position: prediction.position, target: named(e, target), contrast: named(e, other), before: prediction.top[0]!.piece, after: named(e, instead),
      difference_before: a[target]! - a[other]!, difference_after: w[target]! - w[other]!, log_prob_before: logSoftmax(a)[target]!, log_prob_after: logSoftmax(w)[target]!,
      rank_after: w.filter((x) => x > w[target]!).length,
    };
  });
}

/** The text of an explanation under edits. */
export function withEdits(base: Explained, edits: readonly string[], other: Explained | null, id: string, request: Manifest["request"]): Explained {
  const { steps, tap } = edited(base, edits, other), { model, encoded, look } = base, output = outputOf(steps);
  const predictions = predictionsOf(model, namesOf(base), output, encoded), before = outputOf(base.steps);
  let [answer, why_not] = [null as Manifest["answer"] | null, ""];
  if (!base.manifest.decode.hypotheses.length) answer = answerOf(model, look, encoded, base.manifest.request.text, output, predictions, before);
  else if (base.manifest.request.target !== undefined) why_not = "the text was given, so it is not decoded again";
  else {
    const placed = tap.ofPositions(encoded.streams.at(-1)!.name);
    if (placed) why_not = `not decoded again, as ${placed} is about positions of this text`;
    else {
      const again = new Edits(edits, base.manifest.nodes, other && { nodes: other.manifest.nodes, steps: other.steps });
      const decoded = encode({ ...model, program: { ...model.program, tap: again.tap } }, base.manifest.request);
      if (again.idle) why_not = `not decoded again, as ${again.idle} does not act while decoding`;
      else answer = textAnswer(decoded.text, decoded.decode);
    }
  }
  const what: WhatIf = {
    edits: tap.texts, applied: tap.applied, unchanged: tap.unchanged, answer_before: base.manifest.answer.headline, answer_after: answer?.headline ?? null, why_not,
    same: [...steps].filter(([one, { data }]) => same(data, base.steps.get(one)?.data)).map(([one]) => one), effects: effectsOf(base, before, output), member: model.members.length > 1 ? model.member : null,
  };
  const kept = answer ?? textAnswer(base.manifest.answer.headline, given({ ...encoded, decode: base.manifest.decode }, predictions));
  const manifest: Manifest = { ...base.manifest, id, request, answer: kept, predictions, checks: [], edited: what, nodes: nodesOf(model, encoded, steps) };
  return { manifest, steps, encoded, model, look, base, other: other ?? undefined };
}

const same = (a: ArrayLike<number>, b: ArrayLike<number> | undefined) => a === b || (b !== undefined && a.length === b.length && Array.prototype.every.call(a, (x, i) => x === b[i]));

type Variants = readonly (readonly [name: string, edits: readonly string[]])[];

/** Long work in parts: what is done of how much, between which the page lives. */
export type Progress = (done: number, of: number) => Promise<void>;

/** What several named sets of edits change; a set may be empty. */
async function swept(e: Explained, variants: Variants, measure: Measure, progress: Progress, isEach = false, other: Explained | null = null): Promise<Sweep> {
  const base = outputOf(e.steps), whole = followed(measure, base), before = read(e, measure, base), rows: SweepRow[] = [];
  for (const [name, edits] of variants) {
    await progress(rows.length, variants.length);
    const logits = edits.length ? outputOf(edited(e, edits, other, ["logits"]).steps) : base;
    const [values, texts] = [followed(measure, logits), read(e, measure, logits)], changes = values.map((x, i) => x - whole[i]!);
    const at = changes.indexOf(Math.min(...changes));
    rows.push({
      name, edits: [...edits], value_before: sum(whole), value_after: sum(values), before: before[at]!, after: texts[at]!, n_changed: texts.filter((text, i) => text !== before[i]).length,
      position: measure.positions[at] ?? null, effects: isEach ? effectsOf(e, base, logits) : [], alone: null, direct: null, back: null,
    });
  }
  return { rows, target: measure.target, contrast: measure.contrast, position: measure.positions[0] ?? null, value: sum(whole), error: null };
}

const range = (n: number) => Array.from({ length: n }, (_, i) => i);
const blockOf = (id: string) => id.replace(/\.[^.]+$/, "");

/** Each head and block switched off, and each head alone. */
async function sweepParts(e: Explained, progress: Progress): Promise<Sweep> {
  const off: [string, string[]][] = [], alone: [string, string[]][] = [];
  for (const node of e.manifest.nodes) {
    const block = blockOf(node.id);
    if (node.site === "weights") {
      const heads = range(node.axes[0]!.size).map((h): [string, string] => [`${block}.head${h}`, `${block}.context[head:${h}]=0`]);
      off.push(...heads.map(([name, edit]): [string, string[]] => [name, [edit]]), [block, [`${block}.context=0`]]);
      for (const [name] of heads) alone.push([name, heads.filter(([other]) => other !== name).map(([, edit]) => edit)]);
    } else if (node.block === "ff" && node.site === "out") off.push([block, [`${node.id}=0`]]);
  }
  const found = await swept(e, [...off, ...alone.filter(([, edits]) => edits.length)], measureOfAnswer(e), progress);
  const others = new Map(found.rows.slice(off.length).map((row) => [row.name, row]));
  return { ...found, rows: found.rows.slice(0, off.length).map((row) => ({ ...row, alone: others.get(row.name) ?? null })) };
}

/** Each head kept from attending to each token. */
const sweepKeys = (e: Explained, progress: Progress) =>
  swept(e, e.manifest.nodes.filter(({ site }) => site === "weights").flatMap((node) => {
    const block = blockOf(node.id), [heads, , keys] = node.axes.map(({ size }) => size) as [number, number, number];
    return range(heads).flatMap((h) => range(keys).map((k): [string, string[]] => [block, [`${block}.scores[head:${h};key:${k}]=blocked`]]));
  }), measureOfAnswer(e), progress);

/** Of each stream the names of its states in order of computation. */
function statesOf({ manifest: { nodes } }: Explained): string[][] {
  const depths = new Map<string, number>();
  for (const { stack, layer } of nodes) if (layer !== null) depths.set(stack, layer + 1);
  const names = depths.size === 1 ? ["embedding"] : ["source", "target"];
  return [...depths].map(([stack, depth], i) => [names[i]!, ...range(depth).map((layer) => `${stack}.${layer}.state`)]);
}

/** What the model would answer after each layer, with the later ones skipped. */
const sweepLayers = (e: Explained, progress: Progress) =>
  swept(e, statesOf(e).flatMap((states) => states.map((state, n): [string, string[]] => [state, states.slice(n + 1).map((later) => `${later}=skip`)])), measureOfAnswer(e), progress, true);

type Part = readonly [name: string, edit: string, direct: number];

/** Why the output of a model is no sum of parts; undefined where it is. */
export function whyNoSum(nodes: readonly TraceNode[]): string | undefined {
  const of = new Map(nodes.map((node) => [node.id, node])), logits = of.get("logits");
  if (!logits) return "a bare encoder gives a vector, and has no logit";
  const end = of.get((logits.op === "pin_zero" ? of.get(logits.inputs[0]!)! : logits).inputs[0]!)!;
  if (of.get(end.inputs[0] ?? "")?.op === "gelu") return "the head of a masked language model is not linear, so the output is no sum of parts";
  if (end.op === "tanh" || end.op === "relu") return "the pooler before the head is not linear, so the output is no sum of parts";
  return undefined;
}

/** The parts whose sum is a logit difference: what each wrote to the residual stream, every norm with its statistics held. */
async function contributions(e: Explained, prediction: number | undefined, progress: Progress): Promise<Sweep> {
  const index = predictionIndex(e, prediction), measure = measureOfDifference(e, index), why = whyNoSum(e.manifest.nodes);
  if (why) throw new Refused(why);
  const logits = outputOf(e.steps), width = logits.shape.at(-1)!, slopes = new Float64Array(logits.data.length);
  if (measure.foil === null) slopes[0] = measure.scale![1];
  else [slopes[index * width + measure.ids[0]!], slopes[index * width + measure.foil]] = [1, -1];
  const parts = [...partsOf(e, "logits", { shape: logits.shape, data: slopes })];
  const found = await swept(e, parts.map(([name, edit]) => [name, edit ? [edit] : []]), measure, progress);
  return { ...found, rows: found.rows.map((row, i) => ({ ...row, direct: parts[i]![2] })), error: sum(parts.map(([, , direct]) => direct)) - found.value };
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>) => {
  let all = 0;
  for (let i = 0; i < a.length; i++) all += a[i]! * b[i]!;
  return all;
};

/** The parts of a step, given what a unit of each of its numbers adds to what is followed. */
function* partsOf(e: Explained, id: string, slopes: Values): Generator<Part> {
  const parts = [...computedParts(e, id, slopes)], { edited: result } = e.manifest;
  yield* parts;
  const of = result?.applied.find(({ step, edit }) => (step === id || step === `${id.replace(/\.out$/, "")}.concat`) && !result.unchanged.includes(result.edits[edit]!));
  if (of && parts.length > 1) yield [`edit of ${of.step}`, "", dot(e.steps.get(id)!.data, slopes.data) - sum(parts.map(([, , direct]) => direct))];
}

function* computedParts(e: Explained, id: string, slopes: Values): Generator<Part> {
  const node = e.manifest.nodes.find((one) => one.id === id)!, value = e.steps.get(id)!, { params } = e.model.program;
  const weight = params[node.params.weight ?? ""], bias = params[node.params.bias ?? ""], width = slopes.shape.at(-1)!, input = node.inputs[0]!;
  const rows = rowsOf(slopes);
  if (node.op === "add") {
    for (const part of node.inputs) yield* partsOf(e, part, slopes);
    return;
  }
  if (node.op === "pool" || node.op === "pin_zero") {
    const operation = rowOfStep({ ...node, op: `${node.op === "pool" ? `pool:${node.attrs.how}` : node.op}.x`, attrs: {} })!;
    const names = Object.fromEntries(Object.entries(argumentsOf(node, rowOfStep(node)!)).map(([name, one]) => [name, e.steps.get(one)]));
    const x = e.steps.get(input)!;
    yield* partsOf(e, input, { shape: x.shape, data: run(operation, { mask: null, ...names, y: value, g: { shape: value.shape, data: slopes.data } }).data });
    return;
  }
  const isOut = node.op === "linear" && node.block !== "ff" && node.site === "out";
  if (node.op === "linear" && node.stack === "head") {
    const used = range(width).filter((c) => rows.some((row) => row[c])), features = weight!.shape[1]!, data = new Float64Array(rows.length * features);
    rows.forEach((row, r) => used.forEach((c) => range(features).forEach((f) => (data[r * features + f]! += row[c]! * weight!.data[c * features + f]!))));
    const x = e.steps.get(input)!;
    yield* partsOf(e, input, { shape: x.shape, data });
  } else if (node.op === "layer_norm" || node.op === "rms_norm") {
    const x = e.steps.get(input)!, data = new Float64Array(slopes.data.length);
    rowsOf(x).forEach((row, r) => {
      const isCentred = node.op === "layer_norm", mean = isCentred ? sum(row) / width : 0;
      const deviation = Math.sqrt(sum(row.map((one) => (one - mean) ** 2)) / width + Number(node.attrs.eps));
      const inner = rows[r]!.map((slope, c) => slope * (weight ? weight.data[c]! : 1)), middle = isCentred ? sum(inner) / width : 0;
      inner.forEach((slope, c) => (data[r * width + c] = (slope - middle) / deviation));
    });
    yield* partsOf(e, input, { shape: x.shape, data });
  } else if (isOut) {
    const block = id.replace(/\.out$/, ""), { shape: [heads, tokens, size], data } = e.steps.get(`${block}.context`)! as { shape: number[]; data: ArrayLike<number> };
    for (const h of range(heads!)) {
      let direct = 0;
      for (let t = 0; t < tokens!; t++) for (let f = 0; f < size!; f++) {
        const x = data[(h * tokens! + t) * size! + f]!;
        let slope = 0;
        for (let c = 0; c < width; c++) slope += rows[t]![c]! * weight!.data[c * heads! * size! + h * size! + f]!;
        direct += x * slope;
      }
      yield [`${block}.head${h}`, `${block}.context[head:${h}]=0`, direct];
    }
  } else {
    const direct = dot(value.data, slopes.data);
    yield node.op === "linear" ? [id.replace(/\.out$/, ""), `${id}=0`, direct] : [id, "", direct];
    return;
  }
  if (bias) yield [node.params.bias!, "", sum(rows.map((row) => dot(bias.data, row)))];
}

/** What each state of the residual stream carries: exchanged between two texts, in both directions. */
async function sweepStates(e: Explained, other: Explained, progress: Progress): Promise<Sweep> {
  const [measure, answer, foil] = compared(e, other), [a, b] = [e, other].map((one) => followed(measure, outputOf(one.steps))[0]!) as [number, number];
  const least = measure.scale ? MIN_DEVIATIONS * e.model.task.scale[1] : MIN_DIFFERENCE;
  if (Math.abs(a - b) < least) throw new Refused(`the ${measure.scale ? `number is ${answer} for one text and ${foil} for` : `logit difference is ${a.toFixed(2)} in one text and ${b.toFixed(2)} in`} the other, too similar for shares`, "choose texts whose answers are more certain");
  const end = e.manifest.decode.masked ? null : measure.positions[0] ?? null;
  const places = statesOf(e).flatMap((states, i) => states.flatMap((state) => pairsOf(e, other, i, end).map(([here, there]) => ({ state, here, there }))));
  if (!places.length) throw new Refused("no token of one text stands for one of the other: the texts share no beginning and no end", "choose texts of equally many tokens");
  const exchanged = (to: "here" | "there", from: "here" | "there") => places.map((place): [string, string[]] => [place.state, [`${place.state}[token:${place[to]}]=B[token:${place[from]}]`]]);
  const found = await swept(e, exchanged("here", "there"), measure, progress, false, other), back = await swept(other, exchanged("there", "here"), measure, progress, false, e);
  return { ...found, target: answer, contrast: foil, rows: found.rows.map((row, i) => ({ ...row, position: places[i]!.here, back: { ...back.rows[i]!, position: places[i]!.there } })) };
}

function compared(a: Explained, b: Explained): [Measure, string, string] {
  checkAnswer(a);
  if (isNumber(a)) {
    const [first, second] = [a, b].map((one) => read(a, measureOfAnswer(a), outputOf(one.steps))[0]!) as [string, string];
    return [measureOfDifference(a, 0), first, second];
  }
  const alike = new Refused("both texts have the same answer", "choose a second text with another answer"), [one, two] = [a.manifest, b.manifest];
  if (one.labels && two.labels && one.labels.shown !== two.labels.shown) throw new Refused("the two texts are looked at for different labels", "choose the same for the second, too");
  if (String(one.decode.masked) !== String(two.decode.masked)) throw new Refused("both texts need [MASK] at the same positions", "change other tokens");
  if (one.decode.first !== two.decode.first) throw new Refused("both prompts need equally many tokens", "change a token of the prompt for another");
  const [first, second] = [answered(a), answered(b)], chosen = (e: Explained, i: number) => (e.manifest.predictions[0]!.position === null ? e.manifest.predictions[0]!.top[0]! : chosenOf(e.manifest.predictions[i]!)).id;
  const at = first.findIndex((i, n) => n < second.length && chosen(a, i) !== chosen(b, second[n]!));
  if (at < 0) throw alike;
  const measure = measureOfDifference(a, first[at]!, chosen(a, first[at]!), chosen(b, second[at]!));
  return [measure, measure.target, measure.contrast];
}

/** Positions that stand for each other: all of equally long texts, else the common beginning and end. */
function pairsOf(a: Explained, b: Explained, stream: number, end: number | null): [number, number][] {
  const cut = (ids: readonly number[]) => (end !== null && stream === a.encoded.streams.length - 1 ? ids.slice(0, end + 1) : ids);
  const [first, second] = [cut(a.encoded.streams[stream]!.ids), cut(b.encoded.streams[stream]!.ids)];
  if (first.length === second.length) return first.map((_, i) => [i, i]);
  const shortest = Math.min(first.length, second.length);
  let [start, tail] = [0, 0];
  while (start < shortest && first[start] === second[start]) start++;
  while (tail < shortest - start && first.at(-1 - tail) === second.at(-1 - tail)) tail++;
  return [...range(start).map((i): [number, number] => [i, i]), ...range(tail).map((i): [number, number] => [first.length - tail + i, second.length - tail + i])];
}

/** A sweep of one kind. */
export function sweep(e: Explained, kind: string, other: Explained | null, prediction: number | undefined, progress: Progress): Promise<Sweep> {
  if (kind === "parts") return sweepParts(e, progress);
  if (kind === "keys") return sweepKeys(e, progress);
  if (kind === "layers") return sweepLayers(e, progress);
  if (kind === "contributions") return contributions(e, prediction, progress);
  if (kind === "states" && other) return sweepStates(e, other, progress);
  throw new Refused("this page holds no checkpoints of the training");
}
