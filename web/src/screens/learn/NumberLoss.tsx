/** The loss of a number, spelled out: the output, what it should be, the error and its square. */
import { source } from "../../state/page";
import { useResource } from "../../state/resource";
import { exact, number, tiny } from "../../tensors/format";
import type { Manifest } from "../../types";
import { openStep } from "../../views/interaction";
import { Terms } from "../../views/Terms";

/** Rounding errors of a square of float32 numbers, relative to their size. */
const ROUNDING = 1e-5;

interface Spelled {
  answer: string;
  output: number;
  target: number;
  recorded: number;
}

async function spelledOut({ id, answer, learning }: Manifest): Promise<Spelled> {
  const first = async (step: string) => (await source.tensor(id, step)).data[0]!;
  return { answer: answer.headline, output: await first("logits"), target: learning!.target!, recorded: await first("loss") };
}

export function NumberLossSection({ before, after }: { before: Manifest; after: Manifest | null }) {
  const first = useResource(before.id, () => spelledOut(before), { within: "loss" });
  const then = useResource(after && after.id, () => spelledOut(after!));
  if (first.error) return <p class="note">{first.error.message}</p>;
  if (!first.value) return null;
  const rows = [["before", first.value] as const, ...(after && then.value && !first.stale ? [["after", then.value] as const] : [])];
  return (
    <section class="learn-loss" aria-labelledby="loss-title" data-role="loss-section">
      <h2 id="loss-title"><Terms>The loss of the answer</Terms></h2>
      <p>
        The output is a distance from the mean of the training numbers, in their standard deviations: for {before.learning!.answer} it should
        be {number(first.value.target, 4)}. The loss is the square of the error, the output minus that.
      </p>
      <div class="arithmetic-scroll" tabIndex={0} role="region" aria-label="Loss">
        <table class="learn-table">
          <thead><tr><td /><th scope="col">answer</th><th scope="col">output</th><th scope="col">error</th><th scope="col">loss</th><td /></tr></thead>
          <tbody>{rows.map(([name, spelled]) => <Row key={name} name={name} spelled={spelled} />)}</tbody>
        </table>
      </div>
      <p class="learn-links">
        <button type="button" class="link" onClick={() => openStep("loss")}>The step that computes it</button> ·{" "}
        <button type="button" class="link" onClick={() => openStep("loss.grad")}>The backward pass, from the loss on</button>
        <span class="visually-hidden" data-role="loss-before" data-value={exact((first.value.output - first.value.target) ** 2)} />
      </p>
    </section>
  );
}

function Row({ name, spelled: { answer, output, target, recorded } }: { name: string; spelled: Spelled }) {
  const error = output - target;
  const loss = error ** 2;
  const off = Math.abs(loss - recorded);
  const ok = off <= ROUNDING * Math.max(1, recorded);
  return (
    <tr data-role={`mean-${name}`} data-state={ok ? "ok" : "bad"} data-value={exact(loss)}>
      <th scope="row" class="label">{name}</th><td>{answer}</td><td>{number(output, 4)}</td><td>{number(error, 4)}</td><td><strong>{number(loss, 4)}</strong></td>
      <td class={ok ? "check-ok" : "check-bad"}>{ok ? "✓" : `✗ the model has ${number(recorded, 4)}`}{ok && off > 0 ? ` Δ ${tiny(off)}` : ""}</td>
    </tr>
  );
}
