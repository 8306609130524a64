/**
 * Values that the whole page follows. A component reads `.value`; when a signal changes, the page is drawn again from
 * its root, where Preact touches only what differs.
 */
import { useLayoutEffect, useState } from "preact/hooks";

const listeners = new Set<() => void>();

function listen(listener: () => void) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function signal<T>(now: T): { value: T } {
  return {
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
