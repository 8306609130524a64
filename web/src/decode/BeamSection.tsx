/**
 * The beam search below the bars: the tree, the candidate that is looked at with its sums, and every hypothesis
 * that ended, in the order of their scores.
 */
import { layoutBeam, pathTo, type BeamNode } from "./beam";
import { BeamTree } from "./BeamTree";
import { asText } from "./forcing";
import { decimals, label, percent, plain } from "./numbers";
import type { Manifest } from "../types";

interface Props {
  manifest: Manifest;
  step: number;
  /** "step.index" */
  selected: string | undefined;
  showPruned: boolean;
  live: boolean;
  onShowPruned: (shown: boolean) => void;
  onSelect: (node: BeamNode) => void;
  onForce: (prefix: number[]) => void;
}

export function BeamSection({ manifest, step, selected, showPruned, live, onShowPruned, onSelect, onForce }: Props) {
  const log = manifest.decode;
  const [s, i] = (selected ?? "").split(".").map(Number);
  const at = selected !== undefined && s !== undefined && i !== undefined ? { step: s, index: i } : null;
  const all = layoutBeam(log, true).columns.flat();
  const node = all.find((n) => n.step === at?.step && n.index === at.index) ?? all.find((n) => n.step === step && n.chosen) ?? null;
  const ended = all.filter((n) => n.fate === "finished").sort((a, b) => b.candidate.score - a.candidate.score);
  const { beam_size: width, length_penalty: penalty } = log.settings;
  return (
    <section class="beam-section" aria-labelledby="beam-title">
      <h2 id="beam-title">{width === 1 ? "Greedy search" : "Beam search"}</h2>
      <p>
        {width === 1
          ? "At each step the most probable token is taken, and the others are dropped."
          : `At each step the ${width} best unfinished translations are extended by every token. The best extensions stand below in order: ${width} live on, those that end are set aside, the others are pruned.`}
      </p>
      <p class="beam-key">
        <span><i class="key-line" data-fate="chosen" /> the answer</span>
        <span><i class="key-line" data-fate="lives" /> goes on</span>
        <span><i class="key-line" data-fate="finished" /> ended with [EOS]</span>
        {all.some((n) => n.fate === "pruned") && <span><i class="key-line" data-fate="pruned" /> pruned</span>}
        {all.some((n) => n.fate === "pruned") && <label>
          <input type="checkbox" data-role="show-pruned" checked={showPruned} onChange={(e) => onShowPruned(e.currentTarget.checked)} /> show
          pruned
        </label>}
      </p>
      <BeamTree log={log} showPruned={showPruned} step={step} selected={at} onSelect={onSelect} />
      <div class="beam-below">
        <div class="beam-detail" aria-live="polite">
          {node ? <Detail node={node} penalty={penalty} live={live} onForce={onForce} /> : <p class="quiet">Choose a candidate to see its sums.</p>}
        </div>
        {ended.length > 0 && <Ended nodes={ended} penalty={penalty} onSelect={onSelect} />}
      </div>
    </section>
  );
}

interface DetailProps {
  node: BeamNode;
  penalty: number;
  live: boolean;
  onForce: (prefix: number[]) => void;
}

function Detail({ node, penalty, live, onForce }: DetailProps) {
  const path = pathTo(node);
  const { candidate, fate } = node;
  const digits = decimals([candidate.log_prob, candidate.total, candidate.score]);
  const fates = {
    lives: `It lives on as number ${(candidate.row ?? 0) + 1} of the beam.`,
    finished: "It ends here and waits among the finished.",
    pruned: "It is pruned: enough others were more probable.",
  };
  return (
    <>
      <h3>{asText(path.map((n) => n.candidate.piece)) || "(nothing yet)"}</h3>
      <dl class="sums">
        <dt>log p({label(candidate.piece)}) at step {node.step + 1}, p = {percent(Math.exp(candidate.log_prob))}</dt>
        <dd>{plain(candidate.log_prob, digits)}</dd>
        <dt>before it</dt>
        <dd>{plain(node.parent?.candidate.total ?? 0, digits)}</dd>
        <dt>sum of log-probabilities</dt>
        <dd>{plain(candidate.total, digits)}</dd>
        <dt>score: sum / {path.length}<sup>{plain(penalty, 1)}</sup></dt>
        <dd>{plain(candidate.score, digits)}</dd>
      </dl>
      <p>{fates[fate]}</p>
      {fate !== "finished" && live && (
        <button type="button" class="plain-button" data-role="force-path" onClick={() => onForce(path.map((n) => n.candidate.id))}>
          Go on from here
        </button>
      )}
    </>
  );
}

function Ended({ nodes, penalty, onSelect }: { nodes: BeamNode[]; penalty: number; onSelect: (node: BeamNode) => void }) {
  const digits = decimals(nodes.slice(0, 8).map((node) => node.candidate.score));
  return (
    <div class="scroll-x">
      <table class="ended">
        <caption>Finished, by score (sum of log-probabilities / length{penalty === 1 ? "" : <sup>{plain(penalty, 1)}</sup>})</caption>
        <thead>
          <tr>
            <th scope="col">Text</th>
            <th scope="col">Length</th>
            <th scope="col">Sum</th>
            <th scope="col">Score</th>
          </tr>
        </thead>
        <tbody>
          {nodes.slice(0, 8).map((node) => {
            const path = pathTo(node);
            return (
              <tr key={`${node.step}.${node.index}`} data-chosen={node.chosen}>
                <td>
                  <button type="button" class="link" onClick={() => onSelect(node)}>
                    {asText(path.slice(0, -1).map((n) => n.candidate.piece)) || "(empty)"}
                  </button>
                </td>
                <td>{path.length}</td>
                <td>{plain(node.candidate.total, digits)}</td>
                <td>{plain(node.candidate.score, digits)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
