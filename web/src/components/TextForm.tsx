/** The text that is traced. Enter traces, Shift+Enter makes a line; an exported page only shows its text. */
import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { busy, runFacts, source, text, trace } from "../state";

export function submitOnEnter(event: TargetedKeyboardEvent<HTMLTextAreaElement>) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

export function TextForm() {
  const area = useRef<HTMLTextAreaElement>(null);
  const asked = text.value;
  useEffect(() => {
    area.current!.value = asked; // at once: what is written while the trace is on its way stays
  }, [asked]);
  const submit = () => area.current && trace({ text: area.current.value });
  const examples = runFacts.value?.examples ?? [];
  return (
    <form
      class="text-form" aria-label="Text"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <label class="visually-hidden" for="text">Text to look at</label>
      <textarea
        id="text" data-role="text" ref={area} rows={2} readOnly={!source.live} dir="auto" spellcheck={false}
        maxLength={runFacts.value?.limits.max_text_bytes}
        onKeyDown={submitOnEnter}
      />
      {source.live && (
        <div class="text-actions">
          <button type="submit" data-role="trace" disabled={busy.value !== null}>{busy.value ? "Tracing …" : "Trace"}</button>
          {examples.length > 1 && (
            <button
              type="button" class="quiet"
              onClick={() => trace({ text: examples[(examples.indexOf(asked) + 1) % examples.length] ?? "" })}
            >
              Another example
            </button>
          )}
        </div>
      )}
    </form>
  );
}
