/**
 * One block of a layer, a branch of the residual stream. The stream is the thick line on the left, and + marks the
 * residual sum. Lines lead from the encoder's output to each cross-attention.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { manifest } from "../../state/page";
import { useMask } from "../../state/resource";
import { useValue } from "../../state/signals";
import { count, nodeLocation } from "../../tensors/format";
import { blockOff, editsOf, headOff } from "../../trace/edits";
import { scaleOfNode, title } from "../../trace/steps";
import type { TraceNode } from "../../types";
import { Switch } from "../../views/EditBar";
import { Matrix } from "../../views/Matrix";
import { stepLink } from "../../views/interaction";
import type { Block } from "./columns";

export interface Sizes {
  /** Sizes of a box and of one head's heat map, in CSS pixels. */
  box: number;
  tall: number;
  head: number;
}

/** Pictures of heads in a row. */
export const headsAcross = (heads: number) => (heads <= 4 ? heads : heads <= 16 ? 4 : 8);

const Arrow = () => <span class="flow-arrow" aria-hidden="true">→</span>;

/** A heat map of the residual stream, on its line. */
export function StreamState({ node, label, sizes, memory }: { node: TraceNode; label?: string; sizes: Sizes; memory?: boolean }) {
  return (
    <div class="flow-row">
      <div class="flow-line">
        <a class="flow-state" {...stepLink(node)} {...useMark(node.id)} aria-label={label ?? "Residual stream"}>
          <MiniHeatMap node={node} width={Math.min(sizes.box, 64)} height={sizes.tall * 0.7} />
        </a>
      </div>
      {label && <p class="flow-state-label" data-memory={memory ? "" : undefined}>{label}</p>}
    </div>
  );
}

function Attention({ block, sizes }: { block: Block; sizes: Sizes }) {
  const { q_proj, k_proj, v_proj, weights, context, concat, out } = block.parts;
  const heads = weights?.axes[0]?.size ?? 0;
  const strips = [["Q", q_proj], ["K", k_proj], ["V", v_proj]] as const;
  const mixed = concat ?? context;
  return (
    <>
      <div class="flow-qkv">
        {strips.map(([name, node]) => node && (
          <a key={name} class={`flow-strip${block.kind === "cross" && name !== "Q" ? " flow-from-memory" : ""}`} {...stepLink(node)}>
            <span class="flow-letter">{name}</span>
            <MiniHeatMap node={node} width={sizes.box} height={sizes.tall / 2.4} />
          </a>
        ))}
      </div>
      <Arrow />
      {weights && (
        <div class="flow-heads-box">
          <div class="flow-heads" style={{ gridTemplateColumns: `repeat(${headsAcross(heads)}, auto)` }}>
            {Array.from({ length: heads }, (_, h) => (
              <Head key={h} weights={weights} head={h} width={sizes.head} />
            ))}
          </div>
          <span class="flow-label">{heads === 1 ? "weights" : `weights of ${heads} heads`}</span>
        </div>
      )}
      <Arrow />
      {mixed && <Box node={mixed} width={sizes.box} height={sizes.tall} label="weights · V" />}
      {out && <><Arrow /><Box node={out} width={sizes.box} height={sizes.tall} label={<>W<sub>O</sub></>} /></>}
    </>
  );
}

function Head({ weights, head, width }: { weights: TraceNode; head: number; width: number }) {
  return (
    <span class="flow-head">
      <a {...stepLink(weights, head)} {...useMark(weights.id, head)} aria-label={`Attention weights, head ${head}`}>
        <MiniHeatMap node={weights} head={head} width={width} height={width} />
      </a>
      <Switch edit={headOff(weights.id, head)} label={`${nodeLocation(weights)}, head ${head}`} />
    </span>
  );
}

