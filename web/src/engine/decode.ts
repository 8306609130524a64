/**
 * Writes text with a program and its cache: beam search (a beam of one is greedy) and sampling, as `decode/search.py` and
 * `decode/sampling.py` do for a single text. The random numbers are numpy's.
 */
import { filterAll } from "../trace/sampling";
import type { BeamCandidate, DecodeSettings } from "../types";
import { type Cache, execute, type Feed, hashedNgrams, type Program, type Steps } from "./program";

/** A generated sequence: its ids without BOS and EOS, and the log-probability of the whole, EOS included. */
export interface Written {
  ids: number[];
  score: number;
  log_prob: number;
  finished: boolean;
  /** Step and index among its candidates of the last one. */
  end: [number, number] | null;
}

/** A program that is being written to: the logits of the next token after each of several rows of tokens. */
export class Writer {
  constructor(private program: Program, private feed: Feed, private stream: "text" | "target", private known?: Steps, private hashed: Parameters<typeof hashedNgrams>[1] | null = null) {}

  begin = (): Cache => ({ length: 0, kept: new Map(), ids: [] });

  /** The logits after the new tokens, and the cache with them; the cache that is given stays as it is. */
  step(before: Cache, ids: readonly number[]): { logits: Float32Array; cache: Cache } {
    const cache = { ...before, kept: new Map(before.kept), ids: [...before.ids, ...ids] };
    const ngrams = this.hashed ? hashedNgrams(cache.ids, this.hashed).slice(before.ids.length) : undefined;
    const feed = { ...this.feed, ngrams, ids: { ...this.feed.ids, [this.stream]: ids } };
    const { data, shape } = execute(this.program, feed, { wanted: ["logits"], cache, known: this.known }).get("logits")!;
    return { logits: (data as Float32Array).slice(-shape.at(-1)!), cache };
  }
}

const penaltyOf = (length: number, penalty: number) => (length ? length ** penalty : 1);

/** Log-probabilities in 32-bit floats. */
function logSoftmax(logits: Float32Array): Float32Array {
  const peak = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const sum = logits.reduce((all, x) => all + Math.exp(x - peak), 0);
  return logits.map((x) => x - peak - Math.log(sum));
}

/** The indices of the k largest numbers, the first of equals first. */
function largest(values: Float32Array, k: number): number[] {
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (found.length === k && values[i]! <= values[found[k - 1]!]!) continue;
    let at = found.length;
    while (at && values[found[at - 1]!]! < values[i]!) at--;
    found.splice(at, 0, i);
    if (found.length > k) found.pop();
  }
  return found;
}

export interface Special {
  pad: number;
  bos: number;
  eos: number;
}

/**
 * The best hypotheses of one text, those that ended first, and the candidates of each step.
 *
 * @param limit maximum tokens, the prefix and the EOS included.
 * @param piece the readable form of a token.
 */
export function beamSearch(writer: Writer, limit: number, settings: DecodeSettings & { n_best: number }, special: Special, prefix: readonly number[], piece: (id: number) => string) {
  const { beam_size: width, length_penalty: penalty, n_best: wanted } = settings, { pad, bos, eos } = special;
  let live = [{ ids: [] as number[], total: 0, cache: writer.begin(), end: null as [number, number] | null }];
  const [steps, finished, ended]: [BeamCandidate[][], Written[], Written[]] = [[], [], []];
  let [nFinished, worst] = [0, -Infinity];
  for (let t = 0; ; ) {
    const each = live.map(({ ids, cache }) => writer.step(cache, [ids.at(-1) ?? bos])), size = each[0]!.logits.length;
    const totals = new Float32Array(live.length * size), own = each.map(({ logits }) => logSoftmax(logits));
    own.forEach((logProbs, w) => {
      const forced = prefix[t];
      for (const id of [pad, bos]) logProbs[id] = -Infinity;
      for (let i = 0; i < size; i++) totals[w * size + i] = forced === undefined || (w === 0 && i === forced) ? logProbs[i]! + live[w]!.total : -Infinity;
    });
    const candidates = largest(totals, width === 1 ? 1 : Math.min(2 * width, totals.length)).map((place) => {
      const [parent, id, total] = [Math.floor(place / size), place % size, totals[place]!];
      return { parent, id, piece: piece(id), log_prob: Math.fround(total - live[parent]!.total), total, score: total / penaltyOf(t + 1, penalty), row: null as number | null, finished: false };
    });
    const next: typeof live = [];
    candidates.forEach((one, rank) => {
      if (one.total === -Infinity) return;
      const { ids } = live[one.parent]!, end: [number, number] = [t, rank];
      if (one.id !== eos && next.length < width) {
        one.row = next.length;
        next.push({ ids: [...ids, one.id], total: one.total, cache: each[one.parent]!.cache, end });
      } else if (one.id === eos && rank < width) {
        one.finished = true;
        nFinished++;
        const found = { ids, score: one.score, log_prob: one.total, finished: true, end };
        ended.push(found);
        finished.push(found);
        finished.sort((a, b) => b.score - a.score);
        if (finished.length >= wanted) worst = finished[wanted - 1]!.score;
      }
    });
    steps.push(candidates.filter(({ total }) => total > -Infinity));
    [live, t] = [next, t + 1];
    const best = live[0]?.total ?? -Infinity, longest = Math.max(penaltyOf(Math.min(t + 1, limit), penalty), penaltyOf(limit, penalty));
    if (t < limit && !(nFinished >= width && worst >= best / penaltyOf(t, penalty)) && worst < best / longest) continue;
    const truncated = live.map(({ ids, total, end }) => ({ ids, score: total / penaltyOf(t, penalty), log_prob: total, finished: false, end }));
    const results = [...finished, ...truncated].slice(0, wanted);
    const others = ended.filter((one) => !results.includes(one)).sort((a, b) => b.score - a.score);
    return { hypotheses: [...results, ...others], steps };
  }
}

