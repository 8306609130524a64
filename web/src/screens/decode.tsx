/**
 * The Decode screen: for a classifier its single prediction; for other models the distribution of each step, the
 * search, and forced tokens.
 */
import { useState } from "preact/hooks";
import { passesOf } from "../sources/source";
import { useScreenKeys } from "../state/keys";
import { busy, hrefTo, route, setParams, source, trace } from "../state/page";
import { useTensor } from "../state/resource";
import { useValue } from "../state/signals";
import { count, number, percent, points, signed, tiny, visible } from "../tensors/format";
import { type Numbers, run, softmax } from "../tensors/walk";
import {
  asText, changesOf, forcedPrefix, hasSource, isClassifier, isEmbedder, isGiven, isMasked, lockReason, outputStream, predictionIndex,
  requestWithPrefix,
} from "../trace/generation";
import { filterAll, type Filtered, filterTop, isNeutral, KNOBS, NEUTRAL, samplingOf, type SamplingParams, samplingText } from "../trace/sampling";
import { table } from "../trace/steps";
import type { BeamCandidate, Candidate, DecodeLog, DecodeSettings, Manifest, Prediction, TraceRequest } from "../types";
import { type Bar, Bars } from "../views/Bars";
import { choosePrediction, OutputTokens, Tokens } from "../views/Choices";
import { Form, Section, Select } from "../views/Parts";
import { NoAnswer } from "../views/Text";
import { Table } from "../views/Table";

/**
 * Decomposes a classifier's logit into the contributions of the tokens' final vectors. Contributions are not
 * attributions: through attention each of these vectors depends on the other tokens.
 */
interface Contributions {
  /** One value per token; with the bias they sum to the logit. */
  tokens: number[];
  bias: number;
  logit: number;
  /** The sum of absolute values, to which rounding errors are proportional. */
  size: number;
}

/**
 * From x (L, D), what is pooled, which tokens take part, the pooling, the weights of a logit and its bias: each number times its
 * gradient, by the table of operations, since the logit is a sum of them.
 */
export function contributions(x: Numbers, real: readonly boolean[], how: string, w: Numbers, bias: number): Contributions {
  const d = x.length / Math.max(1, real.length);
  const slopes = run(table.rows[`pool:${how}.x`]!, {
    x: { shape: [real.length, d], data: x }, mask: { shape: [real.length], data: real.map(Number) }, g: { shape: [w.length], data: w },
  });
  const terms = Array.from(slopes, (slope, i) => slope * x[i]!);
  const sum = (all: readonly number[]) => all.reduce((a, b) => a + b, 0);
  const tokens = real.map((_, t) => sum(terms.slice(t * d, (t + 1) * d)));
  return { tokens, bias, size: sum(terms.map(Math.abs)) + Math.abs(bias), logit: bias + sum(tokens) };
}

const SLIDERS = {
  temperature: {
    name: "Temperature", min: 0, max: 3, step: 0.05,
    description: (t: number) => (t === 0 ? "Greedy: the largest logit." : t === 1 ? "Off."
      : `Logits are divided by ${t}: the distribution is ${t < 1 ? "sharper" : "flatter"}.`),
  },
  top_k: { name: "Top-k", min: 0, max: 50, step: 1, description: (k: number) => (k === 0 ? "Off." : `Only the ${k} most probable tokens.`) },
  top_p: { name: "Top-p", min: 0.05, max: 1, step: 0.05, description: (p: number) => (p === 1 ? "Off." : `The fewest tokens with a total probability of at least ${Math.round(100 * p)}%.`) },
  min_p: { name: "Min-p", min: 0, max: 0.5, step: 0.01, description: (p: number) => (p === 0 ? "Off." : `Tokens with at least ${p} times the largest probability.`) },
};

function SamplingSlider({ param, value, onInput }: { param: keyof SamplingParams; value: number; onInput: (value: number) => void }) {
  const { name, description, ...range } = SLIDERS[param];
  return (
    <label class="sampling-slider">
      {name} <output>{value}</output>
      <input type="range" {...range} value={value} data-role={`slider-${param}`} aria-valuetext={`${value}: ${description(value)}`} onInput={(event) => onInput(Number(event.currentTarget.value))} />
      <span class="note">{description(value)}</span>
    </label>
  );
}

