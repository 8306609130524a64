/**
 * The Compare screen: two texts under one model, or one text under two checkpoints, with answers, tokens,
 * probabilities and one head of both.
 */
import { useEffect, useRef } from "preact/hooks";
import { paramsFromRequest } from "../../state/address";
import { busy, manifest, other, otherText, route, runFacts, setParams, source, traceOther } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { percent, visible } from "../../tensors/format";
import { isClassifier, isEmbedder, isMasked, predictionIndex } from "../../trace/generation";
import { viewOf } from "../../trace/heads";
import type { Manifest, Prediction } from "../../types";
import { Bars } from "../../views/Bars";
import { Choices } from "../../views/Choices";
import { submitOnEnter } from "../../views/Text";
import { Tokens } from "../../views/Tokens";
import { Vectors } from "../../views/Vector";
import { FilmStrip } from "./FilmStrip";
import { BlockPicker, HeadPair } from "./HeadPair";
import { alignedPositions, checkpointName, differingTokens, nearestText, pairRows, smallestProbability, teacherForcedRequest } from "./pair";

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

export interface SideProps {
  name: "A" | "B";
  of: Manifest;
  other: Manifest;
  /** Its own answer, where the trace has A's tokens. */
  own?: string;
}

export function Side({ name, of, other, own }: SideProps) {
  const marks = (stream: Manifest["streams"][number]) =>
    differingTokens(stream.ids, other.streams.find((one) => one.name === stream.name)?.ids ?? []).map((differs) => (differs ? "≠" : null));
  return (
    <section class="compare-side" data-side={name} aria-label={`Side ${name}`}>
      <p>{name} <span class="note">{checkpointName(of.model.checkpoint, of.model.step)}</span></p>
      <p class="compare-answer">
        <strong><bdi>{own ?? of.answer.headline}</bdi></strong>
        <span class="answer-detail">{own === undefined ? of.answer.detail : "its own output; below, it reads A’s tokens"}</span>
      </p>
      {of.streams.map((stream) => (
        <div key={stream.name} class="compare-tokens">
          <Tokens stream={stream} label={`${name}: tokens of the ${stream.name}`} marks={marks(stream)} />
        </div>
      ))}
    </section>
  );
}

const MAX_ROWS = 8;

export function Distributions({ a, b, position }: { a: Manifest; b: Manifest; position: string | undefined }) {
  const classes = isClassifier(a);
  const { from, to, at, other } = alignedPositions(a, b, predictionIndex(a, position));
  const [pa, pb] = [a.predictions[at], b.predictions[other]];
  const rows = pairRows(pa, pb, MAX_ROWS);
  const side = (of: Prediction | undefined, name: "a" | "b") => rows.map((row) => {
    const value = row[name];
    return {
      key: row.id, label: row.piece, value: value ?? 0, strong: of?.top[0]?.id === row.id,
      text: value !== null ? percent(value) : `≤ ${percent(smallestProbability(of)).replace("<", "")}`,
      note: name === "b" ? points((row.b ?? smallestProbability(pb)) - (row.a ?? smallestProbability(pa))) : undefined,
    };
  });
  return (
    <section>
      <h2>{classes ? "Probabilities" : isMasked(a) ? "Token probabilities" : "Next-token probabilities"}</h2>
      {!classes && to > from && (
        <label class="slider">
          {at === other ? `Position ${at}` : `Position ${at} of A, ${other} of B`}
          <input type="range" min={from} max={to} value={at} aria-valuetext={`${at}`} onInput={(event) => setParams({ position: a.predictions[Number(event.currentTarget.value)]!.position })} />
        </label>
      )}
      <div class="compare-sides">
        <div>
          <h3>A{!classes && <> {isMasked(a) ? "at" : "after"}  <bdi class="quoted">{after(a, pa)}</bdi></>}</h3>
          <Bars label="A" bars={side(pa, "a")} />
        </div>
        <div>
          <h3>B{!classes && <> {isMasked(b) ? "at" : "after"} <bdi class="quoted">{after(b, pb)}</bdi></>}<span class="note">, and B − A</span></h3>
          <Bars label="B" bars={side(pb, "b")} />
        </div>
      </div>
    </section>
  );
}

/** The last few tokens up to the position of the prediction. */
function after(manifest: Manifest, prediction: Prediction | undefined): string {
  const at = prediction?.position ?? 0;
  return visible(manifest.streams.at(-1)!.pieces.slice(Math.max(0, at - 3), at + 1).join(""));
}

/** A difference in percentage points; for an unlisted token from its upper bound. */
const points = (change: number) =>
  Math.abs(change) < 0.0005 ? "0" : `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)} pp`;
