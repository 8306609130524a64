/**
 * The beam search drawn as a tree that scrolls in its own box: hypotheses that live on, those that ended, and the
 * pruned ones, told apart by line, mark and weight and not by colour alone. Places come from `beam.ts`.
 */
import { useEffect, useRef } from "preact/hooks";
import type { DecodeLog } from "../types";
import { layoutBeam, LONGEST_PIECE, neighbour, pathTo, SIZES, type BeamNode } from "./beam";
import { cut, label, percent, plain } from "./numbers";

interface Props {
  log: DecodeLog;
  showPruned: boolean;
  /** Step whose column is marked. */
  step: number;
  selected: { step: number; index: number } | null;
  onSelect: (node: BeamNode) => void;
}

export function BeamTree({ log, showPruned, step, selected, onSelect }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const layout = layoutBeam(log, showPruned);
  const nodes = layout.columns.flat();
  const at = nodes.find((n) => n.step === selected?.step && n.index === selected.index) ?? null;
  const lit = new Set(at ? pathTo(at) : []);
  const entry = at ?? layout.columns[step]?.find((n) => n.chosen) ?? nodes[0];
  const left = layout.edges[Math.min(step, layout.columns.length - 1)] ?? 0;

  useEffect(() => {
    const element = box.current;
    if (!element || (left > element.scrollLeft + 60 && left < element.scrollLeft + element.clientWidth - 160)) return;
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    element.scrollTo({ left: Math.max(0, left - element.clientWidth / 3), behavior: calm ? "auto" : "smooth" });
  }, [left]);

  const move = (event: KeyboardEvent, node: BeamNode): void => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      onSelect(node);
      return;
    }
    const next = neighbour(layout, node, event.key);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    onSelect(next);
    box.current?.querySelector<SVGGElement>(`[data-beam="${next.step}.${next.index}"]`)?.focus();
  };

  return (
    <div class="beam-box" ref={box}>
      <svg class="beam" width={layout.width} height={layout.height} role="group" aria-label="Beam search tree">
        {layout.columns.map((_, t) => (
          <text key={t} class="beam-step" data-now={t === step} x={layout.edges[t]} y={14}>
            {t + 1}
          </text>
        ))}
        <rect class="beam-column" x={left - 8} y={SIZES.top - 10} width={columnWidth(layout, step)} height={layout.height - SIZES.top} />
        <text class="beam-start" x={4} y={SIZES.top + 5}>start</text>
        <g class="beam-lines">
          {inkLast(nodes, lit).map((node) => (
            <path key={keyOf(node)} class="beam-line" data-fate={node.fate} data-chosen={node.chosen} data-lit={lit.has(node)} d={line(node)} />
          ))}
        </g>
        {nodes.map((node) => (
          <g
            key={keyOf(node)} class="beam-node" data-beam={`${node.step}.${node.index}`} data-fate={node.fate}
            data-chosen={node.chosen} data-lit={lit.has(node)} role="button" aria-pressed={node === at}
            tabindex={node === entry ? 0 : -1} aria-label={spoken(node)}
            onClick={() => onSelect(node)} onKeyDown={(event) => move(event, node)}
          >
            <title>{spoken(node)}</title>
            <rect x={node.x - 6} y={node.y - 11} width={textWidth(node) + 12} height={22} rx={3} />
            <text x={node.x} y={node.y + 4.5}>
              <Shown piece={cut(label(node.candidate.piece), LONGEST_PIECE)} />
            </text>
            {node.fate === "finished" && <path class="beam-end" d={`M${node.x + textWidth(node) + 10} ${node.y - 8}v16`} />}
          </g>
        ))}
      </svg>
    </div>
  );
}

/** As `Piece.tsx`, in SVG. */
function Shown({ piece }: { piece: string }) {
  return piece.length > 1 && piece.startsWith("▁") ? <><tspan class="word-mark">▁</tspan>{piece.slice(1)}</> : <>{piece}</>;
}

const keyOf = (node: BeamNode): string => `${node.step}.${node.index}`;

const textWidth = (node: BeamNode): number =>
  Math.min(LONGEST_PIECE, Math.max(1, [...node.candidate.piece].length)) * SIZES.characterWidth;

function columnWidth(layout: ReturnType<typeof layoutBeam>, step: number): number {
  const column = layout.columns[step] ?? [];
  return Math.max(30, ...column.map((node) => textWidth(node) + 18));
}

/** From the right side of the parent to this candidate, level at both ends. */
function line(node: BeamNode): string {
  const x0 = node.parent ? node.parent.x + textWidth(node.parent) + 6 : 40;
  const y0 = node.parent ? node.parent.y : SIZES.top;
  const x1 = node.x - 6;
  const bend = Math.max(x1 - SIZES.gap, x0);
  return `M${x0} ${y0}H${bend}C${(bend + x1) / 2} ${y0} ${(bend + x1) / 2} ${node.y} ${x1} ${node.y}`;
}

/** Faint lines first, so that the ones that matter lie on top. */
function inkLast(nodes: BeamNode[], lit: Set<BeamNode>): BeamNode[] {
  const weight = (n: BeamNode): number => (lit.has(n) ? 3 : n.chosen ? 2 : n.fate === "pruned" ? 0 : 1);
  return [...nodes].sort((a, b) => weight(a) - weight(b));
}

function spoken({ candidate, step, fate, chosen }: BeamNode): string {
  const end = { lives: "goes on", finished: "ends here", pruned: "pruned" }[fate];
  return `step ${step + 1}, ${label(candidate.piece)}, ${percent(Math.exp(candidate.log_prob))}, `
    + `sum of log-probabilities ${plain(candidate.total)}, ${end}${chosen ? ", part of the answer" : ""}`;
}
