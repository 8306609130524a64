/**
 * Compare: two texts under one model, or one text under two checkpoints of a run. Answers, tokens, probabilities and
 * one head side by side; through all checkpoints one can watch a head form.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { viewOf } from "../attention/view";
import { differing } from "../compare/diff";
import { Distributions } from "../compare/Distributions";
import { FilmStrip } from "../compare/FilmStrip";
import { HeadPair, HeadPicker } from "../compare/HeadPair";
import { heldRequest } from "../compare/pair";
import { Side } from "../compare/Side";
import { busy, manifest, other, route, runFacts, setParams, source, traceOther } from "../state";
import type { Manifest, StreamName } from "../types";

type By = "text" | "checkpoint";

export function CompareScreen() {
  const a = manifest.value;
  const b = other.value;
  if (!a) return null;
  const { params } = route.value;
  const checkpoints = runFacts.value?.checkpoints ?? [];
  const by: By = params.by === "checkpoint" && checkpoints.length > 1 ? "checkpoint" : "text";
  const view = viewOf(a, params);
  const chosen = b && by === "checkpoint" ? b.model.checkpoint : null;
  return (
    <div class="compare">
      <h1 class="visually-hidden">Compare</h1>
      {source.live && checkpoints.length > 1 && <Choice by={by} />}
      {by === "text" && source.live && <OtherText b={b} />}
      {by === "checkpoint" && source.live && view && (
        <>
          <HeadPicker view={view} />
          <FilmStrip
            manifest={a} view={view} checkpoints={checkpoints} chosen={chosen}
            onChoose={(checkpoint) => traceOther(heldRequest(a, checkpoint))}
          />
        </>
      )}
      {!b && <Nothing by={by} />}
      {b && (
        <>
          <Sides a={a} b={b} by={by} />
          <Distributions a={a} b={b} position={params.position === undefined ? null : Number(params.position)} />
          {view && (
            <section>
              <h2>{by === "checkpoint" ? "The head in A and B" : "One head"}</h2>
              {by === "text" && <HeadPicker view={view} />}
              <HeadPair a={a} b={b} view={view} />
            </section>
          )}
        </>
      )}
    </div>
  );
}

function Choice({ by }: { by: By }) {
  const choose = (next: By) => {
    if (next === by) return;
    setParams({ by: next === "text" ? null : next });
    const [oldest] = runFacts.peek()?.checkpoints ?? [];
    const a = manifest.peek();
    traceOther(next === "checkpoint" && oldest && a ? heldRequest(a, oldest.name) : null);
  };
  return (
    <div class="attention-bar">
      <span class="choices" role="group" aria-label="What is compared">
        <button type="button" class="quiet" aria-pressed={by === "text"} onClick={() => choose("text")}>Two texts</button>
        <button type="button" class="quiet" data-by="checkpoint" aria-pressed={by === "checkpoint"} onClick={() => choose("checkpoint")}>Two checkpoints</button>
      </span>
    </div>
  );
}

function OtherText({ b }: { b: Manifest | null }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const written = b?.request.text;
  useEffect(() => {
    if (area.current) area.current.value = written ?? manifest.peek()?.request.text ?? "";
  }, [written]);
  const submit = () => area.current && traceOther({ ...manifest.peek()?.request, target: undefined, prefix: undefined, text: area.current.value });
  return (
    <form class="text-form compare-form" onSubmit={(event) => (event.preventDefault(), submit())}>
      <div>
        <label for="other-text">The text above is A. Change a word here and compare:</label>
        <textarea
          id="other-text" data-role="other-text" ref={area} rows={2} dir="auto" spellcheck={false}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            submit();
          }}
        />
      </div>
      <div class="text-actions">
        <button type="submit" data-role="compare" disabled={busy.value !== null}>Compare</button>
        {b && <button type="button" class="quiet" onClick={() => traceOther(null)}>Remove B</button>}
      </div>
    </form>
  );
}

function Nothing({ by }: { by: By }) {
  if (!source.live) return <p class="note">This saved page holds one trace, so there is nothing to compare it with. Save one with a second text: glassformer explain RUN TEXT --compare TEXT2 -o page.html</p>;
  if (busy.value) return <p class="note">{busy.value} …</p>;
  return (
    <p class="note">
      {by === "text"
        ? "Two texts that differ in one word show best what that word does; of the same length, their weights can be subtracted."
        : "Choose a checkpoint above to set it beside these weights."}
    </p>
  );
}

function Sides({ a, b, by }: { a: Manifest; b: Manifest; by: By }) {
  const own = useOwnAnswer(a, b, by);
  const marks: { a: Partial<Record<StreamName, boolean[]>>; b: Partial<Record<StreamName, boolean[]>> } = { a: {}, b: {} };
  for (const one of a.streams) {
    const two = b.streams.find((stream) => stream.name === one.name);
    if (!two) continue;
    const found = differing(one.ids, two.ids);
    marks.a[one.name] = found.a;
    marks.b[one.name] = found.b;
  }
  return (
    <div class="compare-sides">
      <Side name="A" of={a} differs={marks.a} />
      <Side name="B" of={b} differs={marks.b} own={own} />
    </div>
  );
}

/** A checkpoint that reads A's tokens wrote no answer of its own; it is asked for one. */
function useOwnAnswer(a: Manifest, b: Manifest, by: By): string | null {
  const held = by === "checkpoint" && a.model.task !== "classify" && source.live;
  const { checkpoint } = b.model;
  const key = `${a.id} ${checkpoint}`;
  const [state, setState] = useState<{ key: string; answer: string }>({ key: "", answer: "" });
  useEffect(() => {
    if (!held) return;
    let alive = true;
    source.decode({ ...a.request, checkpoint }).then(
      (found) => alive && setState({ key, answer: found.answer.headline }),
      (error: Error) => alive && setState({ key, answer: `(${error.message})` }),
    );
    return () => {
      alive = false;
    };
  }, [key, held]);
  if (!held) return null;
  return state.key === key ? state.answer : "…";
}
