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

const largest = (all: readonly number[], of: (i: number) => number) => all.reduce((best, one) => (best < 0 || of(one) > of(best) ? one : best), -1);

/** The column with the largest weight of a row. */
export const largestColumn = (grid: Grid, row: number) => largest([...Array(grid.cols).keys()], (col) => at(grid, row, col));

/** The row that attends most to a column. */
export const largestRow = (grid: Grid, col: number, rows: readonly number[]) => largest(rows, (row) => at(grid, row, col));

/** The index of the prediction whose next token is least probable, of those that `may` be asked about; -1: there is none. */
export function leastCertain(predictions: readonly Prediction[], may: (prediction: Prediction) => boolean): number {
  const asked = [...predictions.keys()].filter((i) => predictions[i]!.actual && may(predictions[i]!));
  return largest(asked, (i) => -predictions[i]!.actual!.log_prob);
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

/** Twice a temperature, within the range of the page's slider and on one of its marks; that of greedy decoding counts as 1/2. */
export const twice = (temperature: number) => Math.min(3, Math.round(40 * (temperature || 0.5)) / 20);