function FeedForward({ block, sizes }: { block: Block; sizes: Sizes }) {
  const { w_gate, w_in, hidden, out } = block.parts;
  const wide = sizes.box * 1.9;
  const activation = { relu: "ReLU", gelu: "GELU", gelu_tanh: "GELU", silu: "SiLU", swiglu: "SwiGLU" }[hidden?.op as "relu"] ?? "activation";
  return (
    <>
      {w_gate && <><Box node={w_gate} width={wide * 0.7} height={sizes.tall} label="gate" /><Arrow /></>}
      {w_in && <Box node={w_in} width={w_gate ? wide * 0.7 : wide} height={sizes.tall} label={`to ${count(w_in.axes.at(-1)!.size)} features`} />}
      <Arrow />
      {hidden && <Box node={hidden} width={w_gate ? wide * 0.7 : wide} height={sizes.tall} label={activation} />}
      <Arrow />
      {out && <Box node={out} width={sizes.box} height={sizes.tall} label={`back to ${count(out.axes.at(-1)!.size)}`} />}
    </>
  );
}

const NAMES = { self: "Self-attention", cross: "Cross-attention", ff: "Feed-forward" };

function description(block: Block, causal: boolean): string {
  if (block.kind === "ff") return "each token separately";
  if (block.kind === "cross") return "keys and values from the encoder";
  return causal ? "tokens attend to themselves and earlier tokens" : "all tokens attend to each other";
}

export function BlockRow({ block, sizes }: { block: Block; sizes: Sizes }) {
  const { norm, residual, mask, out } = block.parts;
  return (
    <>
      <div class="flow-row flow-block">
        <div class="flow-line">
          {residual && <a class="flow-plus" {...stepLink(residual)} aria-label="Residual sum"><span aria-hidden="true">+</span></a>}
        </div>
        <div class="flow-branch">
          <p class="flow-block-name">
            {out && <Switch edit={blockOff(out.id)} label={nodeLocation(out)} />} {NAMES[block.kind]} <span>{description(block, mask?.attrs.kind === "causal")}</span>
          </p>
          <div class={`flow-boxes flow-${block.kind}`}>
            {norm && block.normFirst && <><Box node={norm} width={sizes.box} height={sizes.tall} label="norm" /><Arrow /></>}
            {block.kind === "ff" ? <FeedForward block={block} sizes={sizes} /> : <Attention block={block} sizes={sizes} />}
          </div>
        </div>
      </div>
      {residual && <StreamState node={residual} sizes={sizes} />}
      {norm && !block.normFirst && <StreamState node={norm} sizes={sizes} label="norm" />}
    </>
  );
}

/** Lines from the encoder's output to every cross-attention, if the columns are side by side. */
export function MemoryLines({ layers }: { layers: number }) {
  const overlay = useRef<SVGSVGElement>(null);
  const [paths, setPaths] = useState<string[]>([]);
  useEffect(() => {
    const frame = overlay.current?.parentElement;
    if (!frame) return;
    const measure = () => {
      const origin = frame.getBoundingClientRect();
      const from = frame.querySelector("[data-memory]")?.getBoundingClientRect();
      const column = frame.querySelector(".flow-decoder")?.getBoundingClientRect();
      if (!from || !column || column.top > from.bottom) return setPaths([]); // stacked columns get no lines
      const gutter = column.left - origin.left - 22;
      const [x, y] = [from.right - origin.left + 8, from.top + from.height / 2 - origin.top];
      setPaths([...frame.querySelectorAll(".flow-from-memory")].map((strip) => {
        const to = strip.getBoundingClientRect();
        const height = to.top + to.height / 2 - origin.top;
        return `M${x} ${y}H${gutter}V${height}H${to.left - origin.left - 7}`;
      }));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(frame);
    measure();
    return () => observer.disconnect();
  }, [layers]);
  return (
    <svg ref={overlay} class="flow-memory" aria-hidden="true">
      <marker id="into" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0L6 3L0 6z" /></marker>
      {paths.map((path) => <path key={path} d={path} class="flow-way" marker-end="url(#into)" />)}
    </svg>
  );
}

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
