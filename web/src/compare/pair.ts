/**
 * Two predictions side by side, and the request that asks another checkpoint about the very same tokens. Pure
 * functions; the page's part is in the components beside this file.
 */

import { count } from "../format";
import type { Manifest, Prediction, TraceRequest } from "../types";

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
 * The same tokens under another checkpoint: what A wrote is given to it instead of its own answer, so that every row
 * and column of the two traces stands for the same token.
 */
export function heldRequest(manifest: Manifest, checkpoint: string): TraceRequest {
  const { request, model, streams } = manifest;
  const held: TraceRequest = { text: request.text };
  if (request.decode) held.decode = request.decode;
  if (request.member) held.member = request.member;
  if (request.pad) held.pad = request.pad;
  if (request.window_start) held.window_start = request.window_start;
  if (checkpoint !== "model") held.checkpoint = checkpoint;
  const last = streams.at(-1)!;
  if (model.task === "translate") held.target = request.target ?? last.text;
  if (model.task === "lm") {
    // All that was written but its last token: the model writes one more, so that the lengths are equal.
    const written = last.ids.slice(last.n_given, -1);
    const end = last.special.slice(last.n_given, -1).indexOf(true);
    held.prefix = [...(request.prefix ?? []), ...(end < 0 ? written : written.slice(0, end))];
    held.decode = { ...held.decode, max_new_tokens: 1 };
  }
  return held;
}

/** What the pictures of all checkpoints may hold. */
export const FILM_BYTES = 96e6;

/** All heads of a layer of `cells` weights each, or where so many would be too much, the one that is looked at. */
export const filmSlice = ({ layer, head }: { layer: { nHeads: number }; head: number }, cells: number, checkpoints: number) =>
  (4 * layer.nHeads * cells * checkpoints > FILM_BYTES ? `head:${head}` : "");

/** "best: update 1 164", "update 1 000", "before training". */
export function checkpointName(name: string, step: number | null): string {
  const update = step === null ? "" : `update ${count(step)}`;
  if (name === "model") return update ? `best: ${update}` : "best";
  return step === 0 ? "before training" : update || name;
}
