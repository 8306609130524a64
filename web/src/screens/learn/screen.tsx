/**
 * The Learn screen: an answer that the model should have given, its loss, and what steps of the optimizer on it change:
 * the losses, other texts, the weights, and every number of one update.
 */
import { base, edited, edits, learnSteps, setEdits, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { capital, number, percent, signed } from "../../tensors/format";
import { hasSource, isClassifier, isEmbedder, isMasked } from "../../trace/generation";
import type { Learned, LearningFacts, Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { Chart } from "../../views/Chart";
import { Table } from "../../views/Table";
import { Terms } from "../../views/Terms";
import { LearnForm } from "./Form";
import { LossSection } from "./Loss";
import { UpdateSection } from "./Update";

export function LearnScreen({ trace: shown }: { trace: Manifest }) {
  const trace = useValue(base) ?? shown;
  const steps = useValue(learnSteps);
  const after = useValue(edited);
  const made = useValue(edits).length > 0;
  const facts = trace.learning;
  const learned = steps ? after?.learning?.learned ?? null : null;
  return (
    <div class="learn">
      <h1>Learn</h1>
      <p>
        <Terms>{source.live
          ? "Give the answer that the model should have given. The page shows the loss of that answer and its gradients, takes steps of the optimizer on this text alone, and recomputes every number. The files of the run never change."
          : "The answer that the model should have given, its loss and its gradients; what steps of the optimizer on this text alone changed; and every number recomputed."}</Terms>
      </p>
      {!source.live ? facts === null && <p class="note">This page was saved without an answer to learn. Open the run with <code>glassformer explain</code> to learn one.</p>
        : trace.refused.learn ? <p class="note" data-role="refused">{capital(trace.refused.learn)}.</p>
        : made ? <p class="note" data-role="refused">A model learns without edits only. <button type="button" class="link" onClick={() => setEdits([])}>Remove the edits</button></p>
        : <LearnForm key={`${trace.request.text}|${trace.request.answer}`} trace={trace} />}
      {facts && source.live && <OwnAnswer trace={trace} />}
      {facts && <LossSection before={trace} after={learned && after} />}
      {facts && learned && after && (
        <>
          <StepsSection learned={learned} facts={facts} />
          <div class="columns">
            <OthersSection learned={learned} trace={trace} />
            <MovedSection learned={learned} params={after.params} />
          </div>
          <UpdateSection before={trace} after={after} learned={learned} />
        </>
      )}
      {facts && <LeftOut facts={facts} />}
    </div>
  );
}

/** What the model itself answers, which the answer above the screen is not where one was given. */
function OwnAnswer({ trace }: { trace: Manifest }) {
  const { answer: _, lr: __, optimizer: ___, target: ____, ...request } = trace.request;
  const given = trace.learning?.target == null && !isClassifier(trace) && !isMasked(trace);
  const { value } = useResource(given ? JSON.stringify(request) : null, () => source.decode(request));
  return value && <p data-role="own-answer">Before learning, the model itself {hasSource(trace) ? "answers" : "continues with"} <strong dir="auto">{value.answer.headline}</strong> <span class="note">{value.answer.detail}</span></p>;
}

/** What training has and learning here has not. */
const LeftOut = ({ facts }: { facts: LearningFacts }) => (
  <section aria-labelledby="left-out">
    <h2 id="left-out">What is left out</h2>
    <ul class="learn-sentences">
      <li>A step of training is on many texts at once; here it is on one.</li>
      {facts.left_out.map((what) => <li key={what} data-left-out={what}>This run’s training has, and these steps have not: {what}.</li>)}
      {facts.smoothing > 0 && <li>Label smoothing is that of training, {number(facts.smoothing)}.</li>}
    </ul>
  </section>
);

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

/** Parameters that are shown: those that moved furthest. */
const MOST = 14;

export function OthersSection({ learned, trace }: { learned: Learned; trace: Manifest }) {
  const others = learned.others.filter((one) => one.text !== trace.request.text);
  const worse = others.filter((one) => one.loss_after > one.loss_before).length;
  return (
    <section aria-labelledby="others-title" data-role="others">
      <h2 id="others-title">Other texts</h2>
      {others.length === 0 ? <p class="note">{isClassifier(trace) || isEmbedder(trace) || hasSource(trace)
        ? <>The run has no evaluated texts with right answers to compare with: <code>glassformer evaluate</code> makes some.</>
        : "The evaluation of such a model keeps no texts with right answers, so there are none to compare with."}</p> : (
        <>
          <p>Learning one answer may be forgetting another: of {others.length} texts that the run was evaluated on, {worse} {worse === 1 ? "has" : "have"} a larger loss than before.</p>
          <Table
            label="Losses of other texts" columns={["text", "right answer", "before", "after", "change"]}
            rows={others.map(({ text, answer, loss_before, loss_after }) => ({
              cells: [<bdi>{text.length > 60 ? `${text.slice(0, 60)}…` : text}</bdi>, <bdi>{answer}</bdi>, number(loss_before), number(loss_after), signed(loss_after - loss_before)],
            }))}
          />
          <p class="note">Losses of the right answers{trace.learning?.target == null ? " in nats per label, without label smoothing" : ", squared errors in standard deviations of the training numbers"}.</p>
        </>
      )}
    </section>
  );
}

/** Of a name the places where its line may break. */
const breakable = (name: string) => name.replace(/\./g, "$&\u200b");

export function MovedSection({ learned: { moved }, params }: { learned: Learned; params: Manifest["params"] }) {
  const every = Object.entries(moved).filter(([, share]) => share > 0).sort(([, a], [, b]) => b - a);
  const all = every.filter(([name]) => (params[name]?.axes.length ?? 2) > 1);
  const vectors = every.length - all.length;
  const limit = all[0]?.[1] ?? 1;
  return (
    <section aria-labelledby="moved-title" data-role="moved">
      <h2 id="moved-title">How far each matrix moved</h2>
      <p>The norm of its change, divided by its own norm before.</p>
      <Bars label="Change of each parameter" limit={limit} bars={all.slice(0, MOST).map(([name, share]) => ({ key: name, label: breakable(name), value: share, text: percent(share) }))} />
      {all.length > MOST && <p class="note">The {MOST} of {all.length} matrices that moved furthest; the least moved by {percent(all.at(-1)![1])}.</p>}
      {vectors > 0 && <p class="note">Without the {vectors} vectors, biases and norms: many begin at or near 0, and any step is far in their own norm.</p>}
    </section>
  );
}
