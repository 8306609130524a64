/** The beam search: its tree, the selected hypothesis with its score, and the finished hypotheses in order of score. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { route, setParams, source } from "../../state/page";
import { useValue } from "../../state/signals";
import { number, percent, visible } from "../../tensors/format";
import { asText } from "../../trace/generation";
import type { Manifest } from "../../types";
import { Table } from "../../views/Table";
import { type BeamLayout, type BeamNode, cut, GAP, layoutBeam, neighbour, OUTCOMES, pathTo, TOP } from "./beam";

interface Props {
  manifest: Manifest;
  step: number;
  onForce: (prefix: number[]) => void;
}

export function BeamSection({ manifest, step, onForce }: Props) {
  const { decode: log } = manifest;
  const { beam, pruned } = useValue(route).params;
  const layout = layoutBeam(log, pruned !== "0", measured);
  const all = layoutBeam(log, true, measured).columns.flat();
  const node = all.find(({ key }) => key === beam) ?? all.find((one) => one.step === step && one.chosen);
  const ended = all.filter(({ outcome }) => outcome === "finished").sort((a, b) => b.candidate.score - a.candidate.score).slice(0, 8);
  const { beam_size: width, length_penalty: penalty } = log.settings;
  const select = ({ key }: BeamNode): void => setParams({ beam: key });
  return (
    <section class="beam-section" aria-labelledby="beam-title">
      <h2 id="beam-title">{width === 1 ? "Greedy search" : "Beam search"}</h2>
      <p>
        {width === 1
          ? "Each step takes the most probable token and drops the others."
          : `Each step extends ${width} hypotheses by every token. The ${width} best unfinished ones are kept, finished ones stored, the others pruned.`}
      </p>
      <p class="row note">
        {Object.entries({ chosen: "best hypothesis", ...OUTCOMES }).map(([outcome, name]) => <span key={outcome}><i class="key-line" data-outcome={outcome} /> {name}</span>)}
        <label>
          <input type="checkbox" data-role="show-pruned" checked={pruned !== "0"} onChange={(e) => setParams({ pruned: e.currentTarget.checked ? null : "0" })} /> show
          pruned
        </label>
      </p>
      <BeamTree layout={layout} step={step} selected={beam} onSelect={select} />
      <div class="columns">
        {ended.length > 0 && <FinishedTable nodes={ended} penalty={penalty} onSelect={select} />}
        {node && <ScoreTable node={node} penalty={penalty} onForce={onForce} />}
      </div>
    </section>
  );
}

function ScoreTable({ node, penalty, onForce }: { node: BeamNode; penalty: number; onForce: Props["onForce"] }) {
  const path = pathTo(node);
  const { log_prob, total, score, piece } = node.candidate;
  const rows: [ComponentChildren, number][] = [
    ["sum before this token", node.parent?.candidate.total ?? 0],
    [<>log p({visible(piece)}), p = {percent(Math.exp(log_prob))}</>, log_prob],
    ["sum of log-probabilities", total],
    [<>score: sum / {path.length}<sup>{penalty}</sup></>, score],
  ];
  return (
    <div aria-live="polite">
      <h3><i>{asText(path.map((one) => one.candidate.piece)) || "(empty)"}</i></h3>
      <Table label="Score" columns={["", ""]} rows={rows.map(([name, value]) => ({ cells: [name, number(value, 4)] }))} />
      <p>
        This hypothesis is {OUTCOMES[node.outcome]}.{" "}
        {node.outcome !== "finished" && source.live && (
          <button type="button" class="link" data-role="force-path" onClick={() => onForce(path.map((one) => one.candidate.id))}>
            Continue from here
          </button>
        )}
      </p>
    </div>
  );
}

function FinishedTable({ nodes, penalty, onSelect }: { nodes: BeamNode[]; penalty: number; onSelect: (node: BeamNode) => void }) {
  return (
    <div>
      <h3>Finished hypotheses, by sum / length{penalty === 1 ? "" : <sup>{penalty}</sup>}</h3>
      <Table
        label="Finished hypotheses" columns={["Text", "Length", "Sum", "Score"]}
        rows={nodes.map((node) => {
          const path = pathTo(node), text = asText(path.slice(0, -1).map((one) => one.candidate.piece)) || "(empty)";
          return {
            cells: [<button type="button" class="link" onClick={() => onSelect(node)}>{text}</button>, path.length, number(node.candidate.total, 4), number(node.candidate.score, 4)],
            attributes: { class: node.chosen ? "term-mark" : "" },
          };
        })}
      />
    </div>
  );
}

interface TreeProps {
  layout: BeamLayout;
  /** Step whose column is highlighted. */
  step: number;
  selected: string | undefined;
  onSelect: (node: BeamNode) => void;
}

export function BeamTree({ layout, step, selected, onSelect }: TreeProps) {
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
