/**
 * Which token may be put in place of the model's choice, and the request that puts it there.
 */
import type { Manifest, Stream, TraceRequest } from "../types";

/** The stream the model writes: the translation, or the continued text. */
export const written = (manifest: Manifest): Stream => manifest.streams.at(-1)!;

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
    // A translation's beginning can be forced on a beam search, not on a sample.
    if (manifest.model.task === "translate") result.decode = { ...request.decode, sample: false };
  }
  return result;
}

/** Pieces as running text: word marks become spaces. */
export const asText = (pieces: readonly string[]): string => pieces.join("").replace(/▁/g, " ").trim();