/** The form to decode again, with beam size and length penalty, or with the sampling parameters and a seed. */
function DecodeForm({ manifest, sampling, onTrace }: { manifest: Manifest; sampling: SamplingParams; onTrace: (request: TraceRequest) => void }) {
  const { settings, prefix } = manifest.decode;
  const searches = hasSource(manifest);
  const waits = useValue(busy) !== null;
  const [chosen, setChosen] = useState({ ...settings, sample: !searches || settings.sample });
  const { sample, beam_size, length_penalty, decode_seed } = chosen;
  const change = (next: Partial<DecodeSettings>) => setChosen({ ...chosen, ...next });

  const write = () => {
    const request = requestWithPrefix(manifest, []);
    onTrace({ ...request, decode: { ...request.decode, sample, ...(sample ? { ...sampling, decode_seed } : { beam_size, length_penalty }) } });
  };
  const field = (name: string, key: "beam_size" | "length_penalty" | "decode_seed", min: number, max: number, step = 1) => (
    <label>{name} <input type="number" required min={min} max={max} step={step} value={chosen[key]} onInput={(event) => change({ [key]: Number(event.currentTarget.value) })} /></label>
  );
  return (
    <Form class="row" send={write}>
      {searches && <Select label="Decode by" value={sample ? 1 : 0} options={[[0, "Beam search"], [1, "Sampling"]]} onChoose={(one) => change({ sample: one === "1" })} />}
      {sample ? field("Seed", "decode_seed", 0, 1e9) : <>{field("Beam size", "beam_size", 1, 10)}{field("Length penalty", "length_penalty", 0, 3, 0.1)}</>}
      <button type="submit" class="quiet" data-role="write-again" disabled={waits}>
        {sample ? "Sample again" : "Search again"}
      </button>
      {prefix.length > 0 && (
        <button type="button" class="quiet" data-role="unforce" disabled={waits} onClick={() => onTrace(requestWithPrefix(manifest, []))}>
          Remove the forced tokens
        </button>
      )}
    </Form>
  );
}

function ClassifierView({ manifest }: { manifest: Manifest }) {
  const { params } = useValue(route);
  const prediction = manifest.predictions[0];
  if (!prediction) return <p>This trace has no prediction.</p>;
  const { temperature: fitted, labels } = manifest;
  const temperature = Math.max(0, Number(params["heat"] ?? 1) || 0);
  const heat = (value: number) => setParams({ heat: value === 1 ? null : value });
  const chosen = prediction.top.find((c) => String(c.id) === params["class"]) ?? prediction.top[0]!;
  const logits = [...prediction.top].sort((a, b) => a.id - b.id);
  const p = softmax(logits.map((c) => c.logit), temperature);
  const [first] = logits;
  const binary = logits.length === 2;
  return (
    <>
      <h1>Decode</h1>
      <p>
        {labels?.each[0]!.threshold === null ? "A tag is predicted from the vector of the word’s first token" : "A classifier pools the token vectors into one"}, a linear layer maps that
        to {binary ? "a single logit" : `${logits.length} logits`}, and {binary ? "the logistic function" : "softmax"} gives probabilities.
      </p>
      <div class="columns">
        <ContributionsSection manifest={manifest} prediction={prediction} chosen={chosen} binary={binary} />
        <Section title={`From ${binary ? "logit" : "logits"} to probability`}>
          <SamplingSlider param="temperature" value={Number(temperature.toFixed(3))} onInput={heat} />
          {fitted && <p class="note">Fitted on validation: <button class="quiet" data-role="fitted" onClick={() => heat(fitted)}>{number(fitted)}</button></p>}
          <Bars
            label="Classes" bars={prediction.top.map((c, rank) => ({
              key: c.id, label: c.piece, value: p[c.id]!, text: percent(p[c.id]!), note: `logit ${number(c.logit)}`, strong: c === chosen,
              before: temperature === 1 ? undefined : Math.exp(c.log_prob),
              attributes: {
                ...(rank === 0 && { "data-role": "probability", "data-value": p[c.id]! }),
                ...(!binary && { "aria-pressed": c === chosen, title: "show the contributions to this class’s logit", onClick: () => setParams({ class: c.id }) }),
              },
            }))}
          />
          {binary && <p class="note">Two classes share one logit: the logit of {visible(first!.piece)} is fixed at 0.</p>}
        </Section>
      </div>
      {labels?.each[0]!.threshold != null && (
        <Section title="Each label by itself" data-role="labels">
          <p>Each is a decision of its own, on the same vector; this page looks at {labels.each[labels.shown]!.name}. A label is answered from its threshold on, chosen on validation.</p>
          <Bars
            label="Labels" bars={labels.each.map((label, key) => ({ ...label, key })).sort((a, b) => b.probability - a.probability).slice(0, 20).map(({ name, probability, threshold, key }) => ({
              key, label: name, value: probability, text: percent(probability), note: `threshold ${percent(threshold!)}`, strong: probability >= threshold!,
            }))}
          />
        </Section>
      )}
    </>
  );
}

