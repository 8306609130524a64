/**
 * The Decode screen: for a classifier its single prediction; for other models the distribution of each step, the
 * search, and forced tokens.
 */
import { passesOf } from "../../sources/difference";
import { useScreenKeys } from "../../state/keys";
import { route, setParams, source, trace } from "../../state/page";
import { useTensor } from "../../state/resource";
import { useValue } from "../../state/signals";
import { filterAll, filterTop, isNeutral, NEUTRAL, type SamplingParams } from "../../tensors/filters";
import { count, percent, visible } from "../../tensors/format";
import { isClassifier, isEmbedder, isMasked, isGiven, lockReason, forcedPrefix, requestWithPrefix, predictionIndex, outputStream } from "../../trace/generation";
import { samplingOf } from "../../trace/sampling";
import type { Manifest, TraceRequest } from "../../types";
import { NoAnswer } from "../../views/Vector";
import { BeamSection } from "./BeamSection";
import { ChangedPredictions } from "./ChangedPredictions";
import { ClassifierView } from "./ClassifierView";
import { SamplingSliders, DecodeForm } from "./Sampling";
import { NextTokens, Scrubber } from "./Steps";

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
