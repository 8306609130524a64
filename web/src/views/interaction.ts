/** Shared behaviour of views: a stable height while loading, arrow keys in a group of buttons, links to steps. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { go, hrefTo, type Patch, type Screen } from "../state/page";
import { nodeLocation, shapeText } from "../tensors/format";
import { isGradient, title } from "../trace/steps";
import type { TraceNode } from "../types";

/** Keeps the height of an element while its content is loading. */
export function useStableHeight(waiting: boolean) {
  const ref = useRef<HTMLDivElement>(null);
  return { ref, style: { minHeight: waiting ? `${Math.max(48, ref.current?.clientHeight ?? 0)}px` : "" } };
}

/** Props of a group of buttons or cells with a roving tabindex: keys move the focus, as does what sets `moved`. With `preventScroll` what is read further down stays in sight. */
export function useArrowKeys<By>(steps: Record<string, By>, move: (by: By) => void, preventScroll = false) {
  const ref = useRef<HTMLElement & HTMLDivElement & HTMLOListElement & HTMLTableElement>(null);
  const moved = useRef(false);
  useLayoutEffect(() => {
    if (moved.current) ref.current?.querySelector<HTMLElement>("[tabindex='0']")?.focus({ preventScroll });
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
  return { group: { ref, onKeyDown }, moved };
}

const toStep = (node: string, head?: number) => ({ node, cell: null, numbers: isGradient({ id: node }) ? "gradients" : null, ...(head === undefined ? {} : { head }) });

export const openStep = (id: string, head?: number) => go("step", toStep(id, head));

/** Attributes of a link within the page; with a modifier key it opens elsewhere. */
export const linkTo = (screen: Screen, patch: Patch = {}) => ({
  href: hrefTo(screen, patch),
  onClick(event: MouseEvent) {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(screen, patch);
  },
});

/** Attributes of a link to a step. */
export const stepLink = (node: TraceNode, head?: number) => ({
  ...linkTo("step", toStep(node.id, head)),
  "data-node-box": node.id,
  title: `${title(node)}, ${nodeLocation(node)}: ${shapeText(node.axes.map((axis) => axis.size))}`,
});
