/** The loss of the answer, spelled out: of each label the probability, −log p and its part of the loss; of a number the error and its square. */
import { source } from "../../state/page";
import { useResource } from "../../state/resource";
import { exact, number, percent, tiny } from "../../tensors/format";
import { isMasked, outputStream } from "../../trace/generation";
import { labelsOf, nameOf } from "../../trace/stepData";
import type { Manifest } from "../../types";
import { openStep } from "../../views/interaction";
import { Table } from "../../views/Table";
import { Terms } from "../../views/Terms";

/** Labels that are listed; the mean is over all. */
const LISTED = 40;
/** Terms of the sum that are written, the largest. */
const TERMS = 6;
/** Rounding errors of a mean of float32 numbers, relative to their size. */
const ROUNDING = 1e-5;

interface Spelled {
  trace: Manifest;
  /** Of each label that is listed: its row in the logits, its probability and its cross-entropy. */
  parts: { row: number; label: number; probability: number; loss: number }[];
  /** Of all labels. */
  losses: number[];
  /** The output, where it is a number. */
  output: number;
  mean: number;
  recorded: number;
}

async function spelledOut(trace: Manifest): Promise<Spelled> {
  const get = async (id: string, slice = "") => (await source.tensor(trace.id, id, slice)).data;
  const { labels, target } = trace.learning!, recorded = (await get("loss"))[0]!;
  if (target !== null) {
    const output = (await get("logits"))[0]!;
    return { trace, parts: [], losses: [], output, mean: (output - target) ** 2, recorded };
  }
  const rows = labels.map((_, row) => row).filter((row) => labels[row] !== null), each = await get("loss.each");
  const probability = async (row: number) => {
    const label = labels[row]!, prediction = trace.predictions[row];
    const listed = prediction && [prediction.actual, ...prediction.top].find((one) => one?.id === label);
    if (listed) return Math.exp(listed.log_prob);
    const { axes } = trace.nodes.find(({ id }) => id === "loss.probabilities")!, across = `${axes.at(-1)!.name}:${label}`;
    return (await get("loss.probabilities", axes.length > 1 ? `token:${row};${across}` : across))[0]!;
  };
  const parts = await Promise.all(rows.slice(0, LISTED).map(async (row) => ({ row, label: labels[row]!, probability: await probability(row), loss: each[row]! })));
  const losses = rows.map((row) => each[row]!);
  return { trace, parts, losses, output: 0, mean: losses.reduce((sum, loss) => sum + loss, 0) / rows.length, recorded };
}

export function LossSection({ before: asked, after }: { before: Manifest; after: Manifest | null }) {
  const first = useResource(asked.id, () => spelledOut(asked), { within: "loss" });
  const then = useResource(after && after.id, () => spelledOut(after!));
  if (first.error) return <p class="note">{first.error.message}</p>;
  if (!first.value) return null;
  // While the next answer is computed the last one stays, with the names and the labels of its own trace.
  const { trace, mean } = first.value, isNumber = trace.learning!.target !== null;
  const passes = [["before", first.value] as const, ...(after && then.value && !first.stale ? [["after", then.value] as const] : [])];
  return (
    <section class="learn-loss" aria-labelledby="loss-title" data-role="loss-section">
      <h2 id="loss-title"><Terms>The loss of the answer</Terms></h2>
      {isNumber ? <OfNumber passes={passes} /> : <OfLabels passes={passes} />}
      <p class="learn-links">
        <button type="button" class="link" onClick={() => openStep(isNumber ? "loss" : "loss.each")}>The step that computes it</button> ·{" "}
        <button type="button" class="link" onClick={() => openStep("loss.grad")}>The backward pass, from the loss on</button>
        <span class="visually-hidden" data-role="loss-before" data-value={exact(mean)} />
      </p>
    </section>
  );
}

type Passes = (readonly [name: string, spelled: Spelled])[];

