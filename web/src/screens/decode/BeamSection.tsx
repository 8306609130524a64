/**
 * The beam search below the bars: the tree, the candidate that is looked at with its sums, and every hypothesis
 * that ended, in the order of their scores.
 */
import type { ComponentChildren } from "preact";
import { route, setParams, source } from "../../state/page";
import { useValue } from "../../state/signals";
import { number, percent, visible } from "../../tensors/format";
import { asText } from "../../trace/writing";
import type { Manifest } from "../../types";
import { type BeamNode, FATES, layoutBeam, pathTo } from "./beam";
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
  const ended = all.filter(({ fate }) => fate === "finished").sort((a, b) => b.candidate.score - a.candidate.score).slice(0, 8);
  const { beam_size: width, length_penalty: penalty } = log.settings;
  const select = ({ key }: BeamNode): void => setParams({ beam: key });
  return (
    <section class="beam-section" aria-labelledby="beam-title">
      <h2 id="beam-title">{width === 1 ? "Greedy search" : "Beam search"}</h2>
      <p>
        {width === 1
          ? "At each step the most probable token is taken, and the others are dropped."
          : `At each step ${width} translations are extended by every token. Of the extensions, best first, ${width} go on, those that end are set aside, the others are pruned.`}
      </p>
      <p class="row note">
        {Object.entries({ chosen: "the answer", ...FATES }).map(([fate, name]) => <span key={fate}><i class="key-line" data-fate={fate} /> {name}</span>)}
        <label>
          <input type="checkbox" data-role="show-pruned" checked={pruned !== "0"} onChange={(e) => setParams({ pruned: e.currentTarget.checked ? null : "0" })} /> show
          pruned
        </label>
      </p>
      <BeamTree layout={layout} step={step} selected={beam} onSelect={select} />
      <div class="columns arithmetic">
        {ended.length > 0 && <Ended nodes={ended} penalty={penalty} onSelect={select} />}
        {node && <Sums node={node} penalty={penalty} onForce={onForce} />}
      </div>
    </section>
  );
}

function Sums({ node, penalty, onForce }: { node: BeamNode; penalty: number; onForce: Props["onForce"] }) {
  const path = pathTo(node);
  const { log_prob, total, score, piece } = node.candidate;
  const row = (name: ComponentChildren, value: number) => <tr><th scope="row" class="label">{name}</th><td>{number(value, 4)}</td></tr>;
  return (
    <div class="arithmetic-scroll" aria-live="polite">
      <h3><i>{asText(path.map((one) => one.candidate.piece)) || "(nothing yet)"}</i></h3>
      <table>
        <tbody>
          {row("before it", node.parent?.candidate.total ?? 0)}
          {row(<>log p({visible(piece)}), p = {percent(Math.exp(log_prob))}</>, log_prob)}
        </tbody>
        <tfoot>
          {row("sum of log-probabilities", total)}
          {row(<>score: sum / {path.length}<sup>{penalty}</sup></>, score)}
        </tfoot>
      </table>
      <p>
        It {FATES[node.fate]}.{" "}
        {node.fate !== "finished" && source.live && (
          <button type="button" class="link" data-role="force-path" onClick={() => onForce(path.map((one) => one.candidate.id))}>
            Go on from here
          </button>
        )}
      </p>
    </div>
  );
}

function Ended({ nodes, penalty, onSelect }: { nodes: BeamNode[]; penalty: number; onSelect: (node: BeamNode) => void }) {
  return (
    <div class="arithmetic-scroll">
      <h3>Finished, by sum / length{penalty === 1 ? "" : <sup>{penalty}</sup>}</h3>
      <table class="ended">
        <thead><tr>{["Text", "Length", "Sum", "Score"].map((head) => <th key={head} scope="col" class={head === "Text" ? "label" : ""}>{head}</th>)}</tr></thead>
        <tbody>
          {nodes.map((node) => {
            const path = pathTo(node);
            return (
              <tr key={node.key} class={node.chosen ? "term-mark" : ""}>
                <th scope="row" class="label">
                  <button type="button" class="link" onClick={() => onSelect(node)}>
                    {asText(path.slice(0, -1).map((one) => one.candidate.piece)) || "(empty)"}
                  </button>
                </th>
                <td>{path.length}</td>
                <td>{number(node.candidate.total, 4)}</td>
                <td>{number(node.candidate.score, 4)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
