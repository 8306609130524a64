/** Tests the pure functions of the Decode and Why screens. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { contributions, hypothesesOf } from "../src/screens/decode";
import { softmax } from "../src/tensors/walk";
import { filterAll, filterTop, type SamplingParams } from "../src/trace/sampling";
import { table } from "../src/trace/steps";
import { erasedPositions, gapBetween, strongest, wordsOf } from "../src/trace/words";
import type { BeamCandidate, DecodeLog, Stream } from "../src/types";

table.rows = JSON.parse(readFileSync("test/operations.json", "utf8")).rows;
const NEUTRAL: SamplingParams = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };
const LOGITS = [0.3, 2.1, -1, 2.1, 0.9, -4, 1.5, 0];

/** A plain reference implementation of the filters in decode/sampling.py. */
function reference(logits: number[], sampling: SamplingParams, suppressed: number[]): number[] {
  const p = softmax(logits.map((z, i) => (suppressed.includes(i) ? -Infinity : z)), sampling.temperature);
  const order = p.map((_, i) => i).sort((a, b) => p[b]! - p[a]! || a - b);
  const peak = Math.max(...p);
  let cumulative = 0;
  const kept = p.map(() => 0);
  order.forEach((id, rank) => {
    const ok = p[id]! > 0 && p[id]! >= sampling.min_p * peak && (!sampling.top_k || rank < sampling.top_k)
      && (sampling.top_p === 1 || rank === 0 || cumulative < sampling.top_p);
    cumulative += p[id]!;
    if (ok) kept[id] = p[id]!;
  });
  const total = kept.reduce((a, b) => a + b, 0);
  return kept.map((x) => x / total);
}

const SETTINGS: Partial<SamplingParams>[] = [
  {}, { temperature: 0.5 }, { temperature: 2 }, { top_k: 3 }, { top_p: 0.6 }, { min_p: 0.3 },
  { temperature: 1.7, top_k: 5, top_p: 0.8, min_p: 0.1 }, { temperature: 0.3, top_p: 0.05 },
];

test("filterAll agrees with the reference", () => {
  for (const setting of SETTINGS) {
    for (const suppressed of [[], [1], [0, 3]]) {
      const sampling = { ...NEUTRAL, ...setting };
      const expected = reference(LOGITS, sampling, suppressed);
      const { bars, exact, nKept } = filterAll(LOGITS, sampling, suppressed, LOGITS.length);
      assert.ok(exact);
      assert.equal(nKept, expected.filter((p) => p > 0).length);
      for (const bar of bars) {
        assert.ok(Math.abs(bar.after - expected[bar.id]!) < 1e-12, JSON.stringify([setting, suppressed, bar]));
      }
    }
  }
});

test("filterAll bars and rest sum to 1", () => {
  const { bars, rest } = filterAll(LOGITS, { ...NEUTRAL, temperature: 1.4, top_k: 6 }, [], 3);
  const total = (pick: (b: (typeof bars)[number]) => number, more: number) => bars.reduce((a, b) => a + pick(b), more);
  assert.equal(rest.n, 5);
  assert.ok(Math.abs(total((b) => b.before, rest.before) - 1) < 1e-12);
  assert.ok(Math.abs(total((b) => b.after, rest.after) - 1) < 1e-12);
});

test("filterTop agrees with filterAll where exact", () => {
  const logits = Array.from({ length: 300 }, (_, i) => 4 * Math.sin(i * 1.7) + 2 * Math.cos(i * 0.37));
  const logsumexp = Math.log(logits.reduce((a, z) => a + Math.exp(z), 0));
  const ranked = logits.map((logit, id) => ({ id, logit })).sort((a, b) => b.logit - a.logit);
  const top = ranked.slice(0, 50);
  const more = [{ temperature: 2, top_k: 80 }, { temperature: 3, top_p: 0.99 }, { top_p: 0.999 }, { temperature: 0 }];
  let nExact = 0;
  for (const setting of [...SETTINGS, ...more]) {
    for (const suppressed of [[], [ranked[3]!.id], [ranked[3]!.id, ranked[200]!.id]]) {
      const sampling = { ...NEUTRAL, ...setting };
      const truth = filterAll(logits, sampling, suppressed, 20);
      const known = filterTop(top, logsumexp, 300, sampling, suppressed, 20);
      assert.ok(Math.abs(known.rest.before - truth.rest.before) < 1e-9);
      known.bars.forEach((bar, i) => assert.ok(Math.abs(bar.before - truth.bars[i]!.before) < 1e-12));
      if (!known.exact || (suppressed.length && !Object.keys(setting).length)) continue;
      nExact++;
      assert.equal(known.nKept, truth.nKept, JSON.stringify(sampling));
      known.bars.forEach((bar, i) => {
        assert.deepEqual([bar.id, bar.dropped], [truth.bars[i]!.id, truth.bars[i]!.dropped]);
        assert.ok(Math.abs(bar.after - truth.bars[i]!.after) < 1e-9, JSON.stringify([sampling, suppressed, bar]));
      });
    }
  }
  assert.ok(nExact >= 12);
  assert.ok(!filterTop(top, logsumexp, 300, { ...NEUTRAL, temperature: 2 }, [], 20).exact);
  assert.ok(!filterTop(top, logsumexp, 300, { ...NEUTRAL, top_k: 80 }, [], 20).exact);
});

