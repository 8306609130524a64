/** Compares two traces: their predictions and their tokens. */
import { count } from "../../tensors/format";
import { hasSource, isClassifier, isEmbedder, isMasked, outputStream, predictionIndex } from "../../trace/generation";
import type { Manifest, Prediction, TraceRequest } from "../../types";

export interface PairRow {
  id: number;
  piece: string;
  /** Probabilities; null where the token is not listed. */
  a: number | null;
  b: number | null;
}

/** The `max` most probable tokens of either side, by the larger of the two probabilities. */
export function pairRows(a: Prediction | undefined, b: Prediction | undefined, max: number): PairRow[] {
  const rows = new Map<number, PairRow>();
  for (const { id, piece, log_prob } of a?.top ?? []) rows.set(id, { id, piece, a: Math.exp(log_prob), b: null });
  for (const { id, piece, log_prob } of b?.top ?? []) {
    rows.set(id, { id, piece, a: rows.get(id)?.a ?? null, b: Math.exp(log_prob) });
  }
  const size = (row: PairRow) => Math.max(row.a ?? 0, row.b ?? 0);
  return [...rows.values()].sort((x, y) => size(y) - size(x) || x.id - y.id).slice(0, max);
}

/** The smallest listed probability, an upper bound for unlisted tokens. */
export function smallestProbability(prediction: Prediction | undefined): number {
  return Math.exp(prediction?.top.at(-1)?.log_prob ?? -Infinity);
}

/**
 * The prediction of B at the same distance from its first generated token as one of A, since prompts may differ in
 * length. `at` and its range `from` to `to` are indices of A.
 */
export function alignedPositions(a: Manifest, b: Manifest, wanted: number) {
  const shift = predictionIndex(b, undefined) - predictionIndex(a, undefined);
  const from = Math.max(0, -shift);
  const to = Math.min(a.predictions.length, b.predictions.length - shift) - 1;
  const at = Math.max(from, Math.min(wanted, to));
  return { from, to, at, other: at + shift };
}

/**
 * The request for the same tokens under another checkpoint (teacher forcing), so that the rows and columns of both
 * traces are the same tokens.
 */
export function teacherForcedRequest(manifest: Manifest, checkpoint: string): TraceRequest {
  const { target, prefix = [], checkpoint: _, edits: __, other_text: ___, ...kept } = manifest.request;
  const request: TraceRequest = kept;
  if (checkpoint !== "model") request.checkpoint = checkpoint;
  const { ids, special, n_given, text: output } = outputStream(manifest);
  if (hasSource(manifest)) {
    request.target = target ?? output;
  } else if (!isClassifier(manifest) && !isMasked(manifest) && !isEmbedder(manifest)) {
    // All generated tokens but the last: the model generates one more, so that the lengths are equal.
    const end = special.slice(n_given, -1).indexOf(true);
    request.prefix = [...prefix, ...ids.slice(n_given, end < 0 ? -1 : n_given + end)];
    request.decode = { ...request.decode, max_new_tokens: 1 };
  }
  return request;
}

/** Maximum bytes of the weights of all checkpoints. */
const FILM_BYTES = 96e6;

/** The slice to fetch: all heads of a layer with `cells` weights each, or only the selected one to save memory. */
export const filmSlice = ({ layer, head }: { layer: { nHeads: number }; head: number }, cells: number, checkpoints: number) =>
  (4 * layer.nHeads * cells * checkpoints > FILM_BYTES ? `head:${head}` : "");

/** "best: step 1,164", "step 1,000", "before training". */
export function checkpointName(name: string, step: number | null): string {
  const update = step === null ? "" : `step ${count(step)}`;
  if (name === "model") return update ? `best: ${update}` : "best";
  return step === 0 ? "before training" : update || name;
}

/** Of the examples, the one with the longest beginning and end in common with a text: what differs is then in one place. */
export function nearestText(text: string, examples: readonly string[]): string | undefined {
  const common = (a: string, b: string) => {
    let n = 0;
    while (n < Math.min(a.length, b.length) && a[n] === b[n]) n++;
    return n;
  };
  const reversed = (a: string) => [...a].reverse().join("");
  const likeness = (example: string) => common(text, example) + common(reversed(text), reversed(example));
  return examples.filter((example) => example !== text).sort((a, b) => likeness(b) - likeness(a))[0];
}

/** For each position of `a`, whether it is outside the longest common subsequence of `a` and `b`. */
export function differingTokens(a: readonly number[], b: readonly number[]): boolean[] {
  const longest = [...a, 0].map(() => new Uint16Array(b.length + 1)); // of the suffixes from i and j
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
