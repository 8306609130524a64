/**
 * Decode: how numbers become an answer. For a classifier, the one decision taken apart; for a model that writes,
 * every step's distribution, the search, and what another token would have led to.
 */
import { useScreenKeys } from "../../state/keys";
import { route, setParams, source, trace } from "../../state/page";
import { useTensor } from "../../state/resource";
import { useValue } from "../../state/signals";
import { filterAll, filterTop, isNeutral, type Knobs, NEUTRAL } from "../../tensors/filters";
import { count, percent, visible } from "../../tensors/format";
import { decides, hasSource, isGiven, lockedAt, prefixWith, requestWith, stepIndex, written } from "../../trace/writing";
import type { Manifest, TraceRequest } from "../../types";
import { BeamSection } from "./BeamSection";
import { Decision } from "./Decision";
import { KnobSliders, WriteAgain } from "./Sampling";
import { NextTokens, Scrubber } from "./Steps";

const BARS = 14;

export function DecodeScreen({ trace: manifest }: { trace: Manifest }) {
  return decides(manifest) ? <Decision key={manifest.id} manifest={manifest} /> : <Writing manifest={manifest} />;
}

/** A text that is being written: a line of tokens to scrub along, the distribution behind each one, the knobs of sampling. */
function Writing({ manifest }: { manifest: Manifest }) {
  const { predictions, model, decode } = manifest;
  const { params } = useValue(route);
  const index = stepIndex(manifest, params["position"]);
  const prediction = predictions[index];
  const knobs = knobsOf(manifest, params["knobs"]);
  const neutral = isNeutral(knobs);
  const position = prediction?.position ?? 0;
  const { filtered, loading } = useFiltered(manifest, index, knobs);

  const ask = (request: TraceRequest, next: number | null): void => {
    trace(request);
    setParams({ position: next, knobs: null, beam: null });
  };
  const force = (prefix: number[], next: number): void => ask(requestWith(manifest, prefix), next);
  const goTo = (i: number): void => setParams({ position: predictions[i]?.position ?? 0, beam: null });
  useScreenKeys((event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || (event.target instanceof Element && event.target.closest("input, .beam-box, nav"))) return false;
    goTo(Math.max(0, Math.min(predictions.length - 1, index + by)));
    return true;
  });
  if (!prediction || !filtered) return <p>There is no step to show: the text is empty.</p>;
  const locked = lockedAt(manifest, position, source.live);

  return (
    <>
      <h1>Decode</h1>
      <p>
        The model writes one token at a time. At each step it gives every token of its vocabulary ({count(model.vocab_size)}) a
        probability, a rule picks one, and the pick is read at the next step.
      </p>
      <Scrubber manifest={manifest} index={index} onStep={goTo} />
      <div class="columns">
        <section aria-labelledby="after-title">
          <Written manifest={manifest} index={index} />
          <NextTokens
            filtered={filtered} pieces={new Map(prediction.top.map((c) => [c.id, c.piece]))} actual={prediction.actual?.id}
            neutral={neutral} locked={locked} eos={model.special_ids.eos}
            onForce={(id) => force(prefixWith(manifest, position, id), position + 1)}
          />
          <p class="note">
            {!neutral && "The thin lines and the first numbers are the model’s own probabilities, the bars and the second what is drawn with. "}
            {loading ? "Fetching all logits of this step. "
              : !filtered.exact && "Only the 50 best logits are in this page: the others are taken as equally probable. "}
            {locked ?? "Choose a bar to write that token instead."}
          </p>
        </section>
        <section aria-labelledby="knobs-title">
          <h2 id="knobs-title">If it is sampled</h2>
          <KnobSliders knobs={knobs} onChange={(next) => setParams({ knobs: spell(next) })} />
          <p>
            {`${filtered.exact ? "" : "About "}${count(filtered.nKept)} token${filtered.nKept === 1 ? "" : "s"} can be drawn.`}
            {params["knobs"] && <> <button type="button" class="link" onClick={() => setParams({ knobs: null })}>Put back</button></>}
          </p>
          {source.live && <WriteAgain key={manifest.id} manifest={manifest} knobs={knobs} onTrace={(request) => ask(request, null)} />}
        </section>
      </div>
      {decode.kind === "beam" && decode.steps.length > 0 && (
        <BeamSection manifest={manifest} step={Math.min(index, decode.steps.length - 1)} onForce={(prefix) => force(prefix, prefix.length)} />
      )}
      {decode.kind === "given" && <p>You named this translation, so nothing was searched: each step shows how probable your next token was.</p>}
    </>
  );
}

/** What stands before, and the token that follows with its probability and rank. */
function Written({ manifest, index }: { manifest: Manifest; index: number }) {
  const { actual, position } = manifest.predictions[index]!;
  const stream = written(manifest);
  const at = (position ?? 0) + 1;
  const p = actual && Math.exp(actual.log_prob);
  return (
    <>
      <h2 id="after-title">
        after <i><bdi>{at > 6 && "… "}{stream.pieces.slice(Math.max(0, at - 6), at).map(visible).join(" ")}</bdi></i> comes
      </h2>
      <p aria-live="polite" data-role="probability" data-value={p ?? undefined}>
        {actual && p !== null
          ? <><b><bdi>{visible(actual.piece)}</bdi></b> was {isGiven(manifest, at - 1) ? "given" : "written"}: {percent(p)}, rank {count(actual.rank + 1)} of {count(manifest.model.vocab_size)}.</>
          : "nothing yet: the text stops here."}
      </p>
    </>
  );
}

/** All the logits of the step where they can be had, the 50 best and the logsumexp otherwise. */
function useFiltered(manifest: Manifest, index: number, knobs: Knobs) {
  const prediction = manifest.predictions[index];
  const node = manifest.nodes.find((one) => one.id === "logits");
  const wanted = node !== undefined && !isNeutral(knobs); // a saved page has them of a small vocabulary, or an error
  const loaded = useTensor(wanted ? "logits" : null, `token:${index}`, manifest);
  if (!prediction) return { filtered: null, loading: false };
  const size = node?.axes.at(-1)?.size ?? manifest.model.vocab_size;
  const { banned } = manifest.wrote;
  const filtered = loaded.value
    ? filterAll(Array.from(loaded.value.data), knobs, banned, BARS)
    : filterTop(prediction.top, prediction.logsumexp, size, knobs, banned, BARS);
  return { filtered, loading: wanted && !loaded.value && !loaded.error };
}

function knobsOf(manifest: Manifest, spelled: string | undefined): Knobs {
  const { settings, kind } = manifest.decode;
  const { temperature, top_k, top_p, min_p } = settings;
  const own = !hasSource(manifest) || kind === "sample" ? { temperature, topK: top_k, topP: top_p, minP: min_p } : NEUTRAL;
  const given = (spelled ?? "").split(",").map(Number);
  if (given.length !== 4 || !given.every((x) => x >= 0)) return own;
  return { temperature: given[0]!, topK: given[1]!, topP: given[2]! || 1, minP: given[3]! };
}

const spell = ({ temperature, topK, topP, minP }: Knobs): string => [temperature, topK, topP, minP].join(",");
