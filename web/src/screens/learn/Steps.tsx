/** The steps taken: the curve of their losses, the norm of each gradient, and the factor of clipping. */
import { number, percent } from "../../tensors/format";
import type { Learned, LearningFacts } from "../../types";
import { Terms } from "../../views/Terms";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [620, 210, 96, 10, 14, 30];

export function StepsSection({ learned, facts }: { learned: Learned; facts: LearningFacts }) {
  const losses = [...learned.steps.map(({ loss }) => loss), learned.loss];
  const last = learned.steps.at(-1)!;
  const n = learned.steps.length;
  return (
    <section aria-labelledby="steps-title" data-role="steps-section">
      <h2 id="steps-title">{n === 1 ? "One step" : `${n} steps`}: the loss goes from {number(losses[0]!)} to {number(learned.loss)}</h2>
      <div class="columns">
        <Curve losses={losses} unit={facts.target === null ? "in nats per label" : "a squared error"} />
        <div>
          <p>
            <Terms>{`The gradient of ${n === 1 ? "the" : "the last"} step, of all parameters together, has the norm ${number(last.grad_norm)}.`}</Terms>{" "}
            {facts.max_grad_norm > 0 ? last.clipped < 1
              ? `That is more than ${number(facts.max_grad_norm)}: it is clipped to that norm, ${percent(last.clipped)} of its own: each number is multiplied by ${number(facts.max_grad_norm)} / ${number(last.grad_norm)} = ${number(last.clipped)}.`
              : `That is at most ${number(facts.max_grad_norm)}: it is not clipped.` : "This run does not clip gradients."}
          </p>
          <p>{facts.target !== null ? `The answer is ${learned.right ? "now" : "not yet"} within 0.1 standard deviations of the training numbers.`
            : learned.right ? "The answer is now the most probable one." : "The answer is not yet the most probable one."}</p>
          <div class="learn-scroll" tabIndex={0} role="region" aria-label="Steps">
            <table class="learn-table">
              <thead><tr><th scope="col">step</th><th scope="col">loss before</th><th scope="col">norm of gradient</th><th scope="col">clipped to</th></tr></thead>
              <tbody>
                {learned.steps.map((step, i) => (
                  <tr key={i} data-step={i + 1}><th scope="row">{i + 1}</th><td>{number(step.loss, 4)}</td><td>{number(step.grad_norm, 4)}</td><td>{step.clipped < 1 ? percent(step.clipped) : "not"}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
        </div>
      </div>
    </section>
  );
}

/** The loss before the first step and after each. */
function Curve({ losses, unit }: { losses: readonly number[]; unit: string }) {
  const most = Math.max(...losses, 1e-9);
  const least = Math.min(...losses);
  const wide = least > 0 && most > 20 * least;
  const x = (i: number) => LEFT + (i / (losses.length - 1)) * (WIDTH - LEFT - RIGHT);
  const share = (loss: number) => (wide ? Math.log(loss / least) / Math.log(most / least) : loss / most);
  const y = (loss: number) => TOP + (1 - share(loss)) * (HEIGHT - TOP - BOTTOM);
  const powers = [-6, -5, -4, -3, -2, -1, 0, 1].map((power) => 10 ** power).filter((one) => share(one) > 0.15 && share(one) < 0.85);
  const points = losses.map((loss, i) => `${x(i).toFixed(1)} ${y(loss).toFixed(1)}`);
  const words = `The loss after each step: ${losses.slice(0, 12).map((loss) => number(loss)).join(", ")}${losses.length > 12 ? " …" : ""}`;
  return (
    <figure>
      <svg class="plot learn-curve" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={words}>
        <path class="axis" d={`M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}`} />
        {(wide ? [least, ...powers, most] : [0, most]).map((loss) => <text key={loss} x={LEFT - 6} y={y(loss) + 4} text-anchor="end">{number(loss)}</text>)}
        <text x={LEFT} y={HEIGHT - 8}>before</text>
        <text x={WIDTH - RIGHT} y={HEIGHT - 8} text-anchor="end">{`after ${losses.length - 1} step${losses.length > 2 ? "s" : ""}`}</text>
        <path class="learn-line" d={`M${points.join("L")}`} />
        {losses.length <= 32 && losses.map((loss, i) => <circle key={i} cx={x(i)} cy={y(loss)} r={4}><title>{number(loss, 4)}</title></circle>)}
      </svg>
      <figcaption class="note">The loss of the answer, {unit}, before the first step and after each{wide && ", on a logarithmic axis"}.</figcaption>
    </figure>
  );
}
