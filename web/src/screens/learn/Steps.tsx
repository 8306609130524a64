/** The steps taken: the curve of their losses, the norm of each gradient, and the factor of clipping. */
import { number, percent } from "../../tensors/format";
import type { Learned, LearningFacts } from "../../types";
import { Chart } from "../../views/Chart";
import { Table } from "../../views/Table";
import { Terms } from "../../views/Terms";

export function StepsSection({ learned, facts }: { learned: Learned; facts: LearningFacts }) {
  const losses = [...learned.steps.map(({ loss }) => loss), learned.loss];
  const last = learned.steps.at(-1)!;
  const n = learned.steps.length, least = Math.min(...losses), wide = least > 0 && Math.max(...losses) > 20 * least;
  return (
    <section aria-labelledby="steps-title" data-role="steps-section">
      <h2 id="steps-title">{n === 1 ? "One step" : `${n} steps`}: the loss goes from {number(losses[0]!)} to {number(learned.loss)}</h2>
      <div class="columns">
        <Chart
          name="learned" title={`Loss of the answer, ${facts.target === null ? "in nats per label" : "a squared error"}`} by="step" log={wide} zero={!wide} xs={[0, n]}
          lines={[{ name: "loss", points: losses.map((loss, i) => [i, loss]), dots: n < 32 }]}
        />
        <div>
          <p>
            <Terms>{`The gradient of ${n === 1 ? "the" : "the last"} step, of all parameters together, has the norm ${number(last.grad_norm)}.`}</Terms>{" "}
            {facts.max_grad_norm > 0 ? last.clipped < 1
              ? `That is more than ${number(facts.max_grad_norm)}: it is clipped to that norm, ${percent(last.clipped)} of its own: each number is multiplied by ${number(facts.max_grad_norm)} / ${number(last.grad_norm)} = ${number(last.clipped)}.`
              : `That is at most ${number(facts.max_grad_norm)}: it is not clipped.` : "This run does not clip gradients."}
          </p>
          <p>{facts.target !== null ? `The answer is ${learned.right ? "now" : "not yet"} within 0.1 standard deviations of the training numbers.`
            : learned.right ? "The answer is now the most probable one." : "The answer is not yet the most probable one."}</p>
          <Table
            label="Steps" columns={["step", "loss before", "norm of gradient", "clipped to"]}
            rows={learned.steps.map(({ loss, grad_norm, clipped }, i) => ({ cells: [i + 1, number(loss, 4), number(grad_norm, 4), clipped < 1 ? percent(clipped) : "not"], attributes: { "data-step": i + 1 } }))}
          />
        </div>
      </div>
    </section>
  );
}
