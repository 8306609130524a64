/**
 * The Why screen: the attribution of a prediction to the input words, its faithfulness compared with random rankings,
 * and words that can be masked.
 */
import { editable, route, setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { number, percent, signed } from "../../tensors/format";
import { isClassifier, isEmbedder, isMasked, targetIndex } from "../../trace/generation";
import type { AttributeRequest, Attribution, Manifest, Prediction } from "../../types";
import { Bars } from "../../views/Bars";
import { Choices } from "../../views/Choices";
import { Terms } from "../../views/Terms";
import { isNumber, NoAnswer } from "../../views/Vector";
import { SweepView } from "./Sweeps";
import { Faithfulness } from "./Faithfulness";
import { Probability, ErrorText } from "./Probability";
import { Question } from "./Question";
import { erasedPositions, keyOf, nameOf, scaleOf, strongest, type Word, wordsOf } from "../../trace/words";
import { pointing, WordText } from "./WordText";

const VIEWS = [["words", "Words"], ["parts", "Heads and blocks"], ["keys", "Attention to tokens"], ["layers", "Layers"], ["contributions", "Contributions"], ["states", "Second text"], ["checkpoints", "Training"]] as const;
type View = (typeof VIEWS)[number][0];

/** Words, or parts of the model, that the prediction depends on: the words alone where no edits can be made. */
export function WhyScreen({ trace }: { trace: Manifest }) {
  const { params } = useValue(route);
  const views = useValue(editable) ? VIEWS.filter(([name]) => !(name in trace.refused)) : [];
  const view = views.find(([name]) => name === params.why)?.[0] ?? "words";
  if (isEmbedder(trace) && !isNumber(trace)) return <NoAnswer title="Why" what="explain" trace={trace} />;
  return (
    <>
      {views.length > 0 && (
        <div class="attention-bar">
          <Choices name="why" label="What is changed" options={views} chosen={view} onChoose={(why: View) => setParams({ why: why === "words" ? null : why }, { push: true })} />
        </div>
      )}
      {view === "words" ? <Attributions key={trace.id} manifest={trace} /> : <><h1>Why</h1><SweepView key={view} trace={trace} kind={view} /></>}
    </>
  );
}

function Attributions({ manifest }: { manifest: Manifest }) {
  const { params } = useValue(route);
  const numeric = isNumber(manifest);
  const decided = numeric || isClassifier(manifest);
  const index = decided ? 0 : targetIndex(manifest, params["position"]);
  const prediction = numeric ? OUTPUT : manifest.predictions[index];
  const request = requestOf(manifest, index, params);
  const attribution = useResource(prediction ? JSON.stringify(request) : null, () => source.attribute(request), { within: manifest.id });
  const found = attribution.value;
  const upTo = decided || isMasked(manifest) ? null : (prediction?.position ?? 0) + 1;
  const groups = manifest.streams.map((stream) => ({
    stream, words: wordsOf(stream, found?.scores[stream.name], stream.name === "source" ? null : upTo, found?.word_texts[stream.name]).filter((word) => !word.later && word.text),
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

  if (!prediction) return <p>There is nothing to explain, because the text is empty.</p>;
  const explained = prediction.top.find((c) => c.id === request.target) ?? (decided || isMasked(manifest) ? prediction.actual ?? prediction.top[0]! : prediction.actual);
  return (
    <>
      <h1>Why</h1>
      <p>
        Attribution of <Terms>{decided ? "the prediction" : "one output token"}</Terms> to the input words. Each word has a score and can be
        masked to see its effect on {numeric ? "the number" : decided ? "the prediction" : "the token’s probability"}.
        {!decided && !isMasked(manifest) && params["position"] === undefined && <span data-role="rule">
          {" "}The token explained first is the generated one with the lowest probability, whatever its scores: comparing the scores of all tokens would take many more passes.
        </span>}
      </p>
      {!numeric && <Question manifest={manifest} index={index} request={request} />}
      <div class="columns">
        <div class="why-text" data-stale={attribution.stale} aria-busy={attribution.stale}>
          {groups.map(({ stream, words }) => {
            const name = { text: "Text", source: "Source", target: "Target so far" }[stream.name];
            return (
              <section key={stream.name}>
                {groups.length > 1 && <h2 class="note">{name}</h2>}
                {words.length === 0 && <p class="note">no words</p>}
                <WordText
                  words={words} text={stream.text} scale={scale} erased={erased} erasedWith={found?.erased_with ?? "[UNK]"}
                  onToggle={onToggle} name={name}
                />
              </section>
            );
          })}
          {found
            ? <p class="note">
                Explained <Terms>quantity</Terms>: <i>{found.quantity}</i>. Words <span class="word" data-sign="for">raise</span> or{" "}
                <span class="word" data-sign="against">lower</span> it; full colour is {number(scale)}. Click a word to mask it.
              </p>
            : !attribution.error && <p class="note">Computing …</p>}
        </div>
        {numeric ? found && <p data-role="number">{number(found.value)}{wants && after.value && ` → ${number(after.value.value)} with the words masked`}</p> : explained && <Probability prediction={prediction} explained={explained} attribution={found} erased={after} nErased={wants ? erased.size : 0} />}
      </div>
      <ErrorText error={attribution.error} />
      {found && (
        <div class="columns">
          <FaithfulnessSection found={found} />
          <section aria-labelledby="strongest-title">
            <h2 id="strongest-title">Strongest words</h2>
            <Bars
              label="Strongest words" signs limit={scale} bars={strongest(all, 12).map((word) => ({
                key: keyOf(word), label: nameOf(word, all), value: word.score, text: signed(word.score), struck: erased.has(keyOf(word)),
                attributes: { "aria-pressed": erased.has(keyOf(word)), onClick: () => onToggle(word), ...pointing(keyOf(word)) },
              }))}
            />
          </section>
        </div>
      )}
    </>
  );
}

/** In place of a prediction, which a number is not. */
const OUTPUT: Prediction = { position: null, logsumexp: 0, top: [], actual: null };

function requestOf(manifest: Manifest, index: number, params: Record<string, string>): AttributeRequest {
  const method = params["method"] === "integrated_gradients" ? "integrated_gradients" : "erase";
  const request: AttributeRequest = { trace: manifest.id, method };
  if (isNumber(manifest)) return request;
  if (isClassifier(manifest)) {
    if (params["class"] !== undefined) request.target = Number(params["class"]);
    return request;
  }
  request.prediction = index;
  if (params["foil"] !== undefined) request.foil = Number(params["foil"]);
  return request;
}

function FaithfulnessSection({ found }: { found: Attribution }) {
  const { completeness, erased_with, warnings } = found;
  return (
    <section aria-labelledby="trust-title">
      <h2 id="trust-title">Faithfulness</h2>
      {completeness
        ? <p class={completeness.ok ? "" : "warning"} data-role="completeness" data-value={completeness.relative}>
            <Terms>Completeness</Terms>: the scores should sum to the difference between this text and the fully masked one. The error
            is <b>{number(Math.abs(completeness.error))}</b>, {percent(Math.abs(completeness.relative))} of the difference,
            with {completeness.n_steps} gradients{completeness.ok ? "." : ": above the limit of 2%. Use leave-one-out instead."} The
            error of a single token’s score is at most {number(completeness.token_error)}, estimated with a second quadrature rule.
          </p>
        : <p>A score is the drop of the quantity when that word alone is replaced by {erased_with}. It is exact for single words, but misses redundant words.</p>}
      <Faithfulness attribution={found} />
      {warnings.map((warning) => <p key={warning} class="warning">{warning}.</p>)}
    </section>
  );
}
