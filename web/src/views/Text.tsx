/** The form for the text to trace, and the answer of the model. */
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { busy, go, manifest, other, runFacts, source, text, trace as ask, traceOther } from "../state/page";
import { type ErrorMessage, useValue } from "../state/signals";
import { capital, percent } from "../tensors/format";
import { hasSource, isMasked, isNumber } from "../trace/generation";
import type { Manifest } from "../types";
import { Choices } from "./Choices";
import { Form, Select } from "./Parts";

function submitOnEnter(event: TargetedKeyboardEvent<HTMLTextAreaElement>) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

/** Enter traces, Shift+Enter adds a line. Read-only on an exported page. */
export function TextForm() {
  const area = useRef<HTMLTextAreaElement>(null);
  const asked = useValue(text);
  const facts = useValue(runFacts);
  const waits = useValue(busy) !== null;
  useEffect(() => {
    area.current!.value = asked; // before the trace arrives, to keep what is typed meanwhile
  }, [asked]);

  const examples = facts?.examples ?? [];
  return (
    <Form class="text-form" aria-label="Text" send={() => area.current && ask({ text: area.current.value })}>
      <label class="visually-hidden" for="text">Text to trace</label>
      <textarea
        id="text" data-role="text" ref={area} rows={2} readOnly={!source.live} dir="auto" spellcheck={false}
        maxLength={facts?.limits.max_text_bytes}
        onKeyDown={submitOnEnter}
      />
      {source.live && (
        <div class="row">
          <button type="submit" data-role="trace" disabled={waits}>{waits ? "Tracing …" : "Trace"}</button>
          {examples.length > 1 && (
            <button
              type="button" class="quiet"
              onClick={() => ask({ text: examples[(examples.indexOf(asked) + 1) % examples.length] ?? "" })}
            >
              Another example
            </button>
          )}
        </div>
      )}
    </Form>
  );
}

/** The field for a second text. */
export function OtherText({ label, given = "", children }: { label: string; given?: string; children?: ComponentChildren }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const waits = useValue(busy) !== null;
  useEffect(() => {
    area.current!.value = given;
  }, [given]);
  return (
    <Form class="text-form compare-form" send={() => area.current!.value && traceOther({ ...manifest.value?.request, target: undefined, prefix: undefined, text: area.current!.value })}>
      <label>
        <span class="note">{label}</span>
        <textarea data-role="other-text" ref={area} rows={2} dir="auto" spellcheck={false} onKeyDown={submitOnEnter} />
      </label>
      <div class="row">
        <button type="submit" data-role="compare" disabled={waits}>Compare</button>
        {children}
      </div>
    </Form>
  );
}

/** A sentence in which `code` is between backticks. */
const Sentence = ({ text }: { text: string }) => <>{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;

/** An error and its hint, each as a sentence. */
export function Message({ error: { message, hint } }: { error: ErrorMessage }) {
  const ended = (text: string) => (/[.!?…]$/.test(text) ? text : `${text}.`);
  return <><strong><Sentence text={ended(message)} /></strong>{hint && <> <Sentence text={ended(capital(hint))} /></>}</>;
}

/** Whether the answer follows the text in the same stream: with an answer to learn the pass ends in that, and writes one token more. */
const continues = (trace: Manifest) => trace.predictions[0]?.position != null && !hasSource(trace) && !isMasked(trace);

/** The answer of the model, of an ensemble that of all, and notes on this trace: truncation, unknown words, omissions. */
export function Answer({ trace }: { trace: Manifest }) {
  const alone = useValue(other, (second) => second === null);
  const notes = [...trace.warnings, ...source.dropped];
  const bad = trace.checks.filter((check) => !check.ok), { together } = trace;
  const shown = together && !trace.edited ? together : trace.answer; // an edit acts in one model
  return (
    <section class="answer" aria-label="Answer">
      <p data-role="answer" dir="auto">
        {trace.learning && continues(trace) && <span class="note">After the answer to learn: </span>}<strong>{shown.headline}</strong> <span class="answer-detail">{shown.detail}{shown !== trace.answer && `, by all ${trace.model.n_members} models`}</span>
      </p>
      {bad.map((check) => <p key={check.name} class="note note-bad">{check.meaning}</p>)}{notes.length > 0 && <ul class="notes">{notes.map((note) => <li key={note}><Sentence text={note} /></li>)}</ul>}
      {source.live && trace.together && (
        <Choices
          name="member" label="Ensemble member" chosen={`${trace.request.member ?? 0}`} onChoose={(member) => ask({ ...trace.request, member: +member })}
          options={Array.from({ length: trace.model.n_members }, (_, i) => [`${i}`, `Member ${i}`])}
        />
      )}
      {source.live && trace.labels && (
        <Select
          label="Shown" value={trace.labels.each[trace.labels.shown]!.name} onChoose={(label) => ask({ ...trace.request, label })} attributes={{ "data-role": "label" }}
          options={[...trace.labels.each].sort((a, b) => b.threshold! && b.probability - a.probability).map(({ name, probability }) => [name, `${name} ${percent(probability)}`])}
        />
      )}
      {!source.live && alone && <p class="note">A saved page shows what was traced. To trace other texts, open the run with glassformer explain.</p>}
    </section>
  );
}

/** An error message. */
export function ErrorText({ error }: { error: ErrorMessage | null }) {
  return error && <p role="alert" class="warning"><Message error={error} /></p>;
}

/** Why there is nothing on this screen. */
export function NoAnswer({ title, what, trace }: { title: string; what: string; trace: Manifest }) {
  const numeric = isNumber(trace);
  return (
    <>
      <h1>{title}</h1>
      <p data-role="no-answer">
        {numeric ? <>The answer is a number, with no probability: <b>{trace.answer.headline}</b> = {trace.answer.detail}. That is the mean of the training numbers plus their standard deviation × the output.</>
          : `This model is a bare encoder: its output is one vector, and there is no answer to ${what}. Every number up to the vector is on Flow, Attention and Step, and an edit shows how far the vector turns.`}
      </p>
      <p><button type="button" class="link" onClick={() => go("step", { node: numeric ? "logits" : "pooled" })}>Open the {numeric ? "output" : "vector"}</button></p>
      {!numeric && <p class="note">A classifier that begins from it has an answer: <code>glassformer train classify --train-file data.csv --init-from RUN</code></p>}
    </>
  );
}
