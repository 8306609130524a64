/**
 * Edits of the forward pass: the bar with the edits in words and what they change, and the switches that the screens
 * place at a head, a block or a layer.
 */
import { useEffect, useRef } from "preact/hooks";
import {
  base, editable, edited, edits, gradients, ignoresEdits, learn, learnSteps, route, setEdits, setParams, showGradients, type Shown, shown, SHOWN,
  source, toggleEdit, undoEdit,
} from "../state/page";
import { useValue } from "../state/signals";
import { capital, signed, visible } from "../tensors/format";
import { describeEdit } from "../trace/edits";
import { isMasked } from "../trace/generation";
import type { Effect, Manifest } from "../types";
import { Choices } from "./Choices";
import { Form } from "./Parts";

/** A button that adds an edit, or removes it; pressed: the part of the model works as it is. */
export function Switch({ edit, label }: { edit: string; label: string }) {
  const off = useValue(edits, (all) => all.includes(edit));
  if (!useValue(editable)) return null;
  return (
    <button
      type="button" class="switch" role="switch" aria-checked={!off} aria-label={label} title={`${label}: ${off ? "off" : "on"}`}
      data-edit={edit} onClick={() => toggleEdit(edit)}
    />
  );
}

/** The bar: nothing where no edit was made and none can be. */
export function EditBar() {
  const all = useValue(edits);
  const trace = useValue(base);
  if (trace?.learning) return <LearningBar trace={trace} />;
  if (!trace || (!source.live && !all.length)) return null;
  const refused = trace.refused.edits;
  return (
    <section class={all.length ? "edits edits-made" : "edits"} aria-label="Edits">
      {all.length > 0 && <><Chips all={all} trace={trace} /><Change trace={trace} /></>}
      {source.live && (refused ? <p class="note">{capital(refused)}.</p> : <EditForm />)}
    </section>
  );
}

/** What is learned, the pass before or after it, and its values or gradients. */
function LearningBar({ trace }: { trace: Manifest }) {
  const [steps, pictures, ignored, screen, backward] = [useValue(learnSteps), useValue(shown), useValue(ignoresEdits), useValue(route).screen, useValue(gradients)];
  const after = useValue(edited);
  const words = `Answer to learn: ${visible(trace.learning!.answer)}${steps ? `, after ${steps} step${steps > 1 ? "s" : ""}` : ""}`;
  return (
    <section class="edits edits-made" aria-label="Learning">
      <div class="row">
        <ul class="edit-chips"><li><span>{words}</span>{source.live && <button type="button" class="quiet" aria-label="Learn nothing" onClick={() => learn(null)}>×</button>}</li></ul>
        {steps > 0 && (ignored || screen === "learn" ? null : after ? <Shows pictures={pictures} /> : <span aria-live="polite">Computing …</span>)}
        {(screen === "flow" || screen === "step") && <Choices
          name="numbers" label="Numbers" chosen={backward ? "gradients" : "values"} onChoose={(one) => showGradients(one === "gradients")}
          options={[["values", "Values"], ["gradients", "Gradients"]]}
        />}
        {steps > 0 && ignored && <span class="note">This view is of the model before learning.</span>}
      </div>
    </section>
  );
}

const Shows = ({ pictures }: { pictures: Shown }) => (
  <Choices name="shown" label="Pictures show" chosen={pictures} onChoose={(show) => setParams({ show })} options={SHOWN.map((name) => [name, capital(name)])} />
);

function Chips({ all, trace }: { all: readonly string[]; trace: Manifest }) {
  return (
    <ul class="edit-chips">
      {all.map((edit) => {
        const words = describeEdit(edit, trace);
        return (
          <li key={edit}>
            <span>{words}{words !== edit && <code>{edit}</code>}</span>
            {source.live && <button type="button" class="quiet" aria-label={`Remove: ${words}`} onClick={() => toggleEdit(edit)}>×</button>}
          </li>
        );
      })}
      {source.live && <li><button type="button" class="quiet" title="Key z" onClick={undoEdit}>Undo</button></li>}
    </ul>
  );
}

/** The answer without and with edits, and which of them the pictures show. */
function Change({ trace }: { trace: Manifest }) {
  const after = useValue(edited);
  const pictures = useValue(shown);
  const ignored = useValue(ignoresEdits);
  if (!after?.edited) return <p class="edit-change" aria-live="polite">Computing …</p>;
  const { answer_before: before, answer_after: now, why_not, unchanged, effects } = after.edited;
  const differs = effects.filter((effect) => effect.before !== effect.after).length;
  const what = effects.length > 1 ? `${differs} of ${effects.length} predictions differ` : differs ? "another prediction" : "the same prediction";
  return (
    <div class="edit-change" aria-live="polite">
      <p data-role="effect">
        <bdi>{before}</bdi> <span aria-label="becomes">→</span> {now === null ? <span class="note">{why_not}</span> : <strong dir="auto">{now || "(nothing)"}</strong>}
        <span class="answer-detail">{effects.length ? `${what}; ${largest(effects, trace)}` : after.answer.detail}</span>
      </p>
      {unchanged.map((edit) => <p key={edit} class="note">{describeEdit(edit, trace)}: this changes no number.</p>)}
      {ignored ? <p class="note">This view is without your edits.</p> : <Shows pictures={pictures} />}
    </div>
  );
}

/** The largest effect: how the logit of the answer against its contrast changes. */
function largest(effects: readonly Effect[], trace: Manifest): string {
  const by = ({ difference_before, difference_after }: Effect) => difference_after - difference_before;
  const effect = [...effects].sort((a, b) => Math.abs(by(b)) - Math.abs(by(a)))[0];
  if (!effect) return "";
  const at = effect.position === null ? "" : `${isMasked(trace) ? "at" : "after"} position ${effect.position}, `;
  return `${at}logit of “${visible(effect.target)}” minus “${visible(effect.contrast)}” ${signed(effect.difference_before, 2)} → ${signed(effect.difference_after, 2)}`;
}

/** A field for any edit, and for the text whose values =B takes. */
function EditForm() {
  const field = useRef<HTMLInputElement>(null);
  const other = useRef<HTMLInputElement>(null);
  const after = useValue(edited);
  const typed = () => field.current!.value.split(/\s+/).filter(Boolean);
  // What was refused stays, to be corrected.
  useEffect(() => {
    if (typed().every((edit) => after?.request.edits?.includes(edit))) field.current!.value = "";
  }, [after]);
  const submit = () => {
    if (typed().length) setEdits([...new Set([...edits.value, ...typed()])], other.current?.value || undefined);
  };
  return (
    <details class="edit-form">
      <summary>Change a number</summary>
      <Form class="row" send={submit}>
        <label>Edit <input id="edit" ref={field} spellcheck={false} autocomplete="off" placeholder="encoder.0.self.context[head:1]=0" /></label>
        <label>Second text, for =B <input ref={other} spellcheck={false} autocomplete="off" dir="auto" /></label>
        <button type="submit">Apply</button>
        <p class="note">
          A step, a part of it, and =0, =NUMBER, *NUMBER, =mean, =blocked, =skip, =B or =B[PART], as in encoder.0.state[token:1]=B[token:2].
          Indices count from 0, as in titles.
        </p>
      </Form>
    </details>
  );
}
