/**
 * What a model is given for a text, as in prediction: its tokens, cut to what it reads, and the text that it writes
 * (`explain/inputs.py`). A new family is an entry of `FAMILIES`.
 */
import { isGradient } from "../trace/steps";
import type { DecodeLog, Stream, TraceRequest } from "../types";
import { beamSearch, sample, Writer, type Written } from "./decode";
import { execute, type Feed, hashedNgrams, type Program } from "./program";
import { decodedSpans, makeStream, pieceOf, type Vocabulary, withSpelling } from "./streams";
import { type Span, type Token, Tokenizer } from "./tokens";

export type Kind = "classifier" | "multilabel_classifier" | "tagger" | "regressor" | "text_embedder" | "translator" | "language_model" | "masked_language_model";

/** Of a run what its texts and answers need (`page/model_file.py`). */
export interface TaskData {
  kind: Kind;
  labels: string[] | null;
  max_len: number;
  truncate: "head" | "tail" | "head+tail";
  decode: Required<DecodeLog["settings"]> & { n_best: number; decode_seed: number };
  /** Ids by role, -1 for none; around each text, and between the two texts of a pair. */
  special: Record<"pad" | "unk" | "bos" | "eos" | "mask", number> & { ids: number[]; prefix: number[]; suffix: number[]; separator: number[]; imported: boolean };
  /** Ids that are never generated, and those that stand for no text. */
  suppressed: number[];
  without_text: number[];
  /** Mean and standard deviation of the training numbers; the probability of each label from which it is answered. */
  scale: [number, number];
  thresholds: number[] | null;
  temperature: number | null;
  /** The id that stands for an erased token, and whether the model was trained with masked words. */
  erase: number;
  masks: boolean;
  /** Of a language model with n-grams of tokens: the longest, the number of special tokens, the rows of each length. */
  hashed: { max_ngram: number; special: number; rows: number } | null;
}

export interface Encoded {
  feed: Feed;
  streams: Stream[];
  positions: (number | null)[];
  following: (number | null)[];
  decode: DecodeLog;
  text: string;
  warnings: string[];
}

/** A run in the page: its program, and its texts' tokens. */
export interface Model {
  program: Program;
  /** The parameters of all members of an ensemble, and which of them the program has. */
  members: Program["params"][];
  member: number;
  task: TaskData;
  source: Vocabulary;
  target: Vocabulary;
}

/** An error of the reader's. */
export class Refused extends Error {
  constructor(message: string, readonly hint = "") {
    super(message);
  }
}

export const [MAX_TOKENS, MAX_EDITED] = [512, 128];
const [SEPARATOR, MASK, NEW_TOKENS] = ["[SEP]", "[MASK]", 40];
const PARTS = { head: "beginning", tail: "end", "head+tail": "beginning and end", middle: "middle" };

export function makeVocabulary(content: any, { special }: TaskData): Vocabulary {
  const { ngrams, bigrams } = content.model.spelling ?? {};
  const rows = (bigrams ?? []).map(([a, b]: [number, number]) => `${a} ${b}`) as string[];
  const key = (pair: string) => pair.split(" ").map(Number) as [number, number];
  rows.sort((x, y) => key(x)[0] - key(y)[0] || key(x)[1] - key(y)[1]);
  return {
    tokenizer: new Tokenizer(content), special: new Set(special.ids), pad: special.pad, unknown: special.unk,
    ngrams: ngrams?.length ? new Map((ngrams as string[]).map((one, i) => [one, 257 + i])) : undefined,
    bigrams: rows.length ? new Map(rows.map((pair, i) => [pair, i + 1])) : undefined,
    isLower: new Tokenizer(content).normalise("A").at(-1) === "a",
  };
}

/** The numbers from 0 to n - 1 of which so many are kept. */
function truncate(n: number, most: number, keep: TaskData["truncate"]): number[] {
  const all = Array.from({ length: n }, (_, i) => i);
  if (n <= most) return all;
  const tail = keep === "head" ? 0 : keep === "tail" ? most : Math.floor(most / 2);
  return [...all.slice(0, most - tail), ...all.slice(n - tail)];
}

