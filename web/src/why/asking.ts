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
  const [answer, setAnswer] = useState<{ key: string; trace: string; value: A } | null>(null);
  const [failure, setFailure] = useState<{ key: string; error: { message: string; hint: string } } | null>(null);
  useEffect(() => {
    if (!question) return;
    let alive = true;
    ask(question).then(
      (value) => alive && setAnswer({ key, trace: question.trace, value }),
      (error: Error & { hint?: string }) => alive && setFailure({ key, error: { message: error.message, hint: error.hint ?? "" } }),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  const usable = question && answer?.trace === question.trace ? answer : null;
  const error = failure?.key === key ? failure.error : null;
  return { value: error ? null : (usable?.value ?? null), stale: usable?.key !== key && !error, error };
}

export const useAttribution = (request: AttributeRequest | null): Asked<Attribution> =>
  useAsked(request, (question) => source.attribute(question));

export const useErased = (request: EraseRequest | null): Asked<Erased> =>
  useAsked(request, (question) => source.erase(question));
