/**
 * Values that the page follows. A component reads `.value`; when a signal changes, the page is drawn again from its
 * root, where Preact touches only what differs. What changes at every move of a pointer is `local`: it redraws only the
 * components that ask for it, and those only where what they make of it changes.
 */
import { useLayoutEffect, useRef, useState } from "preact/hooks";

type Listeners = Set<() => void>;

export interface Signal<T> {
  value: T;
  listen: (listener: () => void) => () => void;
}

const everywhere: Listeners = new Set();

const listenAmong = (listeners: Listeners) => (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

const listen = listenAmong(everywhere);

export const local = <T,>(now: T) => signal(now, new Set());

export function signal<T>(now: T, listeners = everywhere): Signal<T> {
  return {
    listen: listenAmong(listeners),
    get value() {
      return now;
    },
    set value(next) {
      if (Object.is(next, now)) return;
      now = next;
      for (const listener of [...listeners]) listener();
    },
  };
}

/** What `make` makes of `of()`: the same object until that changes. */
export function computed<K, T>(of: () => K, make: (of: K) => T): { readonly value: T } {
  let known: { of: K; value: T } | undefined;
  return {
    get value() {
      const now = of();
      if (!known || known.of !== now) known = { of: now, value: make(now) };
      return known.value;
    },
  };
}

/** Does `then` now, and again whenever `of()` has changed. */
export function follow<T>(of: () => T, then: (now: T) => void) {
  let last = of();
  then(last);
  return listen(() => {
    const now = of();
    if (now === last) return;
    last = now;
    then(now);
  });
}

/** For the root component. */
export function useSignals() {
  const [, redraw] = useState({});
  useLayoutEffect(() => listen(() => redraw({})), []);
}

/** What `of` makes of a local value; the component is drawn again when that changes. */
export function useLocal<T, K>(from: Signal<T>, of: (value: T) => K): K {
  const [, redraw] = useState({});
  const drawn = useRef<{ of: typeof of; value: K } | null>(null);
  drawn.current = { of, value: of(from.value) };
  useLayoutEffect(() => from.listen(() => {
    const { of, value } = drawn.current!;
    if (of(from.value) !== value) redraw({});
  }), [from]);
  return drawn.current.value;
}
