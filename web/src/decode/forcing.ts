/**
 * Which token may be put in place of the model's choice, and the request that puts it there.
 */
import type { Manifest, Stream, TraceRequest } from "../types";

/** The stream the model writes: the translation, or the continued text. */
export const written = (manifest: Manifest): Stream => manifest.streams.at(-1)!;

/** Index into `predictions` of the position in the address; without one, of the first token the model chose. */
export function stepIndex(manifest: Manifest, position: string | undefined): number {
  const { predictions, decode } = manifest;
  const begin = decode.kind === "given" ? 0 : written(manifest).n_given - 1;
  const wanted = position === undefined ? begin : Number(position);
  const nearest = predictions.findIndex((p) => (p.position ?? 0) >= wanted);
  return nearest < 0 ? Math.max(0, predictions.length - 1) : nearest;
}

/** Tokens that are never written, as the tasks' decoding has it. */
export function bannedIds({ model }: Manifest): number[] {
  const { pad, bos, unk, mask } = model.special_ids;
  const ids = model.task === "translate" ? [pad, bos] : [pad, unk, bos, mask];
  return [...new Set(ids)].filter((id) => id >= 0);
}

/** How many tokens of the stream are the user's own text or BOS, which no prefix can change. */
export function fixedLength(manifest: Manifest): number {
  if (manifest.model.task === "translate") return 1;
  return written(manifest).n_given - (manifest.request.prefix?.length ?? 0);
}

/** One sentence why nothing can be forced after this position, or null. */
export function lockedAt(manifest: Manifest, position: number, live: boolean): string | null {
  if (!live) return "A saved page cannot ask the model again.";
  if (position + 1 < fixedLength(manifest)) return "This token is part of your prompt.";
  return null;
}

/** Ids the text must begin with so that `id` follows position `position`. */
export function prefixWith(manifest: Manifest, position: number, id: number): number[] {
  return [...written(manifest).ids.slice(fixedLength(manifest), position + 1), id];
}

/** The request for the same text, beginning with `prefix` (empty: free again). */
export function requestWith(manifest: Manifest, prefix: number[]): TraceRequest {
  const { target: _, prefix: __, ...request } = manifest.request;
  const result: TraceRequest = { ...request };
  if (prefix.length > 0) {
    result.prefix = prefix;
    // A translation's beginning can be forced on a beam search, not on a sample.
    if (manifest.model.task === "translate") result.decode = { ...request.decode, sample: false };
  }
  return result;
}

/** Pieces as running text: word marks become spaces. */
export const asText = (pieces: readonly string[]): string => pieces.join("").replace(/▁/g, " ").trim();
