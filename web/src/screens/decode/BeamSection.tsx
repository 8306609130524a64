/** The beam search: its tree, the selected hypothesis with its score, and the finished hypotheses in order of score. */
import type { ComponentChildren } from "preact";
import { route, setParams, source } from "../../state/page";
import { useValue } from "../../state/signals";
import { number, percent, visible } from "../../tensors/format";
import { asText } from "../../trace/generation";
import type { Manifest } from "../../types";
import { Table } from "../../views/Table";
import { type BeamNode, OUTCOMES, layoutBeam, pathTo } from "./beam";
import { BeamTree, measured } from "./BeamTree";

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