test("filterAll with temperature 0 is greedy and respects suppressed tokens", () => {
  const { bars } = filterAll(LOGITS, { ...NEUTRAL, temperature: 0 }, [1], 8);
  assert.deepEqual(bars.filter((b) => b.dropped === null).map((b) => b.id), [3]);
  assert.equal(bars.find((b) => b.id === 1)!.dropped, "suppressed");
});

const candidate = (parent: number, id: number, row: number | null, finished = false): BeamCandidate =>
  ({ parent, id, piece: `p${id}`, log_prob: -1, total: -id, score: -id, row, finished });

const LOG: DecodeLog = {
  kind: "beam", prefix: [], settings: {} as DecodeLog["settings"],
  steps: [
    [candidate(0, 5, 0), candidate(0, 6, 1), candidate(0, 7, null)],
    [candidate(1, 8, 0), candidate(0, 2, null, true), candidate(0, 9, 1)],
    [candidate(0, 2, null, true), candidate(1, 4, null)],
  ],
  hypotheses: [{ ids: [6, 8], pieces: [], text: "", score: 0, log_prob: 0, finished: true, end: [2, 0] }],
};

test("candidates of a search have all of their tokens, an outcome, and the best hypothesis", () => {
  const found = hypothesesOf(LOG), ids = (one: (typeof found)[number][number]) => one.path.map(({ id }) => id);
  assert.deepEqual(found.map((step) => step.length), [3, 3, 2]);
  assert.deepEqual(found[1]!.map(ids), [[6, 8], [5, 2], [5, 9]]);
  assert.deepEqual(found[2]!.map(ids), [[6, 8, 2], [5, 9, 4]]);
  assert.deepEqual(found.map((step) => step.map(({ outcome }) => outcome)), [["kept", "kept", "pruned"], ["kept", "finished", "kept"], ["finished", "pruned"]]);
  assert.deepEqual(found.flat().filter(({ chosen }) => chosen).map(({ candidate }) => candidate.id), [6, 8, 2]);
});

test("contributions sum to the logit for every pooling", () => {
  const x = [1, -2, 0.5, 3, 9, 9, -1, 4]; // (4, 2), the third token is padding
  const real = [true, true, false, true];
  contributions(x, real, "mean", [1, 2], 0.5).tokens.forEach((value, t) => assert.ok(Math.abs(value - [-1, 6.5 / 3, 0, 7 / 3][t]!) < 1e-12));
  assert.equal(contributions(x, real, "max", [1, 2], 0.5).logit, 0.5 + 1 * 1 + 2 * 4);
  assert.deepEqual(contributions(x, real, "max", [1, 2], 0).tokens, [1, 0, 0, 8]);
  const both = contributions(x, real, "mean+max", [1, 2, 1, 2], 0);
  assert.ok(Math.abs(both.logit - (-1 + 6.5 / 3 + 7 / 3 + 9)) < 1e-12);
  assert.deepEqual(contributions(x, real, "first", [1, 2], 0).tokens, [-3, 0, 0, 0]);
  assert.equal(contributions(x, real, "first", [1, 2], -3).size, 3 + 1 + 4, "what cancels counts twice");
});

const STREAM: Stream = {
  name: "text", ids: [1, 5, 6, 7, 2], pieces: ["[BOS]", "un", "happy", "▁end", "[EOS]"],
  special: [true, false, false, false, true], unknown: [], padding: [false, false, false, false, false],
  words: [-1, 0, 0, 1, -1], word_texts: ["unhappy", "end"], spans: [null, [0, 2], [2, 7], [8, 11], null],
  text: "unhappy end", n_given: 5,
};

test("gapBetween counts code points", () => {
  const words = wordsOf({ ...STREAM, text: "\u{1f600}\u{1f600} :  end", spans: [null, [0, 1], [1, 2], [6, 9], null] }, undefined, null);
  assert.equal(gapBetween([..."\u{1f600}\u{1f600} :  end"], words[0], words[1]!), " :  ");
});

test("wordsOf sums scores; erasedPositions lists tokens of masked words", () => {
  const words = wordsOf(STREAM, [0, 0.5, -2, 0.25, 0], 3);
  assert.deepEqual(words.map((w) => [w.text, w.score, w.later]), [["unhappy", -1.5, false], ["end", 0.25, true]]);
  assert.equal(gapBetween([...STREAM.text], words[0], words[1]!), " ");
  assert.equal(strongest(words, 1)[0]!.text, "unhappy");
  assert.deepEqual(erasedPositions(words, new Set(["text:0"])), { text: [1, 2] });
});
