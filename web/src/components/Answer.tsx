/** What the model answered, and what the reader must know about this trace: cut text, unknown words, omissions. */
import { Choices } from "./Choices";
import { manifest, other, source, trace as ask } from "../state";

export function Answer() {
  const trace = manifest.value;
  if (!trace) return null;
  const notes = [...trace.warnings, ...trace.omitted.map(({ what, why }) => `${what}: ${why}`), ...source.dropped];
  const bad = trace.checks.filter((check) => !check.ok);
  return (
    <section class="answer" aria-label="Answer">
      <p data-role="answer" dir="auto">
        <strong>{trace.answer.headline}</strong> <span class="answer-detail">{trace.answer.detail}</span>
      </p>
      {bad.map((check) => <p key={check.name} class="note note-bad">{check.meaning}</p>)}
      {notes.length > 0 && <ul class="notes">{notes.map((note) => <li key={note}>{note}</li>)}</ul>}
      {source.live && trace.together && (
        <Choices
          name="member" label="Member of the ensemble" chosen={`${trace.together.member}`} onChoose={(member) => ask({ ...trace.request, member: +member })}
          options={Array.from({ length: trace.together.size }, (_, i) => [`${i + 1}`, `Member ${i + 1}`])}
        />
      )}
      {!source.live && other.value === null && <p class="note">A saved page: what was traced is here, other texts need the run.</p>}
    </section>
  );
}