/** What each token adds to a logit. `binary`: the head has one row, the logit of class 1; that of class 0 is fixed at 0. */
function ContributionsSection({ manifest, prediction, chosen, binary }: { manifest: Manifest; prediction: Prediction; chosen: Candidate; binary: boolean }) {
  const stream = manifest.streams[0]!;
  const pooled = manifest.nodes.find((one) => one.op === "pool");
  const head = manifest.nodes.find((one) => one.op === "linear" && one.inputs[0] === pooled?.id);
  const x = useTensor(pooled?.inputs[0] ?? null, "", manifest);
  const weight = useTensor(head?.params.weight ?? null, "", manifest);
  const bias = useTensor(head?.params.bias ?? null, "", manifest);
  const how = String(pooled?.attrs.how ?? ""), only = pooled?.attrs.token, error = x.error ?? weight.error ?? bias.error;
  const of = binary ? prediction.top.find((c) => c.id === 1)! : chosen, row = binary ? 0 : chosen.id, quantity = `the logit of ${visible(of.piece)}`;
  const why = <>For attributions, see <a href={hrefTo("why")} data-role="to-why">Why</a>.</>;
  let parts: Contributions | null = null;
  if (x.value && weight.value && (bias.value || !head?.params.bias) && x.value.shape[0] === stream.ids.length) {
    const width = weight.value.shape[1]!, w = weight.value.data.slice(row * width, (row + 1) * width);
    parts = contributions(x.value.data, stream.padding.map((pad, i) => (only == null ? !pad : i === only)), how, w, bias.value?.data[row] ?? 0);
  }
  const off = Math.abs((parts?.logit ?? 0) - of.logit), ok = off <= (x.value?.dtype === "f16" ? 2e-3 : 1e-5) * (parts?.size ?? 0); // a saved page rounds to 16-bit floats
  if (manifest.nodes.some((one) => one.id === "pooler")) {
    return <Section title="Pooler before the head"><p class="note">The pooler before the head has an activation, so a logit is no sum over the tokens. {why}</p></Section>;
  }
  return (
    <Section title={`Contribution of each token to ${quantity}`}>
      <p>{only == null ? SENTENCES[how] : "Only the vector of the word’s first token is used."} With the bias, the contributions sum to the logit.</p>
      {!parts ? <p class="note" role={error ? "alert" : undefined}>{error?.message ?? "Loading …"}</p> : (
        <>
          <Tokens stream={stream} weights={parts.tokens} limit={3.5 * Math.max(...parts.tokens.map(Math.abs))} marks={parts.tokens.map((value) => signed(value, 2))} />
          <p data-role="arithmetic">
            {number(parts.logit - parts.bias)} from the tokens {signed(parts.bias)} bias = <b>{number(parts.logit)}</b>, {quantity}
          </p>
          <p class={`check check-${ok ? "ok" : "bad"}`} data-check="decision" data-state={ok ? "ok" : "bad"} data-delta={off}>
            <span class="check-mark" aria-hidden="true">{ok ? "✓" : "✗"}</span>
            {ok ? "Recomputed in your browser" : "The sum differs from the model’s logit"}, Δ {tiny(off)}.
          </p>
        </>
      )}
      <p class="note">Contributions are not attributions: through attention, a vector depends on all tokens. {why}</p>
    </Section>
  );
}

const SENTENCES: Record<string, string> = {
  mean: "Mean pooling: token t contributes w · xₜ / n.",
  max: "Max pooling: each feature counts for the token with the largest value.",
  "mean+max": "Mean and max pooling, concatenated: each maximum counts for the token with the largest value.",
  first: "First-token pooling: only the vector of the first token is used.",
};

/** A candidate of a search, with all of its tokens. */
interface Hypothesis {
  /** "step.index", with the index in `steps[step]`. */
  key: string;
  candidate: BeamCandidate;
  path: BeamCandidate[];
  outcome: "kept" | "finished" | "pruned";
  /** Whether the best hypothesis goes through it. */
  chosen: boolean;
}

