/**
 * The Decode screen: for a classifier its single prediction; for other models the distribution of each step, the
 * search, and forced tokens.
 */
import { passesOf } from "../../sources/difference";
import { useScreenKeys } from "../../state/keys";
import { route, setParams, source, trace } from "../../state/page";
import { useTensor } from "../../state/resource";
import { useValue } from "../../state/signals";
import { filterAll, type Filtered, filterTop, isNeutral, NEUTRAL, type SamplingParams } from "../../tensors/filters";
import { count, percent, points, visible } from "../../tensors/format";
import { changesOf } from "../../trace/generation";
import { forcedPrefix, isClassifier, isEmbedder, isGiven, isMasked, lockReason, outputStream, predictionIndex, requestWithPrefix } from "../../trace/generation";
import { samplingOf } from "../../trace/sampling";
import type { Manifest, TraceRequest } from "../../types";
import { type Bar, Bars } from "../../views/Bars";
import { PositionPicker } from "../../views/Choices";
import { OutputTokens } from "../../views/Tokens";
import { NoAnswer } from "../../views/Vector";
import { BeamSection } from "./BeamSection";
import { ClassifierView } from "./ClassifierView";
import { DecodeForm, SamplingSliders } from "./Sampling";

const BARS = 14;

export function DecodeScreen({ trace: manifest }: { trace: Manifest }) {
  if (isEmbedder(manifest)) return <NoAnswer title="Decode" what="decode" trace={manifest} />;
  if (passesOf(manifest)) return <ChangedPredictions manifest={manifest} />;
  return isClassifier(manifest) ? <ClassifierView key={manifest.id} manifest={manifest} /> : <GenerationView manifest={manifest} />;
}

/** Generated text, or a text with [MASK]: the tokens, the distribution at each, and where text is written the sampling parameters. */
function GenerationView({ manifest }: { manifest: Manifest }) {
  const { predictions, model, decode } = manifest;
  const { params } = useValue(route);
  const index = predictionIndex(manifest, params["position"]);
  const prediction = predictions[index];
  const masked = isMasked(manifest);
  const sampling = masked ? NEUTRAL : samplingParams(manifest, params["sampling"]);
  const neutral = isNeutral(sampling);
  const position = prediction?.position ?? 0;
  const { filtered, loading } = useFiltered(manifest, index, sampling);

  const ask = (request: TraceRequest, next: number | null): void => {
    trace(request);
    setParams({ position: next, sampling: null });
  };
  const force = (prefix: number[], next: number): void => ask(requestWithPrefix(manifest, prefix), next);
  const goTo = (i: number): void => setParams({ position: predictions[i]?.position ?? 0, beam: null });
  useScreenKeys((event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || (event.target instanceof Element && event.target.closest("input, .beam-box, nav"))) return false;
    goTo(Math.max(0, Math.min(predictions.length - 1, index + by)));
    return true;
  });
  if (!prediction || !filtered) return <p>There is no step to show, because the text is empty.</p>;
  const locked = masked ? "" : lockReason(manifest, position, source.live);

  return (
    <>
      <h1>Decode</h1>
      <p>
        {masked
          ? `A masked language model predicts each token from the text on both sides of it: a probability for each of the ${count(model.vocab_size)} tokens of the vocabulary. Those at [MASK] fill in the text.`
          : `The model generates one token per step, from a probability for each of the ${count(model.vocab_size)} tokens of the vocabulary: the search or sampling selects one, which the next step reads.`}
      </p>
      <Scrubber manifest={manifest} index={index} onStep={goTo} />
      <div class="columns">
        <section aria-labelledby="after-title">
          <NextTokenText manifest={manifest} index={index} />
          <NextTokens
            filtered={filtered} pieces={new Map(prediction.top.map((c) => [c.id, c.piece]))} actual={(prediction.actual ?? (masked ? prediction.top[0] : null))?.id}
            neutral={neutral} locked={locked} eos={model.special_ids.eos}
            onForce={(id) => force(forcedPrefix(manifest, position, id), position + 1)}
          />
          <p class="note">
            {!neutral && "Thin lines and first numbers: the model’s probabilities. Bars and second numbers: those for sampling. "}
            {loading ? "Loading all logits of this step. "
              : !filtered.exact && "This page holds the 50 largest logits; the others are assumed equally probable. "}
            {locked ?? "Select a bar to force that token."}
          </p>
        </section>
        {!masked && <section aria-labelledby="sampling-title">
          <h2 id="sampling-title">Sampling</h2>
          <SamplingSliders sampling={sampling} onChange={(next) => setParams({ sampling: formatParams(next) })} />
          <p>
            {`${filtered.exact ? "" : "About "}${count(filtered.nKept)} token${filtered.nKept === 1 ? "" : "s"} can be sampled.`}
            {params["sampling"] && <> <button type="button" class="link" onClick={() => setParams({ sampling: null })}>Reset</button></>}
          </p>
          {source.live && <DecodeForm key={manifest.id} manifest={manifest} sampling={sampling} onTrace={(request) => ask(request, null)} />}
        </section>}
      </div>
      {decode.kind === "beam" && decode.steps.length > 0 && (
        <BeamSection manifest={manifest} step={Math.min(index, decode.steps.length - 1)} onForce={(prefix) => force(prefix, prefix.length)} />
      )}
      {manifest.edited && <p class="note">{masked ? "" : "The tokens are those decoded without your edits. "}The probabilities are those with your edits.</p>}
      {decode.kind === "given" && <p>This translation was given, not decoded: each step shows the probability of its next token.</p>}
    </>
  );
}

