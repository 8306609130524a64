/**
 * Weighs the words of a text for one prediction: by leaving each out, or by integrated gradients, with the faithfulness of the
 * ranking beside that of random rankings (`explain/attribution.py`).
 */
import type { Values } from "../tensors/walk";
import type { AttributeRequest, Attribution, Erased, Faithfulness, Stream, StreamName } from "../types";
import { integers } from "./decode";
import { followed, type Measure, measureOfAnswer, measureOfDifference, namesOf, predictionIndex, type Progress } from "./effects";
import { type Explained, outputOf, predictionsOf, readable } from "./explain";
import { execute, type Feed } from "./program";
import { pieceOf } from "./streams";
import { Refused } from "./texts";

/** What is explained as a function of the words that are erased. */
interface Game {
  e: Explained;
  measure: Measure;
  prediction: number;
  position: number | null;
  /** What the prediction depends on, and of each of its tokens the number of its word, -1 for those that are never erased. */
  streams: { name: StreamName; ids: number[]; words: number[] }[];
  n: number;
}

function gameOf(e: Explained, { prediction, target, foil }: AttributeRequest): Game {
  if (e.manifest.edited) throw new Refused("words are weighed without edits only", "take the explanation without edits");
  const index = predictionIndex(e, prediction), isClassifier = e.manifest.predictions[0]?.position === null;
  let measure = e.model.task.kind === "regressor" ? measureOfAnswer(e) : measureOfDifference(e, index, target, foil);
  if (foil !== undefined && measure.ids[0] === foil) throw new Refused(`target and foil are both ${foil}`, "choose another class or token to contrast with");
  if (!isClassifier && foil === undefined) measure = { ...measure, foil: null };
  const position = measure.positions[0] ?? null, isMasked = e.manifest.decode.masked !== null;
  let n = 0;
  const streams = e.encoded.streams.map((stream, i) => {
    const isCut = position !== null && !isMasked && i === e.encoded.streams.length - 1, size = isCut ? position + 1 : stream.ids.length;
    const numbers = new Map<number, number>();
    const words = stream.words.slice(0, size).map((word, t) => {
      if (word < 0 || stream.special[t] || stream.padding[t]) return -1;
      if (!numbers.has(word)) numbers.set(word, n + numbers.size);
      return numbers.get(word)!;
    });
    n += numbers.size;
    return { name: stream.name, ids: stream.ids.slice(0, size), words };
  });
  const row = position === null ? 0 : isMasked ? index : position;
  return { e, measure: { ...measure, rows: [row] }, prediction: index, position, streams, n };
}

/** What the model reads with some tokens erased, by stream; an erased token loses its n-grams. */
function feedOf({ e, streams }: Game, erased: (stream: number, token: number) => boolean): Feed {
  const { encoded: { feed }, model } = e;
  const ids = Object.fromEntries(streams.map(({ name, ids: own }, s) => [name, own.map((id, t) => (erased(s, t) ? model.task.erase : id))])) as Feed["ids"];
  const read = Object.values(ids)[0]!, { bigrams } = model.source;
  return {
    ...feed, ids, ngrams: feed.ngrams?.slice(0, read.length).map((row, t) => (erased(0, t) ? row.map(() => 0) : row)),
    bigrams: bigrams && read.map((id, t) => bigrams.get(`${read[t - 1]} ${id}`) ?? 0),
  };
}

const logitsOf = (game: Game, erased: (stream: number, token: number) => boolean): Values =>
  outputOf(execute(game.e.model.program, feedOf(game, erased), { wanted: [game.e.steps.has("logits") ? "logits" : "pooled"] }));

/** The quantity with some words erased; equal sets of words are evaluated once. */
function valuesOf(game: Game) {
  const known = new Map<string, number>();
  return (words: ReadonlySet<number>): number => {
    const key = [...words].sort((a, b) => a - b).join();
    let value = known.get(key);
    if (value === undefined) known.set(key, (value = followed(game.measure, logitsOf(game, (s, t) => words.has(game.streams[s]!.words[t]!)))[0]!));
    return value;
  };
}
type Value = ReturnType<typeof valuesOf>;

const range = (n: number) => Array.from({ length: n }, (_, i) => i);
const sum = (all: readonly number[]) => all.reduce((a, b) => a + b, 0);
const tokensOf = ({ streams }: Game) => streams.flatMap(({ words }) => words);

/** Of each token its share of the drop when its word is erased. */
async function leaveOneOut(game: Game, value: Value, progress: Progress): Promise<number[]> {
  const whole = value(new Set()), all = tokensOf(game), shares: number[] = [];
  for (const word of range(game.n)) {
    await progress(word, game.n);
    shares.push((whole - value(new Set([word]))) / Math.max(1, all.filter((one) => one === word).length));
  }
  return all.map((word) => shares[word] ?? 0);
}