/** Continues a text by sampled tokens: each is the first, in the order of ids, at which the cumulative probability exceeds u times the total. */
export function sample(writer: Writer, prompt: readonly number[], limit: number, settings: DecodeSettings & { decode_seed: number }, eos: number, suppressed: readonly number[], maxLength: number): Written {
  const random = uniform(settings.decode_seed, 0), ids: number[] = [];
  for (let i = 0; i < prompt.length; i++) random();
  const jump = maxLength - Math.floor(maxLength / 2);
  let [cache, start, end, total, finished] = [writer.begin(), 0, 0, 0, false];
  while (ids.length < limit && !finished) {
    const all = [...prompt, ...ids], begins = jump * Math.ceil(Math.max(0, all.length - maxLength) / jump);
    if (begins !== start) [cache, start, end] = [writer.begin(), begins, begins];
    const step = writer.step(cache, all.slice(end));
    [cache, end] = [step.cache, all.length];
    const logProbs = logSoftmax(step.logits);
    const { bars } = filterAll(Array.from(step.logits), settings, suppressed, step.logits.length), p = new Float64Array(step.logits.length);
    for (const bar of bars) p[bar.id] = bar.after;
    const u = random();
    let [id, sum] = [0, p[0]!];
    while (sum <= u && id + 1 < p.length) sum += p[++id]!;
    total = Math.fround(total + logProbs[id]!);
    finished = id === eos;
    if (!finished) ids.push(id);
  }
  return { ids, score: total / penaltyOf(ids.length + Number(finished), settings.length_penalty), log_prob: total, finished, end: null };
}

const [M32, M64, M128] = [(1n << 32n) - 1n, (1n << 64n) - 1n, (1n << 128n) - 1n];

/** The 64-bit integers of `numpy.random.default_rng([seed, row])`: PCG64, seeded by O'Neill's seed_seq. */
function generator(seed: number, row: number): () => bigint {
  let [hash, mult] = [0x43b0d7e5n, 0x931e8875n];
  const mixed = (value: bigint) => {
    value = ((value ^ hash) * ((hash * mult) & M32)) & M32;
    hash = (hash * mult) & M32;
    return value ^ (value >> 16n);
  };
  const mix = (x: bigint, y: bigint) => {
    const value = (x * 0xca01f9ddn - y * 0x4973f715n) & M32;
    return value ^ (value >> 16n);
  };
  const pool = [BigInt(seed), BigInt(row), 0n, 0n].map(mixed);
  for (let from = 0; from < 4; from++) for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to]!, mixed(pool[from]!));
  [hash, mult] = [0x8b51f9ddn, 0x58f38dedn];
  const words = Array.from({ length: 8 }, (_, i) => mixed(pool[i % 4]!));
  const pair = (i: number) => words[2 * i]! | (words[2 * i + 1]! << 32n);
  const increment = ((((pair(2) << 64n) | pair(3)) << 1n) | 1n) & M128, multiplier = 0x2360ed051fc65da44385df649fccf645n;
  let state = 0n;
  const advance = () => (state = (state * multiplier + increment) & M128);
  advance();
  state = (state + ((pair(0) << 64n) | pair(1))) & M128;
  advance();
  return () => {
    advance();
    const [value, turn] = [((state >> 64n) ^ state) & M64, state >> 122n];
    return ((value >> turn) | (value << ((64n - turn) & 63n))) & M64;
  };
}

/** `default_rng([seed, row]).random()`, number by number. */
export function uniform(seed: number, row: number): () => number {
  const next = generator(seed, row);
  return () => Number(next() >> 11n) / 2 ** 53;
}

/** Integers from 0 to a last one, as `default_rng(seed).permutation` draws them: in halves of 64 bits, those beyond it left out. */
export function integers(seed: number): (last: number) => number {
  const next = generator(seed, 0);
  let high: number | null = null;
  const half = () => {
    if (high !== null) {
      const found = high;
      high = null;
      return found;
    }
    const both = next();
    high = Number(both >> 32n);
    return Number(both & M32);
  };
  return (last) => {
    const bits = 32 - Math.clz32(last), mask = bits === 32 ? -1 >>> 0 : (1 << bits) - 1;
    for (;;) {
      const found = (half() & mask) >>> 0;
      if (found <= last) return found;
    }
  };
}
