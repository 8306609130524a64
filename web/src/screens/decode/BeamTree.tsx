/**
 * The beam search drawn as a tree. Kept, finished and pruned hypotheses differ in line style and weight, not only in
 * colour. `beam.ts` computes the layout.
 */
import { useEffect, useRef } from "preact/hooks";
import { number, percent, visible } from "../../tensors/format";
import { type BeamLayout, type BeamNode, cut, OUTCOMES, GAP, neighbour, pathTo, TOP } from "./beam";

interface Props {
  layout: BeamLayout;
  /** Step whose column is highlighted. */
  step: number;
  selected: string | undefined;
  onSelect: (node: BeamNode) => void;
}

export function BeamTree({ layout, step, selected, onSelect }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const { columns, edges, width, height } = layout;
  const nodes = columns.flat();
  const at = nodes.find((node) => node.key === selected);
  const lit = new Set(at ? pathTo(at) : []);
  const entry = at ?? columns[step]?.find((node) => node.chosen) ?? nodes[0];
  const left = edges[step] ?? 0;

  useEffect(() => {
    const element = box.current;
    if (!element || (left > element.scrollLeft + 60 && left < element.scrollLeft + element.clientWidth - 160)) return;
    element.scrollLeft = left - element.clientWidth / 3;
  }, [left]);

  const move = (event: KeyboardEvent, node: BeamNode): void => {
    const next = event.key === "Enter" || event.key === " " ? node : neighbour(layout, node, event.key);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    onSelect(next);
    box.current?.querySelector<SVGGElement>(`[data-beam="${next.key}"]`)?.focus();
  };

  return (
    <div class="beam-box" ref={box}>
      <svg class="beam" width={width} height={height} role="group" aria-label="Beam search tree">
        <rect class="beam-column" x={left - 8} y={TOP - 10} width={18 + Math.max(12, ...(columns[step] ?? []).map((node) => node.width))} height={height} />
        {edges.map((x, t) => <text key={t} class="beam-step" data-now={t === step} x={x} y={14}>{t + 1}</text>)}
        <text class="beam-step" x={4} y={TOP + 5}>start</text>
        {inDrawingOrder(nodes, lit).map((node) => (
          <path key={node.key} class="beam-line" data-outcome={node.outcome} data-chosen={node.chosen} data-lit={lit.has(node)} d={line(node)} />
        ))}
        {nodes.map((node) => (
          <g
            key={node.key} class="beam-node" data-beam={node.key} data-outcome={node.outcome} data-chosen={node.chosen} role="button"
            aria-pressed={node === at} tabindex={node === entry ? 0 : -1} aria-label={description(node)}
            onClick={() => onSelect(node)} onKeyDown={(event) => move(event, node)}
          >
            <title>{description(node)}</title>
            <rect x={node.x - 6} y={node.y - 11} width={node.width + 12} height={22} rx={3} />
            <text x={node.x} y={node.y + 4.5}>{cut(node.candidate.piece)}</text>
            {node.outcome === "finished" && <path class="beam-end" d={`M${node.x + node.width + 10} ${node.y - 8}v16`} />}
          </g>
        ))}
      </svg>
    </div>
  );
}

const pen = document.createElement("canvas").getContext("2d");

/** The width of a token in the tree, in bold. */
export function measured(piece: string): number {
  if (!pen) return 0;
  pen.font = `700 14px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(piece).width;
}

/** The path from the parent to this candidate. */
function line({ parent, x, y }: BeamNode): string {
  const x0 = parent ? parent.x + parent.width + 6 : 40;
  const y0 = parent?.y ?? TOP;
  const x1 = x - 6;
  const bend = Math.max(x1 - GAP, x0);
  return `M${x0} ${y0}H${bend}C${(bend + x1) / 2} ${y0} ${(bend + x1) / 2} ${y} ${x1} ${y}`;
}

/** Pruned first, the best hypothesis and the selection last. */
function inDrawingOrder(nodes: BeamNode[], lit: Set<BeamNode>): BeamNode[] {
  const weight = (node: BeamNode): number => (lit.has(node) ? 3 : node.chosen ? 2 : node.outcome === "pruned" ? 0 : 1);
  return [...nodes].sort((a, b) => weight(a) - weight(b));
}

function description({ candidate, step, outcome, chosen }: BeamNode): string {
  return `step ${step + 1}, ${visible(candidate.piece)}, ${percent(Math.exp(candidate.log_prob))}, `
    + `sum of log-probabilities ${number(candidate.total)}, ${OUTCOMES[outcome]}${chosen ? ", part of the best hypothesis" : ""}`;
}
