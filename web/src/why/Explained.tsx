/**
 * The Why screen: what is asked (method, output token, foil), the coloured text, what erasing does, and how far the
 * ranking can be trusted. Numbers come from the server; nothing is attributed in the browser.
 */
import { useState } from "preact/hooks";
import { Bars } from "../components/Bars";
import { number, percent, signed } from "../format";
import { route, setParams } from "../state";
import { stepIndex } from "../stepData";
import type { AttributeRequest, Attribution, Manifest } from "../types";
import { useAttribution, useErased } from "./asking";
import { Faithfulness } from "./Faithfulness";
import { Probability } from "./Probability";
import { Question } from "./Question";
import { Trouble } from "./Trouble";
import { erasedPositions, keyOf, scaleOf, strongest, wordsOf, type Word } from "./words";
import { pointing, WordText } from "./WordText";

export function Explained({ manifest }: { manifest: Manifest }) {
  const { params } = route.value;
  const classify = manifest.model.task === "classify";
  const index = classify ? 0 : explainedIndex(manifest, params["position"]);
  const prediction = manifest.predictions[index];
  const request = requestOf(manifest, index, params);
  const attribution = useAttribution(prediction ? request : null);
  const found = attribution.value;
  const upTo = classify ? null : (prediction?.position ?? 0) + 1;
  const groups = manifest.streams.map((stream) => ({
    stream, words: wordsOf(stream, found?.scores[stream.name], stream.name === "source" ? null : upTo).filter((word) => !word.later),
  }));
  const all = groups.flatMap(({ words }) => words);
  const erased = new Set((params["erased"] ?? "").split(",").filter(Boolean));
  const erase = erasedPositions(all, erased);
  const wants = Object.keys(erase).length > 0;
  const { method: _, ...asked } = request;
  const after = useErased(wants && prediction ? { ...asked, erase } : null);
  const [current, onCurrent] = useState<string | null>(null);
  const scale = scaleOf(all);

  const onToggle = (word: Word): void => {
    const next = new Set(erased);
    if (!next.delete(keyOf(word))) next.add(keyOf(word));
    setParams({ erased: [...next].join(",") || null });
  };

  if (!prediction) return <p>There is nothing to explain: the text is empty.</p>;
  const explained = prediction.top.find((c) => c.id === request.target) ?? (classify ? prediction.top[0]! : prediction.actual);
  return (
    <>
      <h1>Why</h1>
      <p>
        Which words does {classify ? "the answer" : "one written token"} hang on? Each is scored by what it does
        to {classify ? "the answer" : "that token’s probability"}, and can be erased.
      </p>
      <Question manifest={manifest} index={index} request={request} />
      <div class="columns">
        <div class="why-text" data-stale={attribution.stale} aria-busy={attribution.stale}>
          {groups.map(({ stream, words }) => {
            const name = { text: "Text", source: "Source", target: "Written so far" }[stream.name];
            return (
              <section key={stream.name}>
                {groups.length > 1 && <h2 class="note">{name}</h2>}
                {words.length === 0 && <p class="note">no words yet</p>}
                <WordText
                  words={words} text={stream.text} scale={scale} erased={erased} erasedWith={found?.erased_with ?? "[UNK]"}
                  current={current} onToggle={onToggle} onCurrent={onCurrent} name={name}
                />
              </section>
            );
          })}
          {found
            ? <p class="note">
                Explained is the <i>{found.quantity}</i>: <span class="word" data-sign="for">for</span>{" "}
                and <span class="word" data-sign="against">against</span> it; the strongest colour is {number(scale)}. Click a word to erase it.
              </p>
            : !attribution.error && <p class="note">Working it out.</p>}
        </div>
        {explained && <Probability prediction={prediction} explained={explained} attribution={found} erased={after} nErased={wants ? erased.size : 0} />}
      </div>
      <Trouble error={attribution.error} />
      {found && (
        <div class="columns">
          <Trust found={found} />
          <section aria-labelledby="strongest-title">
            <h2 id="strongest-title">Strongest words</h2>
            <Bars
              label="Strongest words" signs limit={scale} bars={strongest(all, 12).map((word) => ({
                key: keyOf(word), label: word.text, value: word.score, text: signed(word.score), struck: erased.has(keyOf(word)),
                attributes: { "aria-pressed": erased.has(keyOf(word)), onClick: () => onToggle(word), ...pointing(keyOf(word), onCurrent) },
              }))}
            />
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

function requestOf(manifest: Manifest, index: number, params: Record<string, string>): AttributeRequest {
  const method = params["method"] === "integrated_gradients" ? "integrated_gradients" : "erase";
  const request: AttributeRequest = { trace: manifest.id, method };
  if (manifest.model.task === "classify") {
    if (params["class"] !== undefined) request.target = Number(params["class"]);
    return request;
  }
  request.prediction = index;
  if (params["foil"] !== undefined) request.foil = Number(params["foil"]);
  return request;
}

function Trust({ found }: { found: Attribution }) {
  const { completeness, erased_with, warnings } = found;
  return (
    <section aria-labelledby="trust-title">
      <h2 id="trust-title">Can it be trusted?</h2>
      {completeness
        ? <p class={completeness.ok ? "" : "warning"} data-role="completeness" data-value={completeness.relative}>
            The scores should sum to the difference between this text and the erased one. They miss it
            by <b>{number(Math.abs(completeness.error))}</b>, {percent(Math.abs(completeness.relative))} of the range,
            in {completeness.n_steps} steps{completeness.ok ? "." : ": too much. Take them as rough, or erase one word at a time."} Errors
            that cancel are not seen in a sum: of no token is the score off by more than {number(completeness.token_error)}, by a second rule.
          </p>
        : <p>A score is the fall when that word alone is replaced by {erased_with}: exact for one word, blind to words that stand in for each other.</p>}
      <Faithfulness attribution={found} />
      {warnings.map((warning) => <p key={warning} class="warning">{warning}.</p>)}
    </section>
  );
}