/** The candidates of each step. */
export function hypothesesOf({ steps, hypotheses }: DecodeLog): Hypothesis[][] {
  let live: BeamCandidate[][] = [];
  const all = steps.map((candidates, step) => {
    const next: BeamCandidate[][] = [];
    const found = candidates.map((candidate, index): Hypothesis => {
      const path = [...live[candidate.parent] ?? [], candidate];
      if (candidate.row !== null) next[candidate.row] = path;
      return { key: `${step}.${index}`, candidate, path, outcome: candidate.finished ? "finished" : candidate.row === null ? "pruned" : "kept", chosen: false };
    });
    live = next;
    return found;
  });
  const best = all.flat().find(({ key }) => key === hypotheses[0]?.end?.join("."))?.path ?? [];
  return all.map((found) => found.map((one) => ({ ...one, chosen: best.includes(one.candidate) })));
}

/** What a step of the search compares, and the finished hypotheses. */
function BeamSection({ manifest, step, onForce }: { manifest: Manifest; step: number; onForce: (prefix: number[]) => void }) {
  const { settings: { beam_size: width, length_penalty: penalty } } = manifest.decode;
  const all = hypothesesOf(manifest.decode);
  const ended = all.flat().filter(({ outcome }) => outcome === "finished").sort((a, b) => b.candidate.score - a.candidate.score).slice(0, 8);
  const table = (label: string, shown: Hypothesis[]) => (
    <Table
      label={label} columns={["Hypothesis", "Token", "p", "log p", "Sum", <>Sum / length<sup>{penalty}</sup></>, "Outcome", ""]}
      rows={shown.map(({ key, candidate, path, outcome, chosen }) => ({
        cells: [
          <bdi>{asText(path.slice(0, -1).map(({ piece }) => piece)) || "(empty)"}</bdi>, <bdi>{visible(candidate.piece)}</bdi>, percent(Math.exp(candidate.log_prob)),
          ...[candidate.log_prob, candidate.total, candidate.score].map((one) => number(one, 4)), outcome,
          outcome !== "finished" && source.live && <button type="button" class="link" data-role="force-path" onClick={() => onForce(path.map(({ id }) => id))}>Continue from here</button>,
        ],
        attributes: { "data-beam": key, "data-outcome": outcome, class: chosen ? "term-mark" : undefined },
      }))}
    />
  );
  return (
    <Section title={width === 1 ? "Greedy search" : "Beam search"}>
      <p>
        {width === 1
          ? "Each step takes the most probable token and drops the others."
          : `Each step extends ${width} hypotheses by every token. The ${width} best unfinished ones are kept, finished ones stored, the others pruned.`}
        {" "}Bold: the best hypothesis.
      </p>
      <h3>Step {step + 1}</h3>
      {table("Candidates", all[step]!)}
      {ended.length > 0 && <><h3>Finished hypotheses</h3>{table("Finished hypotheses", ended)}</>}
    </Section>
  );
}

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
  const sampling = masked ? NEUTRAL : samplingOf(manifest, params["sampling"]);
  const neutral = isNeutral(sampling);
  const position = prediction?.position ?? 0;
  const { filtered, loading } = useFiltered(manifest, index, sampling);

  const ask = (request: TraceRequest, next: number | null) => {
    trace(request);
    setParams({ position: next, sampling: null });
  };
  const force = (prefix: number[], next: number) => ask(requestWithPrefix(manifest, prefix), next);
  useScreenKeys((event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || (event.target instanceof Element && event.target.closest("input, .beam-box, nav"))) return false;
    choosePrediction(manifest, Math.max(0, Math.min(predictions.length - 1, index + by)));
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
      <section aria-label="Steps">
        <OutputTokens manifest={manifest} index={index} label="Output" />
        <p class="note">Step {index + 1} of {predictions.length}. Colour: probability of each token.</p>
      </section>
      <div class="columns">
        <section aria-labelledby="after-title">
          <NextTokenText manifest={manifest} index={index} />
          <NextTokens {...{ manifest, prediction, filtered, neutral, locked }} onForce={(id) => force(forcedPrefix(manifest, position, id), position + 1)} />
          <p class="note">
            {!neutral && "Thin lines and first numbers: the model’s probabilities. Bars and second numbers: those for sampling. "}
            {loading ? "Loading all logits of this step. "
              : !filtered.exact && "This page holds the 50 largest logits; the others are assumed equally probable. "}
            {locked ?? "Select a bar to force that token."}
          </p>
        </section>
        {!masked && <Section title="Sampling">
          <div class="sampling-sliders" role="group" aria-label="Temperature and filters">
            {KNOBS.map((param) => <SamplingSlider key={param} param={param} value={sampling[param]} onInput={(value) => setParams({ sampling: samplingText({ ...sampling, [param]: value }) })} />)}
          </div>
          <p>
            {`${filtered.exact ? "" : "About "}${count(filtered.nKept)} token${filtered.nKept === 1 ? "" : "s"} can be sampled.`}
            {params["sampling"] && <> <button type="button" class="link" onClick={() => setParams({ sampling: null })}>Reset</button></>}
          </p>
          {source.live && <DecodeForm key={manifest.id} manifest={manifest} sampling={sampling} onTrace={(request) => ask(request, null)} />}
        </Section>}
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
  const { actual, position, rank, top } = manifest.predictions[index]!;
  const { pieces } = outputStream(manifest), at = position ?? 0, masked = isMasked(manifest), vocabulary = count(manifest.model.vocab_size);
  const shown = actual ?? (masked && manifest.decode.masked!.includes(at) ? top[0]! : null), p = shown && Math.exp(shown.log_prob);
  const how = masked ? "The model reads this token, so it need not predict it." : isGiven(manifest, at) ? "It was given." : "It was generated.";
  return (
    <>
      <h2 id="after-title">
        {masked ? <>Token {at}: <bdi>{visible(pieces[at])}</bdi></> : <>After <i><bdi>{at > 5 && "… "}{pieces.slice(Math.max(0, at - 5), at + 1).map(visible).join(" ")}</bdi></i></>}
      </h2>
      <p aria-live="polite" data-role="probability" data-value={p ?? undefined}>
        {shown && p !== null ? <><b><bdi>{visible(shown.piece)}</bdi></b>: {percent(p)}{actual && `, rank ${count(rank! + 1)} of ${vocabulary}. ${how}`}</>
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
  const { suppressed } = manifest.decode;
  const filtered = loaded.value
    ? filterAll(Array.from(loaded.value.data), sampling, suppressed, BARS)
    : filterTop(prediction.top, prediction.logsumexp, size, sampling, suppressed, BARS);
  return { filtered, loading: wanted && !loaded.value && !loaded.error };
}

interface NextProps {
  manifest: Manifest;
  prediction: Prediction;
  filtered: Filtered;
  /** The sampling parameters change nothing. */
  neutral: boolean;
  /** Why no token can be forced here, or null. */
  locked: string | null;
  onForce: (id: number) => void;
}

/**
 * Bars of the most probable next tokens: the probabilities of the model, and those for sampling after temperature and
 * filters. Each is a button that forces its token.
 */
function NextTokens({ manifest, prediction: { actual, top }, filtered: { bars, rest }, neutral, locked, onForce }: NextProps) {
  const output = actual ?? (isMasked(manifest) ? top[0] : null);
  const bar = (key: number | string, name: string, before: number, after: number, dropped: string | null): Bar => ({
    key, label: name, value: neutral ? before : after, text: percent(before), faded: !neutral && dropped !== null,
    ...(!neutral && { before, note: dropped ?? percent(after) }),
  });
  const shown = bars.map(({ id, before, after, dropped }): Bar => {
    const piece = top.find((one) => one.id === id)?.piece ?? `#${id}`;
    const isOutput = id === output?.id;
    const free = locked === null && !isOutput && id !== manifest.model.special_ids.eos && dropped !== "suppressed";
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

function ChangedPredictions({ manifest }: { manifest: Manifest }) {
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
      {!decided && <OutputTokens manifest={manifest} index={index} label="Output" />}
      <h2>{decided ? "Classes" : <>{isMasked(manifest) ? "At" : "After"} <i><bdi>{visible(outputStream(manifest).pieces[position])}</bdi></i></>}</h2>
      <Bars
        label="Changes of the probabilities" signs limit={Math.abs(largest[0]?.change ?? 0) || 1}
        bars={largest.map(({ id, piece, change, before: was, after }) => ({
          key: id, label: piece, value: change, text: points(change), note: `${percent(was)} → ${percent(after)}`,
        }))}
      />
      {!decided && all.length < manifest.model.vocab_size && (
        <p class="note">The largest changes of the {all.length} tokens of {count(manifest.model.vocab_size)} that are among the 50 most probable both before and after.</p>
      )}
      <p class="note">{!decided && !isMasked(manifest) && "The tokens, and how they were decoded, are those without your edits. "}For the probabilities themselves, show before or after.</p>
    </>
  );
}
