/**
 * Compare: two texts under one model, or one text under two checkpoints of a run. Answers, tokens, probabilities and
 * one head side by side; through all checkpoints one can watch a head form.
 */
import { useEffect, useRef } from "preact/hooks";
import { busy, manifest, other, otherText, route, runFacts, setParams, source, traceOther } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { viewOf } from "../../trace/heads";
import { decides, heldRequest } from "../../trace/writing";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { submitOnEnter } from "../../views/Text";
import { Distributions } from "./Distributions";
import { FilmStrip } from "./FilmStrip";
import { BlockPicker, HeadPair } from "./HeadPair";
import { Side } from "./Side";

type By = "text" | "checkpoint";

export function CompareScreen({ trace: a }: { trace: Manifest }) {
  const b = useValue(other);
  const { params } = useValue(route);
  const known = useValue(runFacts)?.checkpoints ?? [];
  const checkpoints = source.live ? known : [];
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
      {by === "text" && source.live && <OtherText a={a} b={b} />}
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
        : <Missing by={by} />}
    </div>
  );
}

/** Why there is no B. */
function Missing({ by }: { by: By }) {
  const waits = useValue(busy);
  return <p class="note">{waits && source.live ? `${waits} …` : missing(by)}</p>;
}

function missing(by: By): string {
  if (!source.live) return "This saved page holds one trace, so there is nothing to compare it with. Save one with a second text: glassformer explain RUN TEXT --compare TEXT2 -o page.html";
  if (by === "checkpoint") return "Choose a checkpoint above to set it beside these weights.";
  return "Two texts that differ in one word show best what that word does; of the same length, their weights can be subtracted.";
}

function OtherText({ a, b }: { a: Manifest; b: Manifest | null }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const written = useValue(otherText);
  const waits = useValue(busy) !== null;
  useEffect(() => {
    area.current!.value = written ?? a.request.text;
  }, [written]);
  const submit = (event: Event) => {
    event.preventDefault();
    traceOther({ ...manifest.now?.request, target: undefined, prefix: undefined, text: area.current!.value });
  };
  return (
    <form class="text-form compare-form" onSubmit={submit}>
      <label>
        <span class="note">The text above is A. Change a word here and compare:</span>
        <textarea data-role="other-text" ref={area} rows={2} dir="auto" spellcheck={false} onKeyDown={submitOnEnter} />
      </label>
      <div class="text-actions">
        <button type="submit" data-role="compare" disabled={waits}>Compare</button>
        {b && <button type="button" class="quiet" onClick={() => traceOther(null)}>Remove B</button>}
      </div>
    </form>
  );
}

/** A checkpoint that reads A's tokens wrote no answer of its own; it is asked for one. */
function Sides({ a, b, by }: { a: Manifest; b: Manifest; by: By }) {
  const { checkpoint } = b.model;
  const held = by === "checkpoint" && !decides(a);
  const { value, error } = useResource(held ? `${a.id} ${checkpoint}` : null, () => source.decode({ ...a.request, checkpoint }));
  const own = value?.answer.headline ?? (error ? `(${error.message})` : "…");
  return (
    <div class="compare-sides">
      <Side name="A" of={a} other={b} />
      <Side name="B" of={b} other={a} own={held ? own : undefined} />
    </div>
  );
}