const [PANEL, MIN_STEPS, MAX_STEPS, TOLERANCE, MIN_RANGE] = [8, 16, 1024, 0.02, 1e-6];

/** Points and weights of the Gauss–Legendre rule on [-1, 1], by Newton's method. */
export function gauss(n: number): [number, number][] {
  return range(n).map((i) => {
    let x = -Math.cos((Math.PI * (i + 0.75)) / (n + 0.5)), slope = 1;
    for (let round = 0; round < 50; round++) {
      let [p, before] = [1, 0];
      for (let k = 1; k <= n; k++) [p, before] = [((2 * k - 1) * x * p - (k - 1) * before) / k, p];
      slope = (n * (x * p - before)) / (x * x - 1);
      const step = p / slope;
      x -= step;
      if (Math.abs(step) < 1e-16) break;
    }
    return [x, 2 / ((1 - x * x) * slope * slope)];
  });
}

/** The step of each stream that holds its embeddings before positions are added. */
function embeddingsOf({ e, streams }: Game): string[] {
  return streams.map(({ name }) => {
    const own = e.model.program.nodes.filter(({ stack, id }) => stack === name && !id.includes(".grad")), added = own.find(({ id }) => id.endsWith(".sum"));
    return added?.inputs[0] ?? own.findLast(({ op }) => op !== "layer_norm" && op !== "rms_norm")!.id;
  });
}

/** The gradient of the quantity with respect to the logits. */
function slopeOf({ measure }: Game, logits: Values): Values {
  const width = logits.shape.at(-1)!, data = new Float32Array(logits.data.length), start = measure.rows[0]! * width, id = measure.ids[0]!;
  if (measure.scale) data[0] = measure.scale[1];
  else if (measure.foil !== null) [data[start + id], data[start + measure.foil]] = [1, -1];
  else {
    const row = Array.prototype.slice.call(logits.data, start, start + width) as number[], peak = Math.max(...row), e = row.map((z) => Math.exp(z - peak)), all = sum(e);
    e.forEach((one, i) => (data[start + i] = Number(i === id) - one / all));
  }
  return { shape: logits.shape, data };
}

/** The scores of tokens along the straight line from the text with every word erased to the text, and their error. */
async function integratedGradients(game: Game, progress: Progress): Promise<[number[], Attribution["completeness"]]> {
  const { program } = game.e.model, steps = embeddingsOf(game), gradients = steps.map((id) => `${id}.grad`);
  const text = feedOf(game, () => false), none = feedOf(game, (s, t) => game.streams[s]!.words[t]! >= 0);
  const [from, to] = [none, text].map((feed) => execute(program, feed, { wanted: steps })), starts = steps.map((id) => from!.get(id)!), ends = steps.map((id) => to!.get(id)!);
  const along = (alpha: number): { value: number; slopes: number[] } => {
    const known = new Map(steps.map((id, s) => [id, { shape: ends[s]!.shape, data: Float32Array.from(ends[s]!.data, (x, i) => starts[s]!.data[i]! + alpha * (x - starts[s]!.data[i]!)) }]));
    const forward = execute(program, text, { wanted: ["logits"], known }), logits = outputOf(forward);
    const back = execute(program, text, { wanted: gradients, known: new Map([...forward, ["logits.grad", slopeOf(game, logits)]]) });
    const slopes = steps.flatMap((_, s) => {
      const g = back.get(gradients[s]!)!, width = g.shape.at(-1)!;
      return range(g.data.length / width).map((t) => sum(range(width).map((f) => g.data[t * width + f]! * (ends[s]!.data[t * width + f]! - starts[s]!.data[t * width + f]!))));
    });
    return { value: followed(game.measure, logits)[0]!, slopes };
  };
  const integral = (start: number, end: number, points: number) => {
    const each = gauss(points).map(([x, w]): [number[], number] => [along(start + ((end - start) * (x + 1)) / 2).slopes, w]);
    const scores = each[0]![0].map((_, t) => (sum(each.map(([slopes, w]) => slopes[t]! * w)) / 2) * (end - start));
    return { start, end, change: along(end).value - along(start).value, scores };
  };
  const n = Math.max(1, MIN_STEPS / PANEL);
  let parts = range(n).map((i) => integral(i / n, (i + 1) / n, PANEL)), nSteps = PANEL * n;
  const total = sum(parts.map(({ change }) => change)), allowed = TOLERANCE * Math.max(Math.abs(total), MIN_RANGE);
  const errorOf = ({ scores, change }: (typeof parts)[number]) => Math.abs(sum(scores) - change);
  while (sum(parts.map(errorOf)) > allowed) {
    await progress(nSteps, MAX_STEPS);
    const bad = parts.filter((part) => errorOf(part) > allowed * (part.end - part.start)).sort((a, b) => errorOf(b) - errorOf(a)).slice(0, Math.floor((MAX_STEPS - nSteps) / (2 * PANEL)));
    if (!bad.length) break;
    const halves = bad.flatMap(({ start, end }) => [integral(start, (start + end) / 2, PANEL), integral((start + end) / 2, end, PANEL)]);
    parts = [...parts.filter((part) => !bad.includes(part)), ...halves];
    nSteps += PANEL * halves.length;
  }
  const added = (some: typeof parts) => some[0]!.scores.map((_, t) => sum(some.map(({ scores }) => scores[t]!))), scores = added(parts);
  const second = added(parts.map(({ start, end }) => integral(start, end, PANEL + 1))), relative = Math.abs(sum(scores) - total) / Math.max(Math.abs(total), MIN_RANGE);
  return [scores, { relative, n_steps: nSteps, ok: relative <= TOLERANCE || game.n === 0, token_error: Math.max(0, ...scores.map((x, t) => Math.abs(second[t]! - x))) }];
}

