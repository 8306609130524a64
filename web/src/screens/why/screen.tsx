/**
 * The Why screen: the attribution of a prediction to the input words, its faithfulness compared with random rankings,
 * and words that can be masked.
 */
import { editable, route, setParams, source } from "../../state/page";
import { type Resource, useResource } from "../../state/resource";
import { signal, useValue } from "../../state/signals";
import { number, percent, signed, visible } from "../../tensors/format";
import { isClassifier, isEmbedder, isMasked, targetIndex } from "../../trace/generation";
import { colours, erasedPositions, gapBetween, keyOf, nameOf, scaleOf, strongest, type Word, wordsOf } from "../../trace/words";
import type { AttributeRequest, Attribution, Candidate, Erased, Faithfulness as Score, Manifest, Prediction } from "../../types";
import { Bars } from "../../views/Bars";
import { Choices } from "../../views/Choices";
import { Terms } from "../../views/Terms";
import { ErrorText } from "../../views/Text";
import { OutputTokens } from "../../views/Tokens";
import { isNumber, NoAnswer } from "../../views/Vector";
import { SweepView } from "./Sweeps";

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

interface QuestionProps {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  request: AttributeRequest;
}

const METHODS = [
  { id: "erase", name: "Leave-one-out", description: "Each word is masked alone; its score is the drop of the quantity." },
  { id: "integrated_gradients", name: "Integrated gradients", description: "Gradients are averaged along the path from the fully masked text to this text; the scores sum to the difference of the quantity." },
] as const;

export function Question({ manifest, index, request }: QuestionProps) {
  const { top, actual } = manifest.predictions[index]!;
  const decided = isClassifier(manifest);
  // Classes to explain, or tokens to contrast with.
  const choices = decided ? top : top.filter((c) => c.id !== actual?.id).slice(0, 20);
  return (
    <>
      {!decided && (
        <OutputTokens
          manifest={manifest} index={index} label="Output token to explain"
          onStep={(i) => setParams({ position: manifest.predictions[i]!.position, foil: null, erased: null })}
        />
      )}
      <div class="row">
        <Choices name="method" label="Method" options={METHODS.map(({ id, name }) => [id, name] as const)} chosen={request.method} onChoose={(id) => setParams({ method: id === "erase" ? null : id })} />
        {!(decided && top.length === 2) && (
          <label>
            {decided ? "Class" : "Contrast with"}{" "}
            <select
              data-role={decided ? "class" : "foil"} value={(decided ? request.target ?? top[0]!.id : request.foil) ?? ""}
              onChange={({ currentTarget: { value } }) => setParams(decided ? { class: value } : { foil: value || null })}
            >
              {!decided && <option value="">none</option>}
              {choices.map((c) => <option key={c.id} value={c.id}>{visible(c.piece)} {percent(Math.exp(c.log_prob))}</option>)}
            </select>
          </label>
        )}
      </div>
      <p class="note">{METHODS.find(({ id }) => id === request.method)!.description}</p>
    </>
  );
}

interface ProbabilityProps {
  prediction: Prediction;
  /** The explained class or token. */
  explained: Candidate;
  attribution: Attribution | null;
  erased: Resource<Erased>;
  nErased: number;
}

export function Probability({ prediction, explained, attribution, erased, nErased }: ProbabilityProps) {
  const p = Math.exp(explained.log_prob);
  const answer = nErased > 0 ? erased.value : null;
  const after = answer && probabilityOf(answer, explained, attribution);
  const favourite = answer?.prediction.top[0];
  const now = nErased === 0 ? p : after; // null: loading, or not in a saved page
  return (
    <section class="probability" aria-label="Probability">
      <p data-role="probability" data-value={now ?? undefined} aria-live="polite">
        <i>p({visible(explained.piece)})</i> <b>{now === null ? (erased.error ? "unknown" : "…") : percent(now)}</b>{" "}
        {after !== null && `was ${percent(p)}, ${signed(100 * (after - p), 1)} percentage points`}
      </p>
      <span class="bar-track" aria-hidden="true">
        <span class="bar-fill" style={{ width: `${100 * (now ?? 0)}%` }} />
        <span class="probability-tick" style={{ left: `${100 * p}%` }} />
      </span>
      <p class="note">
        {nErased === 0 ? "No word is masked." : nErased === 1 ? "One word is masked. " : `${nErased} words are masked. `}
        {favourite && favourite.id !== prediction.top[0]!.id && <>The most probable is now <b>{visible(favourite.piece)}</b> ({percent(Math.exp(favourite.log_prob))}). </>}
        {answer && `The quantity changed from ${number(answer.original)} to ${number(answer.value)}. `}
        {nErased > 0 && <button type="button" class="link" data-role="restore" onClick={() => setParams({ erased: null })}>Unmask all</button>}
      </p>
      <ErrorText error={erased.error} />
    </section>
  );
}

