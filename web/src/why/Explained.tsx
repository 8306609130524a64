/**
 * The Why screen: what is asked (method, output token, foil), the coloured text, what erasing does, and how far the
 * ranking can be trusted. Numbers come from the server; nothing is attributed in the browser.
 */
import { useState } from "preact/hooks";
import { stepIndex } from "../decode/forcing";
import { plain, sentence } from "../decode/numbers";
import { route, setParams } from "../state";
import type { AttributeRequest, Manifest } from "../types";
import { useAttribution, useErased } from "./asking";
import { FaithfulnessPlot } from "./Faithfulness";
import { Probability } from "./Probability";
import { Question } from "./Question";
import { Strongest } from "./Strongest";
import { erasedPositions, keyOf, scaleOf, wordsOf, type Word } from "./words";
import { WordText } from "./WordText";

export function Explained({ manifest }: { manifest: Manifest }) {
  const { params } = route.value;
  const classify = manifest.model.task === "classify";
  const method = params["method"] === "integrated_gradients" ? "integrated_gradients" : "erase";
  const index = classify ? 0 : explainedIndex(manifest, params["position"]);
  const prediction = manifest.predictions[index];
  const foil = params["foil"] === undefined || classify ? undefined : Number(params["foil"]);
  const chosen = params["class"] === undefined || !classify ? undefined : Number(params["class"]);
  const request: AttributeRequest = { trace: manifest.id, method };
  if (!classify) request.prediction = index;
  if (foil !== undefined) request.foil = foil;
  if (chosen !== undefined) request.target = chosen;

  const attribution = useAttribution(prediction ? request : null);
  const found = attribution.value;
  const upTo = classify ? null : (prediction?.position ?? 0) + 1;
  const groups = manifest.streams.map((stream) => {
    const words = wordsOf(stream, found?.scores[stream.name], stream.name === "source" ? null : upTo);
    return { stream, words };
  });
  const all = groups.flatMap((group) => group.words).filter((word) => !word.later);
  const erased = new Set((params["erased"] ?? "").split(",").filter(Boolean));
  const erase = erasedPositions(all, erased);
  const wants = Object.keys(erase).length > 0;
  const { method: _, ...asked } = request;
  const after = useErased(wants && prediction ? { ...asked, erase } : null);
  const [pointed, point] = useState<string | null>(null);
  const scale = scaleOf(all);

  const toggle = (word: Word): void => {
    const next = new Set(erased);
    if (!next.delete(keyOf(word))) next.add(keyOf(word));
    setParams({ erased: next.size ? [...next].join(",") : null });
  };

  if (!prediction) return <p>There is nothing to explain: the text is empty.</p>;
  return (
    <>
      <header class="screen-head">
        <h1>Why</h1>
        <p>
          {classify
            ? "Which words does the answer hang on? Each is scored by what it does to the answer, and each can be erased to see for yourself."
            : "Which words does one written token hang on? Each is scored by what it does to that token’s probability, and each can be erased."}
        </p>
      </header>
      <Question manifest={manifest} index={index} method={method} foil={foil} target={chosen} attribution={found} />
      <div class="why-main">
      <div class="why-text" data-stale={attribution.stale} aria-busy={attribution.stale}>
        {groups.map(({ stream, words }) => (
          <section key={stream.name}>
            {groups.length > 1 && <h2 class="stream-name" id={`why-${stream.name}`}>{stream.name === "source" ? "Source" : "Written so far"}</h2>}
            {words.length === 0 ? <p class="quiet">no words yet</p> : (
              <WordText
                words={words.filter((word) => !word.later)} text={stream.text} scale={scale} erased={erased}
                erasedWith={found?.erased_with ?? "[UNK]"} current={pointed} onToggle={toggle}
                onCurrent={point} labelledBy={groups.length > 1 ? `why-${stream.name}` : undefined}
              />
            )}
          </section>
        ))}
        {!attribution.error && <Key found={found !== null} scale={scale} />}
      </div>
      <Probability
        manifest={manifest} prediction={prediction} attribution={found} erased={after} nErased={wants ? erased.size : 0}
        target={chosen} onClear={() => setParams({ erased: null })}
      />
      </div>
      {attribution.error && <p role="alert" class="trouble">{attribution.error.message} {attribution.error.hint}</p>}
      {found && (
        <div class="why-columns">
          <Strongest words={all} scale={scale} erased={erased} classify={classify} onToggle={toggle} onCurrent={point} />
          <section aria-labelledby="trust-title">
            <h2 id="trust-title">Can it be trusted?</h2>
            {found.completeness && <Completeness {...found.completeness} />}
            {found.method === "erase" && <p>Each score is the fall of the quantity when that word alone is replaced by {found.erased_with}: exact for one word, blind to words that stand in for each other.</p>}
            <FaithfulnessPlot attribution={found} />
            {found.warnings.map((warning) => <p key={warning} class="warning">{sentence(warning)}</p>)}
          </section>
        </div>
      )}
    </>
  );
}

/** As on the Decode screen, but of tokens that were written: the end of a text has none. */
function explainedIndex(manifest: Manifest, position: string | undefined): number {
  const answered = manifest.predictions.filter((p) => p.actual).length;
  return Math.min(stepIndex(manifest, position), Math.max(0, answered - 1));
}

function Key({ found, scale }: { found: boolean; scale: number }) {
  if (!found) return <p class="quiet">Working it out.</p>;
  return (
    <p class="why-key">
      <span class="word" data-sign="for" style={{ "--strength": "80%" }}>for</span> speaks for it
      <span class="word" data-sign="against" style={{ "--strength": "80%" }}>against</span> speaks against it
      <span class="quiet">The deepest colour is {plain(scale, 3)}. Click a word to erase it.</span>
    </p>
  );
}

function Completeness({ error, relative, n_steps, ok }: { error: number; relative: number; n_steps: number; ok: boolean }) {
  return (
    <p class={ok ? "" : "warning"} data-role="completeness" data-value={relative}>
      The scores should sum to the difference between this text and the text with every word erased. They miss it by{" "}
      <b>{plain(Math.abs(error), 4)}</b>, {(100 * Math.abs(relative)).toFixed(2)}% of the range, with {n_steps} steps of integration
      {ok ? "." : ": too much. Take the scores as rough, or use erase-one."}
    </p>
  );
}
