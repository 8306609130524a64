/**
 * Asking for an attribution and for erased texts, as hooks: the last answer stays until the next one is here, and
 * an answer that comes too late is dropped.
 */
import { useEffect, useState } from "preact/hooks";
import { source } from "../state";
import type { AttributeRequest, Attribution, Erased, EraseRequest } from "../types";

export interface Asked<T> {
  value: T | null;
  /** The value answers an older question. */
  stale: boolean;
  error: { message: string; hint: string } | null;
}

function useAsked<Q extends { trace: string }, A>(question: Q | null, ask: (question: Q) => Promise<A>): Asked<A> {
  const key = JSON.stringify(question);
  const [last, setLast] = useState<{ key: string; trace: string; value: A | null; error: Asked<A>["error"] }>();
  useEffect(() => {
    if (!question) return;
    let alive = true;
    ask(question).then(
      (value) => alive && setLast({ key, trace: question.trace, value, error: null }),
      ({ message, hint = "" }: Error & { hint?: string }) => alive && setLast({ key, trace: question.trace, value: null, error: { message, hint } }),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  const answer = question && last?.trace === question.trace ? last : null;
  const current = answer?.key === key;
  return { value: answer?.value ?? null, stale: !current, error: current ? answer.error : null };
}

export const useAttribution = (request: AttributeRequest | null): Asked<Attribution> =>
  useAsked(request, (question) => source.attribute(question));

export const useErased = (request: EraseRequest | null): Asked<Erased> =>
  useAsked(request, (question) => source.erase(question));
