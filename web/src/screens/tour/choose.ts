/** What the tour shows: pure functions of a trace's weights, predictions and sweeps, that choose the tokens and heads to ask about. */
import { visible } from "../../tensors/format";
import { at, type Grid } from "../../tensors/grid";
import type { KeysSweep, Prediction, VariantEffect } from "../../types";

/** A head kept from attending to one key, and what follows. */
export interface BlockedKey {
  /** Id of the attention weights. */
  step: string;
  head: number;
  key: number;
  effect: VariantEffect;
}

/** All keys of a sweep whose step satisfies `of`: first those that change a prediction, the largest fall of the log-probability first. */
export function strongestKeys({ grids }: KeysSweep, of: (step: string) => boolean): BlockedKey[] {
  const all = grids.filter(({ step }) => of(step)).flatMap(({ step, effects }) =>
    effects.flatMap((keys, head) => keys.map((effect, key): BlockedKey => ({ step, head, key, effect }))));
  const changes = ({ effect }: BlockedKey) => Number(effect.n_changed > 0);
  return all.sort((a, b) => changes(b) - changes(a) || a.effect.change - b.effect.change);
}

/** The column with the largest weight of a row; `skip` leaves columns out. */
export function largestColumn(grid: Grid, row: number, skip: (col: number) => boolean = () => false): number {
  let best = -1;
  for (let col = 0; col < grid.cols; col++) if (!skip(col) && (best < 0 || at(grid, row, col) > at(grid, row, best))) best = col;
  return best;
}

/** The row that attends most to a column, other than the same token's. */
export function largestRow(grid: Grid, col: number, rows: readonly number[]): number {
  return rows.reduce((best, row) => (best < 0 || at(grid, row, col) > at(grid, best, col) ? row : best), -1);
}

/** The index of the prediction whose next token is least probable, of those that `may` be asked about; -1: there is none. */
export function leastCertain(predictions: readonly Prediction[], may: (prediction: Prediction) => boolean): number {
  let least = -1;
  predictions.forEach((one, i) => {
    if (one.actual && may(one) && (least < 0 || one.actual.log_prob < predictions[least]!.actual!.log_prob)) least = i;
  });
  return least;
}

/** `right` and up to `count - 1` others of `all`, evenly spread, in ascending order. */
export function optionsOf(right: number, all: readonly number[], count = 4): number[] {
  const others = all.filter((one) => one !== right);
  const wanted = Math.min(count - 1, others.length);
  const spread = Array.from({ length: wanted }, (_, i) => others[Math.floor(((i + 0.5) * others.length) / wanted)]!);
  return [...new Set([right, ...spread])].sort((a, b) => a - b);
}

/** The names of some tokens, with their number where the text has the token more than once. */
export function tokenNames(pieces: readonly string[], indices: readonly number[]): string[] {
  return indices.map((i) => visible(pieces[i]) + (pieces.filter((one) => one === pieces[i]).length > 1 ? ` (token ${i})` : ""));
}

/** Number of tokens at the beginning that two lists share. */
export function commonPrefix(a: readonly unknown[], b: readonly unknown[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/** Twice a temperature, within the range of the page's slider and on one of its marks; that of greedy decoding counts as 1/2. */
export const twice = (temperature: number) => Math.min(3, Math.round(40 * (temperature || 0.5)) / 20);
