/** How predictions change between two passes over the same tokens, from the candidates that both list. */
import type { Manifest, Prediction } from "../types";
import { isMasked } from "./generation";

/** A number of a candidate before and after, and their difference. */
export interface Change {
  id: number;
  piece: string;
  before: number;
  after: number;
  change: number;
}

/** Which number of a candidate: its probability or its logit. */
export type Quantity = "probability" | "logit";

/** The changes of the candidates that both predictions list, in the order of `after`. */
export function changesOf(before: Prediction | undefined, after: Prediction | undefined, quantity: Quantity): Change[] {
  const of = (one: { log_prob: number; logit: number }) => (quantity === "logit" ? one.logit : Math.exp(one.log_prob));
  return (after?.top ?? []).flatMap(({ id, piece, ...candidate }) => {
    const partner = before?.top.find((one) => one.id === id);
    return partner ? [{ id, piece, before: of(partner), after: of(candidate), change: of(candidate) - of(partner) }] : [];
  });
}

/** The change of the probability of the token that follows, or of the likeliest one before; null where it is not listed after. */
export function changeOfNext(trace: Manifest, before: Prediction, after: Prediction | undefined): Change | null {
  const next = (isMasked(trace) ? null : before.actual) ?? before.top[0];
  const partner = [after?.actual, ...after?.top ?? []].find((one) => one?.id === next?.id);
  if (!next || !partner) return null;
  const [was, is] = [next, partner].map((one) => Math.exp(one.log_prob)) as [number, number];
  return { id: next.id, piece: next.piece, before: was, after: is, change: is - was };
}
