/**
 * Values that change while the page is open. A view follows one with `useValue`, and is drawn again, it alone with what
 * is inside of it, when what it makes of the value changes. Whoever draws nothing reads `now`.
 */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../sources/source";

export interface Followed<T> {
  readonly now: T;
  /** Tells of every change, until what it gives back is called. */
  listen: (listener: () => void) => () => void;
}

export interface Signal<T> extends Followed<T> {
  now: T;
}

export function signal<T>(first: T): Signal<T> {
  const listeners = new Set<() => void>();
  let now = first;
  return {
    get now() {
      return now;
    },
    set now(next) {
      if (Object.is(next, now)) return;
      now = next;
      for (const listener of [...listeners]) listener();
    },
    listen(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

/** What `make` makes of other values: the same object until one of them changes. */
export function derived<T>(from: readonly Followed<unknown>[], make: () => T): Followed<T> {
  let known: { of: unknown[]; value: T } | undefined;
  return {
    get now() {
      const of = from.map((one) => one.now);
      if (!known || of.some((one, i) => !Object.is(one, known!.of[i]))) known = { of, value: make() };
      return known.value;
    },
    listen(listener) {
      const ends = from.map((one) => one.listen(listener));
      return () => ends.forEach((end) => end());
    },
  };
}

/** Does `then` now, and again whenever the value has changed. */
export function follow<T>(from: Followed<T>, then: (now: T) => void) {
  let last = from.now;
  then(last);
  return from.listen(() => {
    if (Object.is(from.now, last)) return;
    last = from.now;
    then(last);
  });
}

/** For a view: what `of` makes of a value now. It is drawn again when that changes. */
export function useValue<T>(from: Followed<T>): T;
export function useValue<T, K>(from: Followed<T>, of: (value: T) => K): K;
export function useValue<T>(from: Followed<T>, of: (value: T) => unknown = (value) => value): unknown {
  const [, redraw] = useState({});
  const now = of(from.now);
  const drawn = useRef({ of, now });
  drawn.current = { of, now };
  useLayoutEffect(() => {
    const look = () => {
      if (!Object.is(drawn.current.of(from.now), drawn.current.now)) redraw({});
    };
    look(); // it may have changed while this was drawn
    return from.listen(look);
  }, [from]);
  return now;
}

export interface Told {
  message: string;
  hint: string;
}

export const tell = (error: unknown): Told => ({
  message: error instanceof Error ? error.message : String(error), hint: error instanceof Problem ? error.hint : "",
});

/** A place that something is loaded into. Of what is asked for, only the last is shown: an answer that comes later than the next question is dropped. */
export class Place<T> {
  value = signal<T | null>(null);
  /** What is waited for, in words; null: nothing. */
  busy = signal<string | null>(null);
  problem = signal<Told | null>(null);
  private last = 0;

  /** What is there stays until the answer comes. `ask` null: it is taken away, and what is on its way, too. */
  async load(words: string, ask: (() => Promise<T>) | null) {
    const mine = ++this.last;
    this.problem.now = null;
    this.busy.now = ask && words;
    if (!ask) this.value.now = null;
    try {
      const answer = ask && (await ask());
      if (mine === this.last) this.value.now = answer;
    } catch (error) {
      if (mine === this.last) this.problem.now = tell(error);
    } finally {
      if (mine === this.last) this.busy.now = null;
    }
  }
}
