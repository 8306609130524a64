/** Two habits of these screens: to wait for numbers, and to be walked through with the arrow keys. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Tells the page what has arrived so far; false once nobody waits for it any more. */
export type Tell<T> = (value: T) => boolean;

/** What `load` told last about `key`; undefined until it tells something. With a null key nothing is loaded. */
export function useLoaded<T>(key: string | null, load: (tell: Tell<T>) => Promise<unknown>): T | undefined {
  const [told, setTold] = useState<{ key: string; value: T }>();
  useEffect(() => {
    if (key === null) return;
    let alive = true;
    void load((value) => {
      if (alive) setTold({ key, value });
      return alive;
    });
    return () => {
      alive = false;
    };
  }, [key]);
  return told?.key === key ? told?.value : undefined;
}

/** Props of a box of buttons of which one can be tabbed to: an arrow key moves, and the focus follows. */
export function useArrows(steps: Record<string, number>, move: (by: number) => void) {
  const ref = useRef<HTMLElement & HTMLDivElement & HTMLOListElement>(null);
  const moved = useRef(false);
  useLayoutEffect(() => {
    if (moved.current) ref.current?.querySelector<HTMLElement>("button[tabindex='0']")?.focus();
    moved.current = false;
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const by = steps[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    moved.current = true;
    move(by);
  };
  return { ref, onKeyDown };
}

export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
