/**
 * The steps of a text that is being written: a line of tokens to scrub along, the distribution behind each one,
 * and the knobs of sampling. The beam search below is `BeamSection.tsx`.
 */
import { useScreenKeys } from "../keys";
import { busy, route, setParams, source, trace, useTensor } from "../state";
import type { Manifest, TraceRequest } from "../types";
import { BeamSection } from "./BeamSection";
import { filterAll, filterTop, isNeutral, type Filtered, type Knobs } from "./filters";
import { bannedIds, lockedAt, prefixWith, requestWith, stepIndex, written } from "./forcing";
import { KnobSliders } from "./Knobs";
import { percent, sentence } from "./numbers";
import { Piece } from "./Piece";
import { PairBars } from "./PairBars";
import { Scrubber } from "./Scrubber";
import { WriteAgain } from "./WriteAgain";

const BARS = 14;

export function Writing({ manifest }: { manifest: Manifest }) {
  const { predictions, model } = manifest;
  const { params } = route.value;
  const stream = written(manifest);
  const index = stepIndex(manifest, params["position"]);
  const prediction = predictions[index];
  const knobs = knobsOf(manifest, params["knobs"]);
  const position = prediction?.position ?? 0;
  const { filtered, pieces, loading } = useFiltered(manifest, index, knobs);

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
  const actual = prediction.actual;
  const locked = lockedAt(manifest, position, source.live);
  const before = stream.pieces.slice(Math.max(0, position - 5), position + 1);

  return (
    <>
      <header class="screen-head">
        <h1>Decode</h1>
        <p>
          The model writes one token at a time. At each step it gives every token of its vocabulary ({model.vocab_size.toLocaleString("en")})
          a probability, a rule picks one, and the pick is read at the next step.
        </p>
      </header>
      <Scrubber manifest={manifest} index={index} onStep={goTo} />
      <div class="decode-columns">
        <section aria-labelledby="after-title">
          <h2 id="after-title" class="after">
            after <span class="after-tokens">{position > 5 && "… "}{before.map((piece, i) => <>{i > 0 && " "}<Piece piece={piece} /></>)}</span> comes
          </h2>
          <p class="written-line" aria-live="polite" data-role="probability" data-value={actual ? Math.exp(actual.log_prob) : undefined}>
            {actual
              ? <><b class="piece"><Piece piece={actual.piece} /></b> {position + 1 < stream.n_given ? "was given" : "was written"}: {percent(Math.exp(actual.log_prob))}, {ordinal(actual.rank)} of {model.vocab_size.toLocaleString("en")}.</>
              : "nothing yet: the text stops here."}
          </p>
          <PairBars
            filtered={filtered} pieces={pieces} actual={actual?.id ?? null} neutral={isNeutral(knobs)}
            locked={locked} eos={model.special_ids.eos}
            onForce={(id) => force(prefixWith(manifest, position, id), position + 1)}
          />
          <p class="quiet">{exactness(filtered, isNeutral(knobs), loading)} {locked === null ? "Choose a bar to write that token instead." : sentence(locked)}</p>
        </section>
        <section aria-labelledby="knobs-title">
          <h2 id="knobs-title">If it is sampled</h2>
          <p class="quiet">
            <span class="swatch swatch-before" /> the model’s own probability <span class="swatch swatch-after" /> what is drawn with
          </p>
          <KnobSliders knobs={knobs} onChange={(next) => setParams({ knobs: spell(next) })} />
          <p class="kept-count">
            {filtered.nKept === null ? "How many tokens can be drawn is not known here." : filtered.nKept === 1 ? "One token can be drawn." : `${filtered.nKept.toLocaleString("en")} tokens can be drawn.`}
            {params["knobs"] && <> <button type="button" class="link" onClick={() => setParams({ knobs: null })}>Put back</button></>}
          </p>
          {source.live && <WriteAgain key={manifest.id} manifest={manifest} knobs={knobs} busy={busy.value !== null} onTrace={(request) => ask(request, null)} />}
        </section>
      </div>
      {manifest.decode.kind === "beam" && manifest.decode.steps.length > 0 && (
        <BeamSection
          manifest={manifest} step={Math.min(index, manifest.decode.steps.length - 1)} selected={params["beam"]}
          showPruned={params["pruned"] !== "0"} live={source.live}
          onShowPruned={(shown) => setParams({ pruned: shown ? null : "0" })}
          onSelect={(node) => setParams({ beam: `${node.step}.${node.index}` })}
          onForce={(prefix) => force(prefix, prefix.length)}
        />
      )}
      {manifest.decode.kind === "given" && <p>You named this translation, so nothing was searched: each step shows how probable your next token was.</p>}
    </>
  );
}

/** All the logits of the step where they can be had, the 50 best and the logsumexp otherwise. */
function useFiltered(manifest: Manifest, index: number, knobs: Knobs) {
  const prediction = manifest.predictions[index];
  const node = manifest.nodes.find((one) => one.id === "logits");
  const wanted = node !== undefined && !isNeutral(knobs); // a saved page has them of a small vocabulary, or an error
  const loaded = useTensor(wanted ? "logits" : null, `token:${index}`, manifest);
  const pieces = new Map<number, string>(prediction?.top.map((c) => [c.id, c.piece]));
  if (!prediction) return { filtered: null, pieces, loading: false };
  const size = node?.axes.at(-1)?.size ?? manifest.model.vocab_size;
  const banned = bannedIds(manifest);
  const filtered = loaded.value
    ? filterAll(loaded.value.data, knobs, banned, BARS)
    : filterTop(prediction.top, prediction.logsumexp, size, knobs, banned, BARS);
  return { filtered, pieces, loading: wanted && !loaded.value && !loaded.error };
}

function knobsOf(manifest: Manifest, spelled: string | undefined): Knobs {
  const { settings, kind } = manifest.decode;
  const sampled = manifest.model.task === "lm" || kind === "sample";
  const own = sampled ? [settings.temperature, settings.top_k, settings.top_p, settings.min_p] : [1, 0, 1, 0];
  const given = (spelled ?? "").split(",").map(Number);
  const [temperature, topK, topP, minP] = (given.length === 4 && given.every((x) => Number.isFinite(x) && x >= 0) ? given : own) as [number, number, number, number];
  return { temperature, topK, topP: topP || 1, minP };
}

const spell = ({ temperature, topK, topP, minP }: Knobs): string => [temperature, topK, topP, minP].join(",");

function exactness(filtered: Filtered, neutral: boolean, loading: boolean): string {
  if (neutral) return "From the logits of the best tokens and the logsumexp of all: exact.";
  if (loading) return "Fetching all logits of this step.";
  return filtered.exact
    ? "From all logits of this step: exact."
    : "Only the 50 best logits are in this page: where the rest would matter, both bounds are given.";
}

function ordinal(rank: number): string {
  const n = rank + 1;
  const ending = n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th";
  return n === 1 ? "the most probable" : `${n.toLocaleString("en")}${ending} most probable`;
}