function OfNumber({ passes }: { passes: Passes }) {
  const { answer, target } = passes[0]![1].trace.learning!;
  return (
    <>
      <p>
        The output is a distance from the mean of the training numbers, in their standard deviations: for {answer} it should
        be {number(target!, 4)}. The loss is the square of the error, the output minus that.
      </p>
      <Table label="Loss" columns={["", "answer", "output", "error"]} rows={passes.map(([name, { trace, output }]) => ({ cells: [name, trace.answer.headline, number(output, 4), number(output - target!, 4)] }))} />
      {passes.map(([name, spelled]) => <Mean key={name} name={name} spelled={spelled} />)}
    </>
  );
}

function OfLabels({ passes }: { passes: Passes }) {
  const { trace, parts, losses } = passes[0]![1], { smoothing } = trace.learning!;
  const logits = trace.nodes.find(({ id }) => id === "logits")!, n = labelsOf(trace.nodes.find(({ op }) => op === "targets")!).filter((one) => one !== null).length;
  const classes = logits.axes.at(-1)!.name === "class", { pieces } = outputStream(trace);
  const columns = passes.flatMap(([name]) => ["p", "−log p", ...(smoothing > 0 ? ["loss"] : [])].map((head) => (name === "after" ? `${head} after` : head)));
  // Without label smoothing the loss is −log p: the number that the sum below has.
  const numbers = ({ probability, loss }: Spelled["parts"][number]) =>
    [percent(probability), number(smoothing > 0 ? -Math.log(probability) : loss, 4), ...(smoothing > 0 ? [number(loss, 4)] : [])];
  return (
    <>
      <p>
        {classes ? "The model gives the right class" : "At each position the model gives the right token"} the probability p. The loss is −log p{smoothing > 0 && <>, with the label smoothing ε = {number(smoothing)}: (1 − ε) · (−log p) + ε · the mean of −log p over all {classes ? "classes" : "tokens"}</>}
        {n > 1 && ", averaged over all labels"}.
      </p>
      <div class="learn-both">
        <Table
          label="Labels" columns={[...(classes ? ["right class"] : ["token read", isMasked(trace) ? "right token" : "right next token"]), ...columns]}
          rows={parts.map((part, i) => ({
            cells: [...(classes ? [] : [<bdi>{pieces[part.row]}</bdi>]), <bdi>{nameOf(trace, logits, part.label)}</bdi>, ...passes.flatMap(([, { parts }]) => (parts[i] ? numbers(parts[i]) : []))],
          }))}
        />
        <div>
          {losses.length > LISTED && <p class="note">The first {LISTED} of {losses.length} labels.</p>}
          {passes.map(([name, spelled]) => <Mean key={name} name={name} spelled={spelled} />)}
        </div>
      </div>
    </>
  );
}

/** The sum, the division and the loss, or the square of the error, and whether it is the model's. */
function Mean({ name, spelled: { trace, losses, output, mean, recorded } }: { name: string; spelled: Spelled }) {
  const ok = Math.abs(mean - recorded) <= ROUNDING * Math.max(1, Math.abs(recorded)), n = losses.length, { target } = trace.learning!;
  const largest = [...losses].sort((a, b) => b - a).slice(0, TERMS), rest = mean * n - largest.reduce((sum, loss) => sum + loss, 0);
  const terms = largest.map((loss) => number(loss, 4)).join(" + ") + (n > TERMS ? ` + ${number(Math.max(0, rest), 4)} of ${n - TERMS} more` : "");
  return (
    <p class="learn-mean" data-role={`mean-${name}`} data-state={ok ? "ok" : "bad"} data-value={exact(mean)}>
      Loss {name}: {target !== null ? `(${number(output - target, 4)})² = ` : n > 1 ? `(${terms}) / ${n} = ` : ""}<strong>{number(mean, 4)}</strong>{" "}
      <span class={ok ? "check-ok" : "check-bad"}>{ok ? "✓" : "✗"} {ok ? "as the model computes it" : `the model has ${number(recorded, 4)}`}{ok && mean !== recorded ? `, Δ ${tiny(Math.abs(mean - recorded))}` : ""}</span>
    </p>
  );
}