/** From the candidates of the new prediction, else from the quantity if that is the token's log p. */
function probabilityOf({ prediction, value }: Erased, explained: Candidate, attribution: Attribution | null): number | null {
  const found = [...prediction.top, prediction.actual].find((c) => c?.id === explained.id);
  return found ? Math.exp(found.log_prob) : attribution?.foil === null ? Math.exp(value) : null;
}

interface WordTextProps {
  words: readonly Word[];
  text: string;
  /** Largest absolute score of all words. */
  scale: number;
  erased: ReadonlySet<string>;
  erasedWith: string;
  onToggle: (word: Word) => void;
  name: string;
}

/** The word under the pointer, here or in the list of strongest words; only it is rerendered. */
const pointedWord = signal<string | null>(null);

export function WordText({ words, text, name, ...shared }: WordTextProps) {
  const letters = [...text];
  return (
    <p class="word-text" role="group" aria-label={name}>
      {words.map((word, i) => [gapBetween(letters, words[i - 1], word), <WordButton key={keyOf(word)} word={word} {...shared} />])}
    </p>
  );
}

function WordButton({ word, scale, erased, erasedWith, onToggle }: { word: Word } & Omit<WordTextProps, "words" | "text" | "name">) {
  const key = keyOf(word);
  const current = useValue(pointedWord, (pointed) => pointed === key);
  const gone = erased.has(key);
  return (
    <button
      type="button" class="word" data-word={word.index} data-of={word.stream} data-score={word.score}
      {...colours(word.score, scale)} data-current={current} aria-pressed={gone}
      aria-label={`${word.text}, ${signed(word.score)}${gone ? ", masked" : ""}`}
      onClick={() => onToggle(word)} {...pointing(key)}
      onKeyDown={(event) => {
        if (event.key === " ") event.stopPropagation(); // Space toggles this button
      }}
    >
      {gone ? erasedWith : visible(word.text).replace(/▁/g, " ")}
      {current && <span class="word-score">{signed(word.score)}</span>}
    </button>
  );
}

/** Event handlers that highlight a word on hover and focus. */
export function pointing(key: string) {
  const [enter, leave] = [() => (pointedWord.value = key), () => (pointedWord.value = null)];
  return { onMouseEnter: enter, onFocus: enter, onMouseLeave: leave, onBlur: leave };
}

const [LEFT, RIGHT] = [8, 512];

export function Faithfulness({ attribution }: { attribution: Attribution }) {
  const { comprehensiveness, sufficiency, n_random } = attribution;
  const values = [comprehensiveness, sufficiency].flatMap(({ value, random_low, random_high }) => [value, random_low, random_high]);
  const low = Math.min(0, ...values);
  const span = Math.max(1e-9, ...values) - low;
  const x = (value: number): number => LEFT + ((value - low) / span) * (RIGHT - LEFT);
  return (
    <div class="faithfulness">
      <Row name="Comprehensiveness: top words masked" better="right" score={comprehensiveness} x={x} />
      <Row name="Sufficiency: only top words kept" better="left" score={sufficiency} x={x} />
      <p class="note">
        The drop of the quantity, averaged over the top 10, 20 and 50% of words. Grey: mean and 95% interval of {n_random} random
        rankings.
      </p>
    </div>
  );
}

function Row({ name, better, score, x }: { name: string; better: "left" | "right"; score: Score; x: (v: number) => number }) {
  const { value, random_mean, random_low, random_high, beats_random } = score;
  const leans = better === "right" ? value > random_mean : value < random_mean;
  const verdict = beats_random ? "better than random" : leans ? "not significantly better than random" : "not better than random";
  return (
    <figure data-beats={beats_random}>
      <figcaption><Terms>{name}</Terms> <span class="note">{better === "right" ? "higher" : "lower"} is better</span></figcaption>
      <svg
        class="plot" viewBox="0 0 520 44" role="img"
        aria-label={`${number(value)}; random rankings ${number(random_mean)}, 95% between ${number(random_low)} and ${number(random_high)}`}
      >
        <path class="axis" d={`M${LEFT} 22H${RIGHT}M${x(0)} 12v20`} />
        <text x={x(0)} y={42} text-anchor={anchor(x(0))}>0</text>
        <rect x={x(random_low)} y={15} width={Math.max(2, x(random_high) - x(random_low))} height={14} />
        <path class="plot-line" d={`M${x(random_mean)} 12v20`} />
        <circle cx={x(value)} cy={22} r={7} />
        <text x={x(value)} y={10} text-anchor={anchor(x(value))}>{number(value)}</text>
      </svg>
      <p>The quantity {moves(value)}; with random rankings it {moves(random_mean)}: {verdict}.</p>
    </figure>
  );
}

const moves = (fall: number): string => `${fall < 0 ? "rises" : "falls"} by ${number(Math.abs(fall))}`;

const anchor = (x: number): "start" | "middle" | "end" => (x < 40 ? "start" : x > 480 ? "end" : "middle");