const [SHARES, MAX_RANDOM, MIN_RANDOM, RANDOM_TOKENS, MIN_WORDS] = [[0.1, 0.2, 0.5], 200, 100, 160_000, 6];
const sizesOf = (n: number) => SHARES.map((share) => Math.max(1, Math.ceil(share * n - 1e-9)));

/** Comprehensiveness and sufficiency of a ranking: the mean drop when its first words are erased, and when only they are kept. */
function drops(value: Value, ranking: readonly number[]): [number, number] {
  if (!ranking.length) return [0, 0];
  const whole = value(new Set()), sizes = sizesOf(ranking.length);
  const mean = (erased: (size: number) => readonly number[]) => sum(sizes.map((size) => whole - value(new Set(erased(size))))) / sizes.length;
  return [mean((size) => ranking.slice(0, size)), mean((size) => ranking.slice(size))];
}

/** A percentile with linear interpolation, as numpy's. */
function percentile(all: readonly number[], q: number): number {
  const ordered = [...all].sort((a, b) => a - b), at = (q / 100) * (ordered.length - 1), low = Math.floor(at);
  return ordered[low]! + (ordered[Math.min(low + 1, ordered.length - 1)]! - ordered[low]!) * (at - low);
}

const known = new WeakMap<Explained, Map<string, [number, number][]>>();

async function randomDrops(game: Game, value: Value, progress: Progress): Promise<[number, number][]> {
  const kept = known.get(game.e) ?? new Map<string, [number, number][]>(), key = JSON.stringify(game.measure);
  known.set(game.e, kept);
  if (!kept.has(key)) {
    const affordable = Math.floor(RANDOM_TOKENS / (2 * SHARES.length * tokensOf(game).length)), n = Math.min(MAX_RANDOM, Math.max(MIN_RANDOM, affordable));
    const below = integers(0), found: [number, number][] = [];
    for (const i of range(n)) {
      await progress(i, n);
      const ranking = range(game.n);
      for (let last = game.n - 1; last > 0; last--) {
        const other = below(last);
        [ranking[last], ranking[other]] = [ranking[other]!, ranking[last]!];
      }
      found.push(drops(value, ranking));
    }
    kept.set(key, found);
  }
  return kept.get(key)!;
}

/** The words of a stream as far as its first tokens write them; "" for a word that begins later. */
function wordsRead({ word_texts, words, spans, text, pieces }: Stream, n: number): string[] {
  return word_texts.map((whole, number) => {
    const tokens = words.flatMap((word, i) => (word === number ? [i] : [])), read = tokens.filter((i) => i < n), known = read.flatMap((i) => (spans[i] ? [spans[i]!] : []));
    if (read.length === tokens.length) return whole;
    if (!known.length) return read.map((i) => pieces[i]).join("");
    return Array.from(text).slice(Math.min(...known.map(([a]) => a)), Math.max(...known.map(([, b]) => b))).join("").trim().replaceAll("\n", "\\n") || "▁";
  });
}

