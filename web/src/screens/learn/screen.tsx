/**
 * The Learn screen: an answer that the model should have given, its loss, and what steps of the optimizer on it change:
 * the losses, other texts, the weights, and every number of one update.
 */
import { base, edited, edits, learnSteps, setEdits, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { hasSource, isClassifier, isMasked } from "../../trace/generation";
import { capital, number } from "../../tensors/format";
import type { LearningFacts, Manifest } from "../../types";
import { Terms } from "../../views/Terms";
import { LearnForm } from "./Form";
import { LossSection } from "./Loss";
import { MovedSection, OthersSection } from "./Others";
import { StepsSection } from "./Steps";
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
