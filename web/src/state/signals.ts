/**
 * Signals: observable values. A component that uses `useValue` rerenders when the part of the value that it selects
 * changes; other code reads `value`.
 */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../sources/source";

interface ReadonlySignal<T> {
  readonly value: T;
  /** Calls the listener on every change. Returns a function that unsubscribes it. */
  subscribe: (listener: () => void) => () => void;
}

export interface Signal<T> extends ReadonlySignal<T> {
  value: T;
}

export function signal<T>(first: T): Signal<T> {
  const listeners = new Set<() => void>();
  let now = first;
  return {
    get value() {
      return now;
    },
    set value(next) {
      if (Object.is(next, now)) return;
      now = next;
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

/** A signal computed from others; the same object until one of them changes. */
export function computed<T>(from: readonly ReadonlySignal<unknown>[], make: () => T): ReadonlySignal<T> {
  let known: { of: unknown[]; value: T } | undefined;
  return {
    get value() {
      const of = from.map((one) => one.value);
      if (!known || of.some((one, i) => !Object.is(one, known!.of[i]))) known = { of, value: make() };
      return known.value;
    },
    subscribe(listener) {
      const ends = from.map((one) => one.subscribe(listener));
      return () => ends.forEach((end) => end());
    },
  };
}

/** Calls `then` now and on every change. Returns a function that stops it. */
export function effect<T>(from: ReadonlySignal<T>, then: (now: T) => void) {
  let last = from.value;
  then(last);
  return from.subscribe(() => {
    if (Object.is(from.value, last)) return;
    last = from.value;
    then(last);
  });
}

/** Returns `of(value)` and rerenders the component when that changes. */
export function useValue<T>(from: ReadonlySignal<T>): T;
export function useValue<T, K>(from: ReadonlySignal<T>, of: (value: T) => K): K;
export function useValue<T>(from: ReadonlySignal<T>, of: (value: T) => unknown = (value) => value): unknown {
  const [, rerender] = useState({});
  const value = of(from.value);
  const rendered = useRef({ of, value });
  rendered.current = { of, value };
  useLayoutEffect(() => {
    const update = () => {
      if (!Object.is(rendered.current.of(from.value), rendered.current.value)) rerender({});
    };
    update(); // the value may have changed during rendering
    return from.subscribe(update);
  }, [from]);
  return value;
}

export interface ErrorMessage {
  message: string;
  hint: string;
}

export const toErrorMessage = (error: unknown): ErrorMessage => ({
  message: error instanceof Error ? error.message : String(error), hint: error instanceof Problem ? error.hint : "",
});

/** Loads data into signals. The result of a request that is not the latest is dropped. */
export class Loader<T> {
  result = signal<T | null>(null);
  /** Description of the pending request; null: none. */
  busy = signal<string | null>(null);
  problem = signal<ErrorMessage | null>(null);
  private lastId = 0;

  /**
   * Keeps the last result until the next arrives. `request` null clears it and drops a pending one. Returns the error, if
   * this is still the latest request.
   */
  async load(words: string, request: (() => Promise<T>) | null): Promise<unknown> {
    const id = ++this.lastId;
    this.problem.value = null;
    this.busy.value = request && words;
    if (!request) this.result.value = null;
    try {
      const result = request && (await request());
      if (id === this.lastId) this.result.value = result;
      return null;
    } catch (error) {
      if (id !== this.lastId) return null;
      this.problem.value = toErrorMessage(error);
      return error;
    } finally {
      if (id === this.lastId) this.busy.value = null;
    }
  }
}
