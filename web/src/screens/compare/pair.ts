/** What two traces share and where they differ: their predictions, their tokens, and how many checkpoints have room. */
import { count } from "../../tensors/format";
import { stepIndex } from "../../trace/writing";
import type { Manifest, Prediction } from "../../types";

export interface PairRow {
  id: number;
  piece: string;
  /** Probabilities; null where the token is not among the 50 best that are known. */
  a: number | null;
  b: number | null;
}

/** The `most` likeliest answers of either side, by the larger of their two probabilities. */
export function pairRows(a: Prediction | undefined, b: Prediction | undefined, most: number): PairRow[] {
  const rows = new Map<number, PairRow>();
  for (const { id, piece, log_prob } of a?.top ?? []) rows.set(id, { id, piece, a: Math.exp(log_prob), b: null });
  for (const { id, piece, log_prob } of b?.top ?? []) {
    rows.set(id, { id, piece, a: rows.get(id)?.a ?? null, b: Math.exp(log_prob) });
  }
  const size = (row: PairRow) => Math.max(row.a ?? 0, row.b ?? 0);
  return [...rows.values()].sort((x, y) => size(y) - size(x) || x.id - y.id).slice(0, most);
}

/** The least probability that is known: an answer that is not listed has no more. */
export function floor(prediction: Prediction | undefined): number {
  return Math.exp(prediction?.top.at(-1)?.log_prob ?? -Infinity);
}

/**
 * Which prediction of B stands beside one of A: as far from where each began to write as the other, since prompts may
 * differ in length. `at` and the range it is in are A's.
 */
export function beside(a: Manifest, b: Manifest, wanted: number) {
  const shift = stepIndex(b, undefined) - stepIndex(a, undefined);
  const from = Math.max(0, -shift);
  const to = Math.min(a.predictions.length, b.predictions.length - shift) - 1;
  const at = Math.max(from, Math.min(wanted, to));
  return { from, to, at, other: at + shift };
}

/** What the pictures of all checkpoints may hold. */
const FILM_BYTES = 96e6;

/** All heads of a layer of `cells` weights each, or where so many would be too much, the one that is looked at. */
export const filmSlice = ({ layer, head }: { layer: { nHeads: number }; head: number }, cells: number, checkpoints: number) =>
  (4 * layer.nHeads * cells * checkpoints > FILM_BYTES ? `head:${head}` : "");

/** "best: update 1 164", "update 1 000", "before training". */
export function checkpointName(name: string, step: number | null): string {
  const update = step === null ? "" : `update ${count(step)}`;
  if (name === "model") return update ? `best: ${update}` : "best";
  return step === 0 ? "before training" : update || name;
}

/** For each position of `a`, whether it is outside what `a` and `b` have in common, in order: their longest common subsequence. */
export function differing(a: readonly number[], b: readonly number[]): boolean[] {
  const longest = [...a, 0].map(() => new Uint16Array(b.length + 1)); // of what is left from i and j on
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i]![j] = a[i] === b[j] ? longest[i + 1]![j + 1]! + 1 : Math.max(longest[i + 1]![j]!, longest[i]![j + 1]!);
    }
  }
  let j = 0;
  return a.map((id, i) => {
    while (j < b.length && id !== b[j] && longest[i]![j + 1]! > longest[i + 1]![j]!) j++;
    if (j >= b.length || id !== b[j]) return true;
    j++;
    return false;
  });
}