/** The tokens of a text; of a pair those of both, with what stands between them. */
function tokensOf({ source, task }: Model, text: string): Token[] {
  const { separator } = task.special;
  if (!separator.length) return source.tokenizer.encode(text);
  const parts = text.split(SEPARATOR);
  if (parts.length !== 2) throw new Refused(`this model reads two texts, with one ${SEPARATOR} between them; ${parts.length - 1} are in the text`, `write the pair as: first text ${SEPARATOR} second text`);
  const [first, second] = [parts[0]!.replace(/ $/, ""), parts[1]!.replace(/^ /, "")];
  const at = Array.from(parts[0]!).length, start = Array.from(text).length - Array.from(second).length;
  const between = separator.map((id): Token => ({ id, span: [at, at + SEPARATOR.length] }));
  return [...source.tokenizer.encode(first), ...between, ...source.tokenizer.encode(second).map(({ id, span }): Token => ({ id, span: [span[0] + start, span[1] + start] }))];
}

/** Which tokens of a text are kept; of a pair the longer text is cut until both fit. */
function keptOf({ task }: Model, tokens: readonly Token[], room: number, keep: TaskData["truncate"]): number[] {
  const { separator } = task.special;
  if (!separator.length || tokens.length <= room) return truncate(tokens.length, room, keep);
  const n = separator.length, at = tokens.findIndex(({ id }) => id === separator[0]), free = room - n, second = tokens.length - at - n;
  const first = Math.min(at, Math.max(free - second, free - Math.floor(free / 2)));
  return [...truncate(at, first, keep), ...separator.map((_, i) => at + i), ...truncate(second, free - first, keep).map((i) => at + n + i)];
}

function warningsOf(model: Model, tokens: readonly Token[], kept: readonly number[], name: string, keep: keyof typeof PARTS, reads = 0, vocabulary = model.source): string[] {
  const warnings: string[] = [];
  if (!tokens.length) warnings.push(`${name} is empty`);
  if (kept.length < tokens.length) {
    warnings.push(`${name} was truncated from ${tokens.length} to ${kept.length} tokens, keeping its ${PARTS[keep]}`);
    if (kept.length < Math.min(tokens.length, reads)) warnings.push(`an explanation shows at most ${MAX_TOKENS} tokens, and prediction reads up to ${reads}: it may answer differently`);
  }
  const unknown = kept.filter((i) => tokens[i]!.id === vocabulary.unknown).length;
  if (unknown) warnings.push(`${unknown} of ${kept.length} tokens of ${name} ${unknown === 1 ? "is" : "are"} unknown to the model${vocabulary.ngrams ? ", but the model reads their n-grams" : ""}`);
  return warnings;
}

const framed = <T>({ prefix, suffix }: TaskData["special"], tokens: readonly T[], none: (id: number) => T): T[] => [...prefix.map(none), ...tokens, ...suffix.map(none)];
const bare = (id: number): { id: number; span: Span | null } => ({ id, span: null });
const roomOf = ({ special }: TaskData, most: number) => Math.max(0, most - special.prefix.length - special.suffix.length);
const nothing = (model: Model): DecodeLog => ({ kind: "none", settings: model.task.decode, hypotheses: [], steps: [], prefix: [], first: 0, n_fixed: 0, suppressed: [], masked: null });

/** A text for a text encoder, given the tokens that it reads. */
function encodeKept(model: Model, text: string, tokens: readonly Token[], kept: readonly number[], keep: keyof typeof PARTS, reads: number): Encoded {
  const { source, task } = model, warnings = warningsOf(model, tokens, kept, "the text", keep, reads);
  const read = kept.map((i) => tokens[i]!), all = framed(task.special, read as { id: number; span: Span | null }[], bare);
  // An empty text is one token of padding.
  let stream = makeStream(source, "text", all.length ? all : [bare(task.special.pad)], text);
  if (!all.length) stream = { ...stream, padding: [true] };
  stream = withSpelling(source, stream, read);
  return {
    feed: { ids: { text: stream.ids }, hidden: stream.padding, ngrams: stream.ngram_ids ?? undefined, bigrams: stream.bigram_ids ?? undefined },
    streams: [stream], positions: [null], following: [null], decode: nothing(model), text: "", warnings,
  };
}

