/** What else the steps changed: the losses of other texts, and how far each parameter moved. */
import { number, percent, signed } from "../../tensors/format";
import { hasSource, isClassifier, isEmbedder } from "../../trace/generation";
import type { Learned, Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { Table } from "../../views/Table";

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
