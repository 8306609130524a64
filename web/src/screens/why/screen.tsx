/**
 * Why: which words the answer hangs on, by a method whose error is shown, beside what random rankings would give;
 * and a text whose words can be erased to see for oneself. Numbers come from the server; nothing is attributed here.
 */
import { route, setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { number, percent, signed } from "../../tensors/format";
import { decides, stepIndex } from "../../trace/writing";
import type { AttributeRequest, Attribution, Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { Faithfulness } from "./Faithfulness";
import { Probability, Trouble } from "./Probability";
import { Question } from "./Question";
import { erasedPositions, keyOf, scaleOf, strongest, type Word, wordsOf } from "./words";
import { pointing, WordText } from "./WordText";

export function WhyScreen({ trace }: { trace: Manifest }) {
  return <Explained key={trace.id} manifest={trace} />;
}

function Explained({ manifest }: { manifest: Manifest }) {
  const { params } = useValue(route);
  const decided = decides(manifest);
  const index = decided ? 0 : explainedIndex(manifest, params["position"]);
  const prediction = manifest.predictions[index];
  const request = requestOf(manifest, index, params);
  const attribution = useResource(prediction ? JSON.stringify(request) : null, () => source.attribute(request), { within: manifest.id });
  const found = attribution.value;
  const upTo = decided ? null : (prediction?.position ?? 0) + 1;
  const groups = manifest.streams.map((stream) => ({
    stream, words: wordsOf(stream, found?.scores[stream.name], stream.name === "source" ? null : upTo).filter((word) => !word.later),
  }));
  const all = groups.flatMap(({ words }) => words);
  const erased = new Set((params["erased"] ?? "").split(",").filter(Boolean));
  const erase = erasedPositions(all, erased);
  const wants = Object.keys(erase).length > 0;
  const { method: _, ...asked } = request;
  const without = { ...asked, erase };
  const after = useResource(wants && prediction ? JSON.stringify(without) : null, () => source.erase(without), { within: manifest.id });
  const scale = scaleOf(all);

  const onToggle = (word: Word): void => {
    const next = new Set(erased);
    if (!next.delete(keyOf(word))) next.add(keyOf(word));
    setParams({ erased: [...next].join(",") || null });
  };

  if (!prediction) return <p>There is nothing to explain: the text is empty.</p>;
  const explained = prediction.top.find((c) => c.id === request.target) ?? (decided ? prediction.top[0]! : prediction.actual);
  return (
    <>
      <h1>Why</h1>
      <p>
        Which words does {decided ? "the answer" : "one written token"} hang on? Each is scored by what it does
        to {decided ? "the answer" : "that token’s probability"}, and can be erased.
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
                  onToggle={onToggle} name={name}
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
                attributes: { "aria-pressed": erased.has(keyOf(word)), onClick: () => onToggle(word), ...pointing(keyOf(word)) },
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
  if (decides(manifest)) {
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
