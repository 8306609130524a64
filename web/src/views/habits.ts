/** Habits of the views: to hold still while something is awaited, to be walked through with arrow keys, and to lead to a step. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { go, hrefTo } from "../state/page";
import { place, shapeText } from "../tensors/format";
import { title } from "../trace/steps";
import type { TraceNode } from "../types";

/** For an element whose content is awaited: it stays as high as it was, and is not flat the first time. */
export function useHeld(waiting: boolean) {
  const ref = useRef<HTMLDivElement>(null);
  return { ref, style: { minHeight: waiting ? `${Math.max(48, ref.current?.clientHeight ?? 0)}px` : "" } };
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

const toStep = (node: string, head?: number) => ({ node, cell: null, ...(head === undefined ? {} : { head }) });

export const openStep = (id: string, head?: number) => go("step", toStep(id, head));

/** The attributes of a link to a step. */
export function linkTo(node: TraceNode, head?: number) {
  return {
    href: hrefTo("step", toStep(node.id, head)),
    "data-node-box": node.id,
    title: `${title(node)}, ${place(node)}: ${shapeText(node.axes.map((axis) => axis.size))}`,
    onClick: (event: MouseEvent) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      openStep(node.id, head);
    },
  };
}
