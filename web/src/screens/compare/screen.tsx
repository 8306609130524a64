/**
 * The Compare screen: two texts under one model, or one text under two checkpoints, with answers, tokens,
 * probabilities and one head of both.
 */
import { useEffect, useRef } from "preact/hooks";
import { busy, manifest, other, otherText, route, runFacts, setParams, source, traceOther } from "../../state/page";
import { paramsFromRequest } from "../../state/address";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { viewOf } from "../../trace/heads";
import { isClassifier, isEmbedder } from "../../trace/generation";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { submitOnEnter } from "../../views/Text";
import { Vectors } from "../../views/Vector";
import { Distributions } from "./Distributions";
import { FilmStrip } from "./FilmStrip";
import { BlockPicker, HeadPair } from "./HeadPair";
import { nearestText, teacherForcedRequest } from "./pair";
import { Side } from "./Side";

type By = "text" | "checkpoint";

export function CompareScreen({ trace: a }: { trace: Manifest }) {
  const b = useValue(other);
  const { params } = useValue(route);
  const known = useValue(runFacts)?.checkpoints ?? [];
  const checkpoints = source.live ? known : [];
  const by: By = params.by === "checkpoint" && checkpoints.length > 1 ? "checkpoint" : "text";
  const view = viewOf(a, params);
  useEffect(() => {
    const like = by === "text" && source.live && otherText.value === undefined && nearestText(a.request.text, runFacts.value?.examples ?? []);
    if (like) setParams(paramsFromRequest({ ...a.request, target: undefined, prefix: undefined, edits: undefined, text: like }, "o."));
  }, []);
  const choose = (checkpoint: string) => traceOther(teacherForcedRequest(a, checkpoint));
  return (
    <div class="compare">
      <h1 class="visually-hidden">Compare</h1>
      {checkpoints.length > 1 && (
        <div class="attention-bar">
          <Choices
            name="by" label="Compare by" options={[["text", "Two texts"], ["checkpoint", "Two checkpoints"]]} chosen={by}
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
            {isEmbedder(a) ? <Vectors a={a} b={b} /> : <Distributions a={a} b={b} position={params.position} />}
            {view && (
              <section>
                <h2>Attention weights in A and B</h2>
                <HeadPair a={a} b={b} view={view} />
              </section>
            )}
          </>
        )
        : <NoSecondTrace by={by} />}
    </div>
  );
}

/** The reason why there is no trace B. */
function NoSecondTrace({ by }: { by: By }) {
  const waits = useValue(busy);
  return <p class="note">{waits && source.live ? `${waits} …` : noSecondTraceReason(by)}</p>;
}

function noSecondTraceReason(by: By): string {
  if (!source.live) return "This saved page holds one trace. To save two: glassformer explain RUN TEXT --compare TEXT2 -o page.html";
  if (by === "checkpoint") return "Select a checkpoint above to compare it with these weights.";
  return "Enter a second text above. Texts that differ in one word show the effect of that word; if both have the same length, the difference of their weights is shown.";
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
    traceOther({ ...manifest.value?.request, target: undefined, prefix: undefined, text: area.current!.value });
  };
  return (
    <form class="text-form compare-form" onSubmit={submit}>
      <label>
        <span class="note">Text B (the text above is A):</span>
        <textarea data-role="other-text" ref={area} rows={2} dir="auto" spellcheck={false} onKeyDown={submitOnEnter} />
      </label>
      <div class="text-actions">
        <button type="submit" data-role="compare" disabled={waits}>Compare</button>
        {b && <button type="button" class="quiet" onClick={() => traceOther(null)}>Remove B</button>}
      </div>
    </form>
  );
}

/** Both sides. A checkpoint that reads A's tokens is also decoded, for its own answer. */
function Sides({ a, b, by }: { a: Manifest; b: Manifest; by: By }) {
  const { checkpoint } = b.model;
  const held = by === "checkpoint" && !isClassifier(a) && !isEmbedder(a);
  const { value, error } = useResource(held ? `${a.id} ${checkpoint}` : null, () => source.decode({ ...a.request, checkpoint }));
  const own = value?.answer.headline ?? (error ? `(${error.message})` : "…");
  return (
    <div class="compare-sides">
      <Side name="A" of={a} other={b} />
      <Side name="B" of={b} other={a} own={held ? own : undefined} />
    </div>
  );
}