/** The context, and the next token with its probability and rank; or the token at a position that is predicted from both sides. */
function NextTokenText({ manifest, index }: { manifest: Manifest; index: number }) {
  const { actual, position, top } = manifest.predictions[index]!;
  const { pieces } = outputStream(manifest), at = position ?? 0, masked = isMasked(manifest), vocabulary = count(manifest.model.vocab_size);
  const shown = actual ?? (masked && manifest.generation.masked!.includes(at) ? top[0]! : null), p = shown && Math.exp(shown.log_prob);
  const how = masked ? "The model reads this token, so it need not predict it." : isGiven(manifest, at) ? "It was given." : "It was generated.";
  return (
    <>
      <h2 id="after-title">
        {masked ? <>Token {at}: <bdi>{visible(pieces[at])}</bdi></> : <>After <i><bdi>{at > 5 && "… "}{pieces.slice(Math.max(0, at - 5), at + 1).map(visible).join(" ")}</bdi></i></>}
      </h2>
      <p aria-live="polite" data-role="probability" data-value={p ?? undefined}>
        {shown && p !== null ? <><b><bdi>{visible(shown.piece)}</bdi></b>: {percent(p)}{actual && `, rank ${count(actual.rank + 1)} of ${vocabulary}. ${how}`}</>
          : masked ? "This token is never predicted." : "No next token: the text ends here."}
      </p>
    </>
  );
}

/** All logits of the step if available, else the 50 largest and the logsumexp. */
function useFiltered(manifest: Manifest, index: number, sampling: SamplingParams) {
  const prediction = manifest.predictions[index];
  const node = manifest.nodes.find((one) => one.id === "logits");
  const wanted = node !== undefined && !isNeutral(sampling); // a saved page has them only for a small vocabulary
  const loaded = useTensor(wanted ? "logits" : null, `token:${index}`, manifest);
  if (!prediction) return { filtered: null, loading: false };
  const size = node?.axes.at(-1)?.size ?? manifest.model.vocab_size;
  const { suppressed } = manifest.generation;
  const filtered = loaded.value
    ? filterAll(Array.from(loaded.value.data), sampling, suppressed, BARS)
    : filterTop(prediction.top, prediction.logsumexp, size, sampling, suppressed, BARS);
  return { filtered, loading: wanted && !loaded.value && !loaded.error };
}

function samplingParams(manifest: Manifest, text: string | undefined): SamplingParams {
  const given = (text ?? "").split(",").map(Number);
  if (given.length !== 4 || !given.every((x) => x >= 0)) return samplingOf(manifest);
  return { temperature: given[0]!, topK: given[1]!, topP: given[2]! || 1, minP: given[3]! };
}

const formatParams = ({ temperature, topK, topP, minP }: SamplingParams): string => [temperature, topK, topP, minP].join(",");

interface ScrubberProps {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  onStep: (index: number) => void;
}

