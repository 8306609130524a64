/** The loss of the answer, spelled out: of each label the probability, −log p and its part of the loss; then their mean. */
import { source } from "../../state/page";
import { useResource } from "../../state/resource";
import { exact, number, percent, tiny } from "../../tensors/format";
import { labelsOf, nameOf } from "../../trace/labels";
import { isMasked, outputStream } from "../../trace/generation";
import type { Manifest } from "../../types";
import { openStep } from "../../views/interaction";
import { Terms } from "../../views/Terms";

/** Labels that are listed; the mean is over all. */
const LISTED = 40;
/** Terms of the sum that are written, the largest. */
const TERMS = 6;
/** Rounding errors of a mean of float32 numbers, relative to their size. */
const ROUNDING = 1e-5;

interface Part {
  row: number;
  label: number;
  probability: number;
  /** The cross-entropy of the label with its target. */
  loss: number;
}

interface Spelled {
  trace: Manifest;
  parts: Part[];
  /** Of all labels. */
  losses: number[];
  mean: number;
  recorded: number;
}

async function spelledOut(trace: Manifest): Promise<Spelled> {
  const get = async (id: string, slice = "") => (await source.tensor(trace.id, id, slice)).data;
  const labels = trace.learning!.labels;
  const rows = labels.map((_, row) => row).filter((row) => labels[row] !== null);
  const each = await get("loss.each");
  const probability = async (row: number) => {
    const label = labels[row]!;
    const listed = trace.predictions[row] && [trace.predictions[row]!.actual, ...trace.predictions[row]!.top].find((one) => one?.id === label);
    if (listed) return Math.exp(listed.log_prob);
    const node = trace.nodes.find(({ id }) => id === "loss.probabilities")!;
    const across = `${node.axes.at(-1)!.name}:${label}`;
    return (await get("loss.probabilities", node.axes.length > 1 ? `token:${row};${across}` : across))[0]!;
  };
  const parts = await Promise.all(rows.slice(0, LISTED).map(async (row): Promise<Part> => ({ row, label: labels[row]!, probability: await probability(row), loss: each[row]! })));
  const losses = rows.map((row) => each[row]!);
  const mean = losses.reduce((sum, loss) => sum + loss, 0) / rows.length;
  return { trace, parts, losses, mean, recorded: (await get("loss"))[0]! };
}

export function LossSection({ before: asked, after }: { before: Manifest; after: Manifest | null }) {
  const first = useResource(asked.id, () => spelledOut(asked), { within: "loss" });
  const then = useResource(after && after.id, () => spelledOut(after!));
  if (first.error) return <p class="note">{first.error.message}</p>;
  if (!first.value) return null;
  // While the next answer is computed the last one stays, with the names and the labels of its own trace.
  const { trace: before, parts, mean } = first.value;
  const { smoothing } = before.learning!;
  const logits = before.nodes.find(({ id }) => id === "logits")!;
  const labels = labelsOf(before.nodes.find(({ op }) => op === "targets")!).filter((one) => one !== null).length;
  const classes = logits.axes.at(-1)!.name === "class";
  const pieces = outputStream(before).pieces;
  const masked = isMasked(before);
  const last = first.stale ? null : then.value;
  return (
    <section class="learn-loss" aria-labelledby="loss-title" data-role="loss-section">
      <h2 id="loss-title"><Terms>The loss of the answer</Terms></h2>
      <p>
        {classes ? "The model gives the right class" : "At each position the model gives the right token"} the probability p. The loss is −log p{smoothing > 0 && <>, with the label smoothing ε = {number(smoothing)}: (1 − ε) · (−log p) + ε · the mean of −log p over all {classes ? "classes" : "tokens"}</>}
        {labels > 1 && ", averaged over all labels"}.
      </p>
      <div class="learn-both">
      <div class="arithmetic-scroll" tabIndex={0} role="region" aria-label="Labels">
        <table class="learn-table">
          <thead>
            <tr>
              {!classes && <th scope="col" class="label">token read</th>}<th scope="col" class="label">{classes ? "right class" : masked ? "right token" : "right next token"}</th><th scope="col">p</th><th scope="col">−log p</th>{smoothing > 0 && <th scope="col">loss</th>}
              {last && <><th scope="col">p after</th><th scope="col">−log p after</th>{smoothing > 0 && <th scope="col">loss after</th>}</>}
            </tr>
          </thead>
          <tbody>
            {parts.map((part, i) => (
              <tr key={part.row}>
                {!classes && <td class="label"><bdi>{pieces[part.row]}</bdi></td>}
                <th scope="row" class="label"><bdi>{nameOf(before, logits, part.label)}</bdi></th>
                <Numbers part={part} smoothed={smoothing > 0} />
                {last?.parts[i] && <Numbers part={last.parts[i]} smoothed={smoothing > 0} />}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div>
      {labels > LISTED && <p class="note">The first {LISTED} of {labels} labels.</p>}
      <Mean name="before" spelled={first.value} labels={labels} />
      {last && <Mean name="after" spelled={last} labels={labels} />}
      <p class="learn-links">
        <button type="button" class="link" onClick={() => openStep("loss.each")}>The step that computes it</button> ·{" "}
        <button type="button" class="link" onClick={() => openStep("loss.grad")}>The backward pass, from the loss on</button>
        <span class="visually-hidden" data-role="loss-before" data-value={exact(mean)} />
      </p>
      </div>
      </div>
    </section>
  );
}

/** Without label smoothing the loss is −log p: the number that the sum below has. */
const Numbers = ({ part: { probability, loss }, smoothed }: { part: Part; smoothed: boolean }) => (
  <><td>{percent(probability)}</td><td>{number(smoothed ? -Math.log(probability) : loss, 4)}</td>{smoothed && <td>{number(loss, 4)}</td>}</>
);

/** The sum, the division and the loss, and whether it is the model's. */
function Mean({ name, spelled: { losses, mean, recorded }, labels }: { name: string; spelled: Spelled; labels: number }) {
  const ok = Math.abs(mean - recorded) <= ROUNDING * Math.max(1, Math.abs(recorded));
  const largest = [...losses].sort((a, b) => b - a).slice(0, TERMS);
  const rest = mean * labels - largest.reduce((sum, loss) => sum + loss, 0);
  const terms = largest.map((loss) => number(loss, 4)).join(" + ") + (labels > TERMS ? ` + ${number(Math.max(0, rest), 4)} of ${labels - TERMS} more` : "");
  return (
    <p class="learn-mean" data-role={`mean-${name}`} data-state={ok ? "ok" : "bad"} data-value={exact(mean)}>
      Loss {name}: {labels > 1 ? `(${terms}) / ${labels} = ` : ""}<strong>{number(mean, 4)}</strong>{" "}
      <span class={ok ? "check-ok" : "check-bad"}>{ok ? "✓" : "✗"} {ok ? "as the model computes it" : `the model has ${number(recorded, 4)}`}{ok && mean !== recorded ? `, Δ ${tiny(Math.abs(mean - recorded))}` : ""}</span>
    </p>
  );
}
