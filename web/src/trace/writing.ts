/**
 * How a text is written, as the manifest tells it: which stream the model writes, from where on, at which step one is,
 * and what may be put in place of its choice. Nothing here, or anywhere on the page, asks for which task a model was made.
 */
import type { Manifest, Stream, TraceRequest } from "../types";

/** It decides for a class, once for the whole text; other models write, with a prediction after each position. */
export const decides = ({ predictions }: Pick<Manifest, "predictions">) => predictions[0]?.position === null;

/** It has read a source before it writes: a whole text can be given to it as the target, and the best one searched for. */
export const hasSource = ({ streams }: Pick<Manifest, "streams">) => streams.length > 1;

/** The stream the model writes: the translation, or the continued text. */
export const written = ({ streams }: Pick<Manifest, "streams">): Stream => streams.at(-1)!;

/** Index into `predictions` of the position in the address; without one, of the first token the model chose. */
export function stepIndex({ predictions, wrote }: Manifest, position: string | undefined): number {
  const wanted = Number.isFinite(Number(position)) ? Number(position) : wrote.first;
  const nearest = predictions.findIndex((p) => (p.position ?? 0) >= wanted);
  return nearest < 0 ? Math.max(0, predictions.length - 1) : nearest;
}

/** The token after this position was given: it is of the prompt, or of a beginning that was forced. */
export const isGiven = (manifest: Pick<Manifest, "streams">, position: number) => position + 1 < written(manifest).n_given;

/** One sentence why nothing can be forced after this position, or null. */
export function lockedAt(manifest: Manifest, position: number, live: boolean): string | null {
  if (!live) return "A saved page cannot ask the model again.";
  if (position + 1 < manifest.wrote.n_fixed) return "This token is part of your prompt.";
  return null;
}

/** Ids the text must begin with so that `id` follows position `position`. */
export function prefixWith(manifest: Manifest, position: number, id: number): number[] {
  return [...written(manifest).ids.slice(manifest.wrote.n_fixed, position + 1), id];
}

/** The request for the same text, beginning with `prefix` (empty: free again). */
export function requestWith(manifest: Manifest, prefix: number[]): TraceRequest {
  const { target: _, prefix: __, ...request } = manifest.request;
  const result: TraceRequest = { ...request };
  if (prefix.length > 0) {
    result.prefix = prefix;
    // What is searched for can be given a beginning, and not a sample of it.
    if (hasSource(manifest)) result.decode = { ...request.decode, sample: false };
  }
  return result;
}

/**
 * The same tokens under another checkpoint: what was written here is given to it instead of its own answer, so that
 * every row and column of the two traces stands for the same token.
 */
export function heldRequest(manifest: Manifest, checkpoint: string): TraceRequest {
  const { text, decode, member, pad, window_start, target, prefix = [] } = manifest.request;
  const held: TraceRequest = { text };
  if (decode) held.decode = decode;
  if (member) held.member = member;
  if (pad) held.pad = pad;
  if (window_start) held.window_start = window_start;
  if (checkpoint !== "model") held.checkpoint = checkpoint;
  const { ids, special, n_given, text: wrote } = written(manifest);
  if (hasSource(manifest)) {
    held.target = target ?? wrote;
  } else if (!decides(manifest)) {
    // All that was written but its last token: the model writes one more, so that the lengths are equal.
    const end = special.slice(n_given, -1).indexOf(true);
    held.prefix = [...prefix, ...ids.slice(n_given, end < 0 ? -1 : n_given + end)];
    held.decode = { ...held.decode, max_new_tokens: 1 };
  }
  return held;
}

/** Pieces as running text: word marks become spaces. */
export const asText = (pieces: readonly string[]): string => pieces.join("").replace(/▁/g, " ").trim();