export function Scrubber({ manifest, index, onStep }: ScrubberProps) {
  const last = manifest.predictions.length - 1;
  const actual = manifest.predictions[index]?.actual;
  const place = `step ${index + 1} of ${last + 1}`;
  return (
    <section aria-label="Steps">
      <OutputTokens manifest={manifest} index={index} label="Output" onStep={onStep} />
      <div class="slider">
        <button type="button" class="quiet" aria-label="Previous step" disabled={index === 0} onClick={() => onStep(index - 1)}>←</button>
        <input
          type="range" min={0} max={last} value={index} data-role="step" aria-label="Step"
          aria-valuetext={`${place}: ${actual ? visible(actual.piece) : "next token"}`}
          onInput={(event) => onStep(Number(event.currentTarget.value))}
        />
        <button type="button" class="quiet" aria-label="Next step" disabled={index === last} onClick={() => onStep(index + 1)}>→</button>
        <span class="note">{place}. Colour: probability of each token.</span>
      </div>
    </section>
  );
}

interface NextProps {
  filtered: Filtered;
  pieces: ReadonlyMap<number, string>;
  /** The actual next token. */
  actual: number | undefined;
  /** The sampling parameters change nothing. */
  neutral: boolean;
  /** Why no token can be forced here, or null. */
  locked: string | null;
  /** The end token, which cannot be forced. */
  eos: number;
  onForce: (id: number) => void;
}

/**
 * Bars of the most probable next tokens: the probabilities of the model, and those for sampling after temperature and
 * filters. Each is a button that forces its token.
 */
export function NextTokens({ filtered, pieces, actual, neutral, locked, eos, onForce }: NextProps) {
  const { bars, rest } = filtered;
  const bar = (key: number | string, name: string, before: number, after: number, dropped: string | null): Bar => ({
    key, label: name, value: neutral ? before : after, text: percent(before), faded: !neutral && dropped !== null,
    ...(!neutral && { before, note: dropped ?? percent(after) }),
  });
  const shown = bars.map(({ id, before, after, dropped }): Bar => {
    const piece = pieces.get(id) ?? `#${id}`;
    const isOutput = id === actual;
    const free = locked === null && !isOutput && id !== eos && dropped !== "suppressed";
    const title = isOutput ? "this is the output token" : locked ?? (free ? `force “${visible(piece)}” here and continue` : "cannot be forced here");
    const onClick = () => onForce(id);
    return {
      ...bar(id, piece, before, after, dropped), strong: isOutput, struck: dropped !== null && !neutral,
      attributes: { "data-role": "force", "data-candidate": id, disabled: !free, title, onClick },
    };
  });
  if (rest.n > 0) shown.push(bar("rest", `${count(rest.n)} others`, rest.before, rest.after, null));
  const limit = Math.max(...shown.map((one) => Math.max(one.value, one.before ?? 0)));
  return <Bars label="Next tokens" bars={shown} limit={limit} />;
}

export function ChangedPredictions({ manifest }: { manifest: Manifest }) {
  const { before } = passesOf(manifest)!;
  const index = predictionIndex(manifest, useValue(route).params["position"]);
  const prediction = manifest.predictions[index];
  if (!prediction) return <p>There is no prediction, because the text is empty.</p>;
  const all = changesOf(before.predictions[index], prediction, "probability");
  const largest = [...all].sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, BARS);
  const position = prediction.position ?? 0;
  const decided = isClassifier(manifest);
  return (
    <>
      <h1>Decode</h1>
      <p>How your edits change the probability of each {decided ? "class" : "token"}, in percentage points (pp), after minus before.</p>
      {!decided && <PositionPicker trace={manifest} position={position} />}
      <h2>{decided ? "Classes" : <>{isMasked(manifest) ? "At" : "After"} <i><bdi>{visible(outputStream(manifest).pieces[position])}</bdi></i></>}</h2>
      <div class="decode-changes"><Bars
        label="Changes of the probabilities" signs limit={Math.abs(largest[0]?.change ?? 0) || 1}
        bars={largest.map(({ id, piece, change, before: was, after }) => ({
          key: id, label: piece, value: change, text: points(change), note: `${percent(was)} → ${percent(after)}`,
        }))}
      /></div>
      {!decided && all.length < manifest.model.vocab_size && (
        <p class="note">The largest changes of the {all.length} tokens of {count(manifest.model.vocab_size)} that are among the 50 most probable both before and after.</p>
      )}
      <p class="note">{!decided && !isMasked(manifest) && "The tokens, and how they were decoded, are those without your edits. "}For the probabilities themselves, show before or after.</p>
    </>
  );
}
