/**
 * Compare: two texts under one model, or one text under two checkpoints of a run. Answers, tokens, probabilities and
 * one head side by side; through all checkpoints one can watch a head form.
 */
import { useEffect, useRef } from "preact/hooks";
import { messageOf, useLoaded } from "../attention/hooks";
import { viewOf } from "../attention/view";
import { Distributions } from "../compare/Distributions";
import { FilmStrip } from "../compare/FilmStrip";
import { BlockPicker, HeadPair } from "../compare/HeadPair";
import { heldRequest } from "../compare/pair";
import { Side } from "../compare/Side";
import { Choices } from "../components/Choices";
import { submitOnEnter } from "../components/TextForm";
import { busy, manifest, other, otherText, route, runFacts, setParams, source, traceOther } from "../state";
import type { Manifest } from "../types";

type By = "text" | "checkpoint";

export function CompareScreen() {
  const a = manifest.value!;
  const b = other.value;
  const { params } = route.value;
  const checkpoints = source.live ? runFacts.value?.checkpoints ?? [] : [];
  const by: By = params.by === "checkpoint" && checkpoints.length > 1 ? "checkpoint" : "text";
  const view = viewOf(a, params);
  const choose = (checkpoint: string) => traceOther(heldRequest(a, checkpoint));
  return (
    <div class="compare">
      <h1 class="visually-hidden">Compare</h1>
      {checkpoints.length > 1 && (
        <div class="attention-bar">
          <Choices
            name="by" label="What is compared" options={[["text", "Two texts"], ["checkpoint", "Two checkpoints"]]} chosen={by}
            onChoose={(next) => {
              if (next === by) return;
              setParams({ by: next });
              if (next === "checkpoint") choose(checkpoints[0]!.name);
              else traceOther(null);
            }}
          />
        </div>
      )}
      {by === "text" && source.live && <OtherText b={b} />}
      {view && (b || by === "checkpoint") && <BlockPicker view={view} />}
      {by === "checkpoint" && view && (
        <FilmStrip manifest={a} view={view} checkpoints={checkpoints} chosen={b && b.model.checkpoint} onChoose={choose} />
      )}
      {b
        ? (
          <>
            <Sides a={a} b={b} by={by} />
            <Distributions a={a} b={b} position={params.position} />
            {view && (
              <section>
                <h2>The head in A and B</h2>
                <HeadPair a={a} b={b} view={view} />
              </section>
            )}
          </>
        )
        : <p class="note">{missing(by)}</p>}
    </div>
  );
}

/** Why there is no B. */
function missing(by: By): string {
  if (!source.live) return "This saved page holds one trace, so there is nothing to compare it with. Save one with a second text: glassformer explain RUN TEXT --compare TEXT2 -o page.html";
  if (busy.value) return `${busy.value} …`;
  if (by === "checkpoint") return "Choose a checkpoint above to set it beside these weights.";
  return "Two texts that differ in one word show best what that word does; of the same length, their weights can be subtracted.";
}

function OtherText({ b }: { b: Manifest | null }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const written = otherText.value;
  useEffect(() => {
    area.current!.value = written ?? manifest.value?.request.text ?? "";
  }, [written]);
  const submit = (event: Event) => {
    event.preventDefault();
    traceOther({ ...manifest.value?.request, target: undefined, prefix: undefined, text: area.current!.value });
  };
  return (
    <form class="text-form compare-form" onSubmit={submit}>
      <label>
        <span class="note">The text above is A. Change a word here and compare:</span>
        <textarea data-role="other-text" ref={area} rows={2} dir="auto" spellcheck={false} onKeyDown={submitOnEnter} />
      </label>
      <div class="text-actions">
        <button type="submit" data-role="compare" disabled={busy.value !== null}>Compare</button>
        {b && <button type="button" class="quiet" onClick={() => traceOther(null)}>Remove B</button>}
      </div>
    </form>
  );
}

/** A checkpoint that reads A's tokens wrote no answer of its own; it is asked for one. */
function Sides({ a, b, by }: { a: Manifest; b: Manifest; by: By }) {
  const { checkpoint } = b.model;
  const held = by === "checkpoint" && a.model.task !== "classify";
  const own = useLoaded<string>(held ? `${a.id} ${checkpoint}` : null, (tell) =>
    source.decode({ ...a.request, checkpoint }).then(({ answer }) => tell(answer.headline), (error) => tell(`(${messageOf(error)})`)));
  return (
    <div class="compare-sides">
      <Side name="A" of={a} other={b} />
      <Side name="B" of={b} other={a} own={held ? own ?? "…" : undefined} />
    </div>
  );
}