export async function attribute(e: Explained, request: AttributeRequest, progress: Progress): Promise<Attribution> {
  const game = gameOf(e, request), value = valuesOf(game), method = request.method ?? "erase", { task } = e.model;
  const [scores, completeness] = method === "erase" ? [await leaveOneOut(game, value, progress), null] : await integratedGradients(game, progress);
  const ofWords = range(game.n).map((word) => sum(tokensOf(game).map((one, t) => (one === word ? scores[t]! : 0))));
  const random = await randomDrops(game, value, progress), own = drops(value, range(game.n).sort((a, b) => ofWords[b]! - ofWords[a]! || a - b));
  const faithful = (which: 0 | 1): Faithfulness => {
    const all = random.map((one) => one[which]), [low, high] = [percentile(all, 2.5), percentile(all, 97.5)];
    return { value: own[which], random_mean: sum(all) / all.length, random_low: low, random_high: high, beats_random: which ? own[1] < low : own[0] > high };
  };
  const [comprehensiveness, sufficiency] = [faithful(0), faithful(1)];
  const logits = logitsOf(game, () => false), width = logits.shape.at(-1)!, z = Array.prototype.slice.call(logits.data, game.measure.rows[0]! * width, (game.measure.rows[0]! + 1) * width) as number[];
  const peak = Math.max(...z), norm = peak + Math.log(sum(z.map((x) => Math.exp(x - peak))));
  const candidate = (id: number) => ({ id, piece: readable(e.model, namesOf(e), id), logit: z[id]!, log_prob: z[id]! - norm });
  const target = candidate(game.measure.ids[0]!), foil = game.measure.foil === null ? null : candidate(game.measure.foil);
  const quantity = game.position !== null ? [target, foil].flatMap((one) => (one ? [`log p of '${one.piece}'`] : [])).join(" minus ") : foil ? `logit of ${target.piece} minus logit of ${foil.piece}` : "the number";
  let at = 0;
  const byStream = Object.fromEntries(game.streams.map(({ name, words }, s) => {
    const part = scores.slice(at, (at += words.length));
    return [name, [...part, ...Array<number>(e.encoded.streams[s]!.ids.length - part.length).fill(0)]];
  }));
  return {
    method, quantity, target, foil, value: value(new Set()), scores: byStream, word_texts: Object.fromEntries(game.streams.map(({ name, words }, s) => [name, wordsRead(e.encoded.streams[s]!, words.length)])),
    completeness, comprehensiveness, sufficiency, n_random: random.length, erased_with: pieceOf(e.model.source, task.erase), prediction: game.prediction,
    warnings: warningsOf(game, completeness, [comprehensiveness, sufficiency]),
  };
}

function warningsOf({ e: { model, encoded }, n }: Game, completeness: Attribution["completeness"], tests: readonly Faithfulness[]): string[] {
  if (!n) return ["there is no word to erase"];
  const warnings: string[] = [], single = sizesOf(n).filter((size) => size === 1).length;
  if (!model.task.masks) warnings.push("the model was not trained with word masking: a text with [UNK] is unlike its training data, which is part of the effect of erasing");
  else if (encoded.streams.length > 1) warnings.push("source words were masked in training, but target words never were");
  if (completeness && !completeness.ok) warnings.push(`after ${completeness.n_steps} steps the sum of the scores is off by ${Math.round(100 * completeness.relative)}% of the range: rely only on the largest scores`);
  if (!completeness && single) warnings.push(`${single} of the ${SHARES.length} parts of comprehensiveness erase a single word, as leave-one-out does: there this ranking is the best possible by construction`);
  if (n < MIN_WORDS) warnings.push(`only ${n === 1 ? "one word" : `${n} words`} can be erased, and random rankings of so few words are often as good as the best`);
  else if (!tests.some((test) => test.beats_random)) warnings.push("this ranking of words is no more faithful to the model than random rankings");
  return warnings;
}

/** The prediction with these tokens erased together. */
export function erase(e: Explained, request: AttributeRequest): Erased {
  const game = gameOf(e, request), { erase: places } = request;
  if (!places) throw new Refused("erase names no tokens", "give their positions by stream");
  const erased = (s: number, t: number) => places[game.streams[s]!.name]?.includes(t) ?? false, logits = logitsOf(game, erased);
  const [value] = followed(game.measure, logits), original = followed(game.measure, logitsOf(game, () => false))[0]!;
  if (e.model.task.kind === "regressor") return { prediction: { position: null, logsumexp: logits.data[0]!, top: [{ id: 0, piece: "number", logit: logits.data[0]!, log_prob: 0 }], actual: null, rank: null }, value: value!, original };
  const width = logits.shape.at(-1)!, row = { shape: [1, width], data: Float32Array.from({ length: width }, (_, i) => logits.data[game.measure.rows[0]! * width + i]!) };
  const following = [e.manifest.predictions[game.prediction]!.actual?.id ?? null];
  return { prediction: predictionsOf(e.model, namesOf(e), row, { positions: [game.position], following })[0]!, value: value!, original };
}
