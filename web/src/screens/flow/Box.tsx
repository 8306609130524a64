/** A box of the Flow screen: a small heat map of a node with its name, linked to the node's step. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { manifest } from "../../state/page";
import { useMask } from "../../state/resource";
import { useValue } from "../../state/signals";
import { editsOf } from "../../trace/edits";
import { scaleOfNode, title } from "../../trace/steps";
import type { TraceNode } from "../../types";
import { stepLink } from "../../views/interaction";
import { Matrix } from "../../views/Matrix";

export interface BoxProps {
  node: TraceNode;
  width: number;
  height: number;
  label?: ComponentChildren;
  head?: number;
}

export function Box({ node, width, height, label, head }: BoxProps) {
  return (
    <a class="flow-box" {...stepLink(node, head)} {...useMark(node.id, head)}>
      <MiniHeatMap node={node} width={width} height={height} head={head} />
      <span class="flow-label">{label ?? title(node)}</span>
    </a>
  );
}

/** Attributes that mark what edits change: "edited", or "same" where no number differs. */
export function useMark(id: string, head?: number): { "data-mark"?: string } {
  const mark = useValue(manifest, (trace) => {
    if (!trace?.edited) return undefined;
    return editsOf(trace, id, head).length ? "edited" : trace.edited.same.includes(id) ? "same" : undefined;
  });
  return { "data-mark": mark };
}

/** The heat map, fetched when it scrolls near the viewport; its size is reserved, to avoid layout shifts. */
export function MiniHeatMap({ node, width, height: maxHeight, head }: Omit<BoxProps, "label">) {
  const place = useRef<HTMLSpanElement>(null);
  const [near, setNear] = useState(false);
  const rows = node.axes.slice(head === undefined ? 0 : 1, -1).reduce((product, axis) => product * axis.size, 1);
  const height = Math.min(maxHeight, 12 * rows);
  useEffect(() => {
    if (!place.current || near) return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setNear(true), { rootMargin: "200px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [near]);
  const mask = useMask(near ? node : null, head);
  return (
    <span ref={place} class="flow-mini" style={{ width: `${width}px`, minHeight: `${height}px` }}>
      {near && <Matrix node={node.id} slice={head === undefined ? "" : `head:${head}`} mask={mask} scale={scaleOfNode(node)} mini={{ width, height }} label="" />}
    </span>
  );
}