/** Words of running text: letters and digits, also joined by marks, or equal marks in a row. */
const WORD = /[\p{L}\p{N}_](?:[\p{L}\p{N}_]|[-'’.](?=[\p{L}\p{N}_])|(?<=\p{Nd})[,:/](?=\p{Nd}))*|([^\p{L}\p{N}_\p{White_Space}])\1*/gu;

/** The words of a text, and where each stands, by code points; marks and joiners are as the character before them. */
export function wordsOf(text: string): { words: string[]; spans: Span[] } {
  const characters = Array.from(text), plain: string[] = [];
  for (const one of characters) {
    const before = plain.at(-1);
    plain.push(/^[\p{M}\u200c\u200d]$/u.test(one) && before && !/\p{White_Space}/u.test(before) ? before : one);
  }
  const place: number[] = [];
  plain.forEach((one, i) => Array.from({ length: one.length }, () => place.push(i)));
  place.push(characters.length);
  const spans = Array.from(plain.join("").matchAll(WORD), ({ index, 0: found }): Span => [place[index]!, place[index + found.length]!]);
  return { words: spans.map((span) => characters.slice(...span).join("")), spans };
}

function encodeForClassifier(model: Model, { text }: TraceRequest): Encoded {
  const { task } = model, room = roomOf(task, Math.min(task.max_len, MAX_TOKENS)), reads = roomOf(task, task.max_len);
  if (task.kind !== "tagger") {
    const tokens = tokensOf(model, text);
    return encodeKept(model, text, tokens, keptOf(model, tokens, room, task.truncate), task.truncate, reads);
  }
  const { words, spans } = wordsOf(text), joined = words.join(" ");
  const starts = words.map((_, i) => Array.from(words.slice(0, i).join(" ")).length + Number(i > 0));
  const wordAt = (at: number) => starts.findLastIndex((start) => start <= at);
  const tokens = model.source.tokenizer.encode(joined).map(({ id, span: [start, end] }): Token => {
    if (end <= start) return { id, span: [0, 0] };
    const [first, last] = [wordAt(start), wordAt(end - 1)];
    return { id, span: [Math.min(spans[first]![0] + start - starts[first]!, spans[first]![1]), Math.min(spans[last]![0] + end - starts[last]!, spans[last]![1])] };
  });
  return encodeKept(model, text, tokens, truncate(tokens.length, room, "head"), "head", reads);
}

const encodeForVector = (model: Model, request: TraceRequest): Encoded => ({ ...encodeForClassifier(model, request), positions: [], following: [] });

function encodeForMasked(model: Model, { text }: TraceRequest): Encoded {
  const { task, source } = model, { special } = task, parts = text.split(MASK), tokens: Token[] = [];
  let start = 0;
  parts.forEach((part, i) => {
    if (i) tokens.push({ id: special.mask, span: [start - MASK.length, start - MASK.length] });
    const isLast = i === parts.length - 1, given = isLast || source.tokenizer.isOfCharacters ? part : part.replace(/ $/, "");
    const begins = start;
    tokens.push(...source.tokenizer.encode(given).map(({ id, span }): Token => ({ id, span: [span[0] + begins, span[1] + begins] })));
    start += Array.from(part).length + MASK.length;
  });
  const reads = roomOf(task, task.max_len), room = roomOf(task, Math.min(task.max_len, MAX_TOKENS));
  const first = Math.max(0, tokens.findIndex(({ id }) => id === special.mask)), chunk = Math.floor(first / reads) * reads;
  const from = chunk + Math.floor((first - chunk) / room) * room, to = Math.min(from + room, chunk + reads, tokens.length);
  const keep = from === 0 ? "head" : to === tokens.length ? "tail" : "middle";
  const kept = Array.from({ length: to - from }, (_, i) => from + i);
  const encoded = encodeKept(model, text, tokens, kept, keep, Math.min(reads, tokens.length - chunk)), [stream] = encoded.streams as [Stream];
  const masked = stream.ids.flatMap((id, i) => (id === special.mask ? [i] : []));
  return {
    ...encoded, positions: stream.ids.map((_, i) => i), following: stream.ids.map((id) => (source.special.has(id) ? null : id)),
    warnings: [...encoded.warnings, ...(masked.length ? [] : [`the text holds no ${MASK}, so each token is predicted from a text that shows it`])],
    decode: { ...encoded.decode, first: masked[0] ?? 0, n_fixed: stream.ids.length, suppressed: task.without_text, masked },
  };
}

export const logged = (vocabulary: Vocabulary, { ids, score, log_prob, finished, end }: Written): DecodeLog["hypotheses"][number] =>
  ({ ids, pieces: ids.map((id) => pieceOf(vocabulary, id)), text: vocabulary.tokenizer.decode(ids.filter((id) => !vocabulary.special.has(id))), score, log_prob, finished, end });

const follow = (ids: readonly number[], finished: boolean, eos: number, n: number): (number | null)[] =>
  Array.from({ length: n }, (_, i) => ids[i] ?? (finished && i === ids.length ? eos : null));

function encodeForTranslator(model: Model, request: TraceRequest): Encoded {
  const { task, source, target, program } = model, { special } = task, isEmpty = !request.text.trim();
  const settings = { ...task.decode, ...request.decode }, longest = Math.min(task.max_len, MAX_TOKENS - 1), room = roomOf(task, longest);
  const tokens = isEmpty ? [] : source.tokenizer.encode(request.text), read = tokens.slice(0, room);
  const warnings = warningsOf(model, tokens, read.map((_, i) => i), "the text", "head", roomOf(task, task.max_len));
  let all = framed(special, read as { id: number; span: Span | null }[], bare);
  if (!special.imported) all = [...all, bare(special.eos)];
  if (!all.length) all = [bare(special.pad)];
  const src = makeStream(source, "source", all, request.text), ids = src.ids;
  let decode: DecodeLog, text: string, output: Written, spans: (Span | null)[];
  if (request.target !== undefined) {
    const given = target.tokenizer.encode(request.target);
    warnings.push(...warningsOf(model, given, given.slice(0, longest).map((_, i) => i), "the target", "head", task.max_len, target));
    output = { ids: given.slice(0, longest).map(({ id }) => id), score: 0, log_prob: 0, finished: true, end: null };
    [text, spans, decode] = [request.target, given.slice(0, longest).map(({ span }) => span), { ...nothing(model), kind: "given", settings }];
  } else {
    const prefix = request.prefix ?? [], limit = Math.max(1, Math.min(task.max_len, settings.max_new_tokens, 2 * ids.length + 20));
    decode = { ...nothing(model), kind: settings.sample ? "sample" : "beam", settings, prefix };
    if (isEmpty) decode.hypotheses = [logged(target, { ids: [], score: 0, log_prob: 0, finished: true, end: null })];
    else {
      const memory = program.nodes.findLast(({ id, stack }) => stack === "encoder" && !isGradient({ id }))!.id;
      const writer = new Writer(program, { ids: { source: ids } }, "target", execute(program, { ids: { source: ids } }, { wanted: [memory] }));
      if (settings.sample) decode.hypotheses = [logged(target, sample(writer, [special.bos], limit, settings, special.eos, task.suppressed, task.max_len))];
      else {
        if (prefix.length >= limit) throw new Refused(`a prefix of ${prefix.length} tokens leaves nothing to generate of the ${limit} tokens allowed`, "shorten the prefix or raise max_new_tokens");
        const found = beamSearch(writer, limit, settings, special, prefix, (id) => pieceOf(target, id));
        decode = { ...decode, hypotheses: found.hypotheses.map((one) => logged(target, one)), steps: found.steps };
      }
    }
    const best = decode.hypotheses[0]!;
    output = { ...best };
    [text, spans] = decodedSpans(target, best.ids);
    if (!best.finished) warnings.push(`the translation was truncated at ${best.ids.length} tokens, without an end token`);
  }
  const written = [bare(special.bos), ...output.ids.map((id, i) => ({ id, span: spans[i] ?? null }))], shown = written.slice(0, Math.min(task.max_len, MAX_TOKENS));
  if (shown.length <= output.ids.length) warnings.push(`the translation has ${output.ids.length} tokens, of which the first ${shown.length - 1} are shown`);
  const nGiven = decode.kind === "given" ? shown.length : 1 + (request.prefix?.length ?? 0);
  const tgt = makeStream(target, "target", shown, text, nGiven);
  return {
    feed: { ids: { source: ids, target: tgt.ids } }, streams: [src, tgt], positions: tgt.ids.map((_, i) => i), following: follow(output.ids, output.finished, special.eos, tgt.ids.length),
    decode: { ...decode, first: decode.kind === "given" ? 0 : nGiven - 1, n_fixed: 1, suppressed: task.suppressed }, text, warnings,
  };
}

function encodeForLanguageModel(model: Model, request: TraceRequest): Encoded {
  const { task, source, program } = model, { special } = task, prompted = source.tokenizer.encode(request.text);
  const tokens = framed(special, prompted as { id: number; span: Span | null }[], bare);
  const given = source.tokenizer.encode(request.target ?? "").map(({ id }) => id), start = special.eos >= 0 ? special.eos : special.pad;
  const prompt = [...(tokens.length ? tokens.map(({ id }) => id) : [start]), ...(request.prefix ?? []), ...given];
  const context = Math.min(task.max_len, MAX_TOKENS), jump = context - Math.floor(context / 2), begins = jump * Math.ceil(Math.max(0, prompt.length - context) / jump);
  const read = tokens.length ? prompt.map((id) => ({ id }) as Token) : [], warnings = warningsOf(model, read, read.map((_, i) => i).slice(begins), "the prompt", "tail", task.max_len);
  let settings = { ...task.decode, sample: true, max_new_tokens: Math.min(NEW_TOKENS, task.decode.max_new_tokens), ...request.decode };
  let decode: DecodeLog = { ...nothing(model), kind: "given", settings }, fresh: Written = { ids: [], score: 0, log_prob: 0, finished: false, end: null };
  if (!given.length) {
    const room = Math.max(1, context - (prompt.length - begins)), limit = MAX_EDITED - prompt.length;
    if (request.decode?.max_new_tokens === undefined) settings = { ...settings, max_new_tokens: Math.min(settings.max_new_tokens, limit > 0 ? limit : NEW_TOKENS, room) };
    else if (settings.max_new_tokens > room) {
      warnings.push(`max_new_tokens was lowered to ${room}, to fit into ${context === task.max_len ? `the context of ${context} tokens` : `the ${context} tokens of an explanation`}`);
      settings = { ...settings, max_new_tokens: room };
    }
    const read = context === task.max_len ? prompt : prompt.slice(begins);
    fresh = sample(new Writer(program, { ids: {} }, "text", undefined, task.hashed), read, settings.max_new_tokens, settings, special.eos, task.suppressed, context);
    decode = { ...decode, kind: "sample", settings, hypotheses: [logged(source, fresh)], prefix: request.prefix ?? [] };
  }
  const all = [...prompt, ...fresh.ids], nPrompt = tokens.length;
  const [whole, allSpans] = decodedSpans(source, all), before = all.slice(0, nPrompt || 1), low = Array.from(request.text).length;
  const shift = low - Array.from(source.tokenizer.decode(before.filter((id) => !source.special.has(id)))).length;
  const text = request.text + Array.from(whole).slice(low - shift).join("");
  const spans = [...(nPrompt ? tokens.map(({ span }) => span) : [null]), ...allSpans.slice(before.length).map((span): Span | null => span && [Math.max(low, span[0] + shift), Math.max(low, span[1] + shift)])];
  const ids = all.slice(begins, given.length ? -1 : begins + context), nGiven = Math.min(ids.length, prompt.length - begins);
  let stream = makeStream(source, "text", ids.map((id, i) => ({ id, span: spans[begins + i] ?? null })), text, nGiven);
  if (task.hashed) {
    const rows = hashedNgrams(ids, task.hashed);
    stream = { ...stream, ngram_ids: rows, ngrams: rows.map((row, end) => row.flatMap((id, i) => (id ? [stream.pieces.slice(end - i - 1, end + 1).join("")] : []))) };
  }
  const n = prompt.length - begins - given.length;
  return {
    feed: { ids: { text: ids }, ngrams: stream.ngram_ids ?? undefined }, streams: [stream], positions: ids.map((_, i) => i), following: follow(all.slice(begins + 1), fresh.finished, special.eos, ids.length),
    decode: { ...decode, first: n - 1, n_fixed: n - (request.prefix?.length ?? 0), suppressed: task.suppressed }, text: source.tokenizer.decode((given.length ? given : fresh.ids).filter((id) => !source.special.has(id))), warnings,
  };
}

const FAMILIES: Record<Kind, (model: Model, request: TraceRequest) => Encoded> = {
  classifier: encodeForClassifier,
  multilabel_classifier: encodeForClassifier,
  tagger: encodeForClassifier,
  regressor: encodeForVector,
  text_embedder: encodeForVector,
  masked_language_model: encodeForMasked,
  translator: encodeForTranslator,
  language_model: encodeForLanguageModel,
};

/** What a model reads of a text, and writes. */
export const encode = (model: Model, request: TraceRequest): Encoded => FAMILIES[model.task.kind](model, request);
