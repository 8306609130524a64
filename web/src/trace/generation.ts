/**
 * The generated text, as the manifest describes it: its stream, its first position, and which tokens can be forced. No
 * file of the page depends on the task of a model.
 */
import { visible } from "../tensors/format";
import type { Manifest, Prediction, Stream, StreamName, TraceNode, TraceRequest } from "../types";

/** Whether the model predicts once for the whole text; others predict at each position. */
export const isClassifier = ({ predictions }: Pick<Manifest, "predictions">) => predictions[0]?.position === null;

/** Whether the model predicts nothing: a bare encoder, whose output is the pooled vector. */
export const isEmbedder = ({ predictions }: Pick<Manifest, "predictions">) => !predictions.length;

/** Whether the answer is a number. */
export const isNumber = (trace: Manifest) => isEmbedder(trace) && trace.nodes.some(({ id }) => id === "logits");

/** Whether the model predicts the token at its own position, from both sides; others predict the next token. */
export const isMasked = ({ decode }: Pick<Manifest, "decode">) => decode.masked !== null;

/** Position of the token that the prediction at a position is about. */
export const predictedPosition = (manifest: Pick<Manifest, "decode">, position: number | null | undefined) =>
  (position ?? 0) + (isMasked(manifest) ? 0 : 1);

/** Whether the model is an encoder-decoder, with a source and a target. */
export const hasSource = ({ streams }: Pick<Manifest, "streams">) => streams.length > 1;

/** The stream that the model generates: the target, or the continued text. */
export const outputStream = ({ streams }: Pick<Manifest, "streams">): Stream => streams.at(-1)!;

/**
 * What the rows of a stream are called, on every screen: where a row computes the next token "token read → token
 * predicted", the last with the most probable one; elsewhere the token.
 */
export function rowTexts(manifest: Pick<Manifest, "streams" | "predictions" | "decode">, name: StreamName): string[] {
  const { pieces = [], padding = [] } = manifest.streams.find((one) => one.name === name) ?? {};
  const computesNext = name === outputStream(manifest).name && !isClassifier(manifest) && !isMasked(manifest) && !isEmbedder(manifest);
  return pieces.map((piece, i) => {
    const prediction = computesNext && !padding[i] && manifest.predictions.find((one) => one.position === i);
    const next = prediction && (prediction.actual ?? prediction.top[0])?.piece;
    return next === undefined || next === false ? visible(piece) : `${visible(piece)} → ${visible(next)}`;
  });
}

/** The same for the rows of a step: before the layers a row is of the token that is read. */
export function rowTextsOf(manifest: Pick<Manifest, "streams" | "predictions" | "decode">, node: TraceNode): string[] {
  const name = node.axes.find((axis) => axis.name === "token")?.stream;
  if (node.stack === "decoder" || node.stack === "head") return name ? rowTexts(manifest, name) : [];
  return manifest.streams.find((one) => one.name === name)?.pieces.map(visible) ?? [];
}

/** Index into `predictions` of the position in the address, by default of the first generated token. */
export function predictionIndex({ predictions, decode }: Manifest, position: string | undefined): number {
  const wanted = Number.isFinite(Number(position)) ? Number(position) : decode.first;
  const nearest = predictions.findIndex((p) => (p.position ?? 0) >= wanted);
  return nearest < 0 ? Math.max(0, predictions.length - 1) : nearest;
}

/** Index into `predictions` of the explained token, by default the generated one that the model was least certain of; only predictions with an actual next token. */
export function targetIndex(manifest: Manifest, position: string | undefined): number {
  if (isMasked(manifest)) return predictionIndex(manifest, position);
  const last = Math.max(0, manifest.predictions.filter((p) => p.actual).length - 1);
  const first = Math.min(predictionIndex(manifest, position), last);
  if (position !== undefined) return first;
  const certainty = (index: number) => manifest.predictions[index]?.actual?.log_prob ?? 0;
  let least = first;
  for (let i = first + 1; i <= last; i++) if (certainty(i) < certainty(least)) least = i;
  return least;
}

/** Whether the token after this position is of the prompt or forced. */
export const isGiven = (manifest: Pick<Manifest, "streams" | "decode">, position: number) =>
  !isMasked(manifest) && position + 1 < outputStream(manifest).n_given;

/** Why no token can be forced after this position; null where one can. */
export function lockReason(manifest: Manifest, position: number, live: boolean): string | null {
  if (!live) return "A saved page cannot run the model.";
  if (position + 1 < manifest.decode.n_fixed) return "This token is part of the prompt.";
  return null;
}

/** The prefix that forces `id` after `position`. */
export function forcedPrefix(manifest: Manifest, position: number, id: number): number[] {
  return [...outputStream(manifest).ids.slice(manifest.decode.n_fixed, position + 1), id];
}

/** The request for the same text with a forced prefix, or without one if `prefix` is empty. */
export function requestWithPrefix(manifest: Manifest, prefix: number[]): TraceRequest {
  const { target: _, prefix: __, ...request } = manifest.request;
  if (!prefix.length) return request;
  return { ...request, prefix, ...(hasSource(manifest) && { decode: { ...request.decode, sample: false } }) }; // sampling supports no prefix
}

/** Tokens as text: word boundary marks become spaces. */
export const asText = (pieces: readonly string[]): string => pieces.join("").replace(/▁/g, " ").trim();

/** A number of a candidate before and after, and their difference. */
export interface Change {
  id: number;
  piece: string;
  before: number;
  after: number;
  change: number;
}

/** Which number of a candidate: its probability or its logit. */
type Quantity = "probability" | "logit";

/** The changes of the candidates that both predictions list, in the order of `after`. */
export function changesOf(before: Prediction | undefined, after: Prediction | undefined, quantity: Quantity): Change[] {
  const of = (one: { log_prob: number; logit: number }) => (quantity === "logit" ? one.logit : Math.exp(one.log_prob));
  return (after?.top ?? []).flatMap(({ id, piece, ...candidate }) => {
    const partner = before?.top.find((one) => one.id === id);
    return partner ? [{ id, piece, before: of(partner), after: of(candidate), change: of(candidate) - of(partner) }] : [];
  });
}
