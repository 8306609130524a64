/**
 * The Decode screen: for a classifier its single prediction; for other models the distribution of each step, the
 * search, and forced tokens.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
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
import { Form, Section } from "../views/Parts";
import { NoAnswer } from "../views/Text";
import { Table } from "../views/Table";
import { useArrowKeys } from "../views/interaction";

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
  const how = (name: string, samples: boolean) => (
    <label><input type="radio" name="how" checked={sample === samples} onChange={() => change({ sample: samples })} /> {name}</label>
  );
  const field = (name: string, key: "beam_size" | "length_penalty" | "decode_seed", min: number, max: number, step = 1) => (
    <label>{name} <input type="number" required min={min} max={max} step={step} value={chosen[key]} onInput={(event) => change({ [key]: Number(event.currentTarget.value) })} /></label>
  );
  return (
    <Form class="row" send={write}>
      {searches && <span class="row" role="group" aria-label="Decoding method">{how("Beam search", false)}{how("Sampling", true)}</span>}
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
          <div class="written">
            <Tokens stream={stream} weights={parts.tokens} limit={3.5 * Math.max(...parts.tokens.map(Math.abs))} marks={parts.tokens.map((value) => signed(value, 2))} />
          </div>
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

/** The outcomes of a candidate. */
const OUTCOMES = { kept: "kept", finished: "finished", pruned: "pruned" };
type Outcome = keyof typeof OUTCOMES;

interface BeamNode {
  step: number;
  /** "step.index", with the index in `steps[step]`. */
  key: string;
  candidate: BeamCandidate;
  parent: BeamNode | null; // null: the start
  outcome: Outcome;
  /** Part of the best hypothesis. */
  chosen: boolean;
  x: number;
  y: number;
  width: number;
}

interface BeamLayout {
  columns: BeamNode[][];
  /** Left edge of each step's column. */
  edges: number[];
  width: number;
  height: number;
}

const TOP = 30;
/** Width between two columns. */
const GAP = 46;
const LEFT = 92;
const ROW_HEIGHT = 26;
/** Of the letters of a fixed width that the tree is written in. */
const CHARACTER_WIDTH = 8.5;
const MARGIN = 12;

/** Longer tokens are truncated in the tree. */
const MAX_TOKEN_CHARS = 14;

export function outcomeOf(candidate: BeamCandidate): Outcome {
  return candidate.finished ? "finished" : candidate.row === null ? "pruned" : "kept";
}

/** A token, truncated for the tree. */
function cut(piece: string): string {
  const letters = [...visible(piece)];
  return letters.length <= MAX_TOKEN_CHARS ? letters.join("") : `${letters.slice(0, MAX_TOKEN_CHARS - 1).join("")}…`;
}

/** The layout of all candidates, with or without pruned ones. */
export function layoutBeam(log: DecodeLog, showPruned: boolean): BeamLayout {
  const edges: number[] = [];
  let live: (BeamNode | null)[] = [null]; // by row; null is the start
  let x = LEFT;
  const columns = log.steps.map((candidates, step) => {
    const next: (BeamNode | null)[] = [];
    const column: BeamNode[] = [];
    candidates.forEach((candidate, index) => {
      const outcome = outcomeOf(candidate);
      if (outcome === "pruned" && !showPruned) return;
      const node: BeamNode = {
        step, key: `${step}.${index}`, candidate, outcome, chosen: false, parent: live[candidate.parent] ?? null, x,
        y: TOP + column.length * ROW_HEIGHT,
        width: [...cut(candidate.piece)].length * CHARACTER_WIDTH,
      };
      column.push(node);
      if (candidate.row !== null) next[candidate.row] = node;
    });
    edges.push(x);
    x += Math.max(CHARACTER_WIDTH, ...column.map((node) => node.width)) + MARGIN + GAP;
    live = next;
    return column;
  });
  const end = log.hypotheses[0]?.end?.join(".");
  const last = columns.flat().find((node) => node.key === end);
  if (last) for (const node of pathTo(last)) node.chosen = true;
  const maxRows = Math.max(1, ...columns.map((column) => column.length));
  return { columns, edges, width: x - GAP + MARGIN, height: TOP + maxRows * ROW_HEIGHT + MARGIN };
}

/** The hypothesis of a candidate, from the first step. */
export function pathTo(node: BeamNode): BeamNode[] {
  return [...(node.parent ? pathTo(node.parent) : []), node];
}

/** The target of a key: left to the parent, right to the best extension, up and down in the column. */
export function neighbour({ columns }: BeamLayout, node: BeamNode, key: string): BeamNode | null | undefined {
  const column = columns[node.step]!, at = column.indexOf(node);
  const targets: Record<string, BeamNode | null | undefined> = {
    ArrowLeft: node.parent, ArrowRight: columns[node.step + 1]?.find((next) => next.parent === node), ArrowUp: column[at - 1], ArrowDown: column[at + 1],
    Enter: node, " ": node, Home: columns[0]?.[0], End: columns.flat().filter((one) => one.chosen).at(-1),
  };
  return targets[key];
}

function BeamSection({ manifest, step, onForce }: { manifest: Manifest; step: number; onForce: (prefix: number[]) => void }) {
  const { decode: log } = manifest;
  const { beam, pruned } = useValue(route).params;
  const layout = layoutBeam(log, pruned !== "0");
  const all = layoutBeam(log, true).columns.flat();
  const node = all.find(({ key }) => key === beam) ?? all.find((one) => one.step === step && one.chosen);
  const ended = all.filter(({ outcome }) => outcome === "finished").sort((a, b) => b.candidate.score - a.candidate.score).slice(0, 8);
  const { beam_size: width, length_penalty: penalty } = log.settings;
  const select = ({ key }: BeamNode) => setParams({ beam: key });
  return (
    <Section title={width === 1 ? "Greedy search" : "Beam search"}>
      <p>
        {width === 1
          ? "Each step takes the most probable token and drops the others."
          : `Each step extends ${width} hypotheses by every token. The ${width} best unfinished ones are kept, finished ones stored, the others pruned.`}
      </p>
      <p class="row note">
        {Object.entries({ chosen: "best hypothesis", ...OUTCOMES }).map(([outcome, name]) => <span key={outcome}><i class="key-line" data-outcome={outcome} /> {name}</span>)}
        <label>
          <input type="checkbox" data-role="show-pruned" checked={pruned !== "0"} onChange={(e) => setParams({ pruned: e.currentTarget.checked ? null : "0" })} /> show
          pruned
        </label>
      </p>
      <BeamTree layout={layout} step={step} selected={beam} onSelect={select} />
      <div class="columns">
        {ended.length > 0 && <FinishedTable nodes={ended} penalty={penalty} onSelect={select} />}
        {node && <ScoreTable node={node} penalty={penalty} onForce={onForce} />}
      </div>
    </Section>
  );
}

function ScoreTable({ node, penalty, onForce }: { node: BeamNode; penalty: number; onForce: (prefix: number[]) => void }) {
  const path = pathTo(node);
  const { log_prob, total, score, piece } = node.candidate;
  const rows: [ComponentChildren, number][] = [
    ["sum before this token", node.parent?.candidate.total ?? 0],
    [<>log p({visible(piece)}), p = {percent(Math.exp(log_prob))}</>, log_prob],
    ["sum of log-probabilities", total],
    [<>score: sum / {path.length}<sup>{penalty}</sup></>, score],
  ];
  return (
    <div aria-live="polite">
      <h3><i>{asText(path.map((one) => one.candidate.piece)) || "(empty)"}</i></h3>
      <Table label="Score" columns={["", ""]} rows={rows.map(([name, value]) => ({ cells: [name, number(value, 4)] }))} />
      <p>
        This hypothesis is {OUTCOMES[node.outcome]}.{" "}
        {node.outcome !== "finished" && source.live && (
          <button type="button" class="link" data-role="force-path" onClick={() => onForce(path.map((one) => one.candidate.id))}>
            Continue from here
          </button>
        )}
      </p>
    </div>
  );
}

function FinishedTable({ nodes, penalty, onSelect }: { nodes: BeamNode[]; penalty: number; onSelect: (node: BeamNode) => void }) {
  return (
    <div>
      <h3>Finished hypotheses, by sum / length{penalty === 1 ? "" : <sup>{penalty}</sup>}</h3>
      <Table
        label="Finished hypotheses" columns={["Text", "Length", "Sum", "Score"]}
        rows={nodes.map((node) => {
          const path = pathTo(node), text = asText(path.slice(0, -1).map((one) => one.candidate.piece)) || "(empty)";
          return {
            cells: [<button type="button" class="link" onClick={() => onSelect(node)}>{text}</button>, path.length, number(node.candidate.total, 4), number(node.candidate.score, 4)],
            attributes: { class: node.chosen ? "term-mark" : "" },
          };
        })}
      />
    </div>
  );
}

const BEAM_KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "Enter", " "];

/** The column of the step is highlighted. */
function BeamTree({ layout, step, selected, onSelect }: { layout: BeamLayout; step: number; selected: string | undefined; onSelect: (node: BeamNode) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const { columns, edges, width, height } = layout;
  const nodes = columns.flat();
  const at = nodes.find((node) => node.key === selected);
  const lit = new Set(at ? pathTo(at) : []);
  const entry = at ?? columns[step]?.find((node) => node.chosen) ?? nodes[0];
  const left = edges[step] ?? 0;

  useEffect(() => {
    const element = box.current;
    if (!element || (left > element.scrollLeft + 60 && left < element.scrollLeft + element.clientWidth - 160)) return;
    element.scrollLeft = left - element.clientWidth / 3;
  }, [left]);

  const { group } = useArrowKeys(Object.fromEntries(BEAM_KEYS.map((key) => [key, key])), (key) => {
    const next = entry && neighbour(layout, entry, key);
    if (next) onSelect(next);
  });
  return (
    <div class="beam-box" ref={box}>
      <svg class="beam" width={width} height={height} role="group" aria-label="Beam search tree" {...(group as object)}>
        <rect class="beam-column" x={left - 8} y={TOP - 10} width={18 + Math.max(12, ...(columns[step] ?? []).map((node) => node.width))} height={height} />
        {edges.map((x, t) => <text key={t} class="beam-step" data-now={t === step} x={x} y={14}>{t + 1}</text>)}
        <text class="beam-step" x={4} y={TOP + 5}>start</text>
        {inDrawingOrder(nodes, lit).map((node) => (
          <path key={node.key} class="beam-line" data-outcome={node.outcome} data-chosen={node.chosen} data-lit={lit.has(node)} d={line(node)} />
        ))}
        {nodes.map((node) => (
          <g
            key={node.key} class="beam-node" data-beam={node.key} data-outcome={node.outcome} data-chosen={node.chosen} role="button"
            aria-pressed={node === at} tabindex={node === entry ? 0 : -1} aria-label={description(node)}
            onClick={() => onSelect(node)}
          >
            <title>{description(node)}</title>
            <rect x={node.x - 6} y={node.y - 11} width={node.width + 12} height={22} rx={3} />
            <text x={node.x} y={node.y + 4.5}>{cut(node.candidate.piece)}</text>
            {node.outcome === "finished" && <path class="beam-end" d={`M${node.x + node.width + 10} ${node.y - 8}v16`} />}
          </g>
        ))}
      </svg>
    </div>
  );
}

/** The path from the parent to this candidate. */
function line({ parent, x, y }: BeamNode): string {
  const x0 = parent ? parent.x + parent.width + 6 : 40;
  const y0 = parent?.y ?? TOP;
  const x1 = x - 6;
  const bend = Math.max(x1 - GAP, x0);
  return `M${x0} ${y0}H${bend}C${(bend + x1) / 2} ${y0} ${(bend + x1) / 2} ${y} ${x1} ${y}`;
}

/** Pruned first, the best hypothesis and the selection last. */
function inDrawingOrder(nodes: BeamNode[], lit: Set<BeamNode>): BeamNode[] {
  const weight = (node: BeamNode): number => (lit.has(node) ? 3 : node.chosen ? 2 : node.outcome === "pruned" ? 0 : 1);
  return [...nodes].sort((a, b) => weight(a) - weight(b));
}

function description({ candidate, step, outcome, chosen }: BeamNode): string {
  return `step ${step + 1}, ${visible(candidate.piece)}, ${percent(Math.exp(candidate.log_prob))}, `
    + `sum of log-probabilities ${number(candidate.total)}, ${OUTCOMES[outcome]}${chosen ? ", part of the best hypothesis" : ""}`;
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
function NextTokens({ filtered, pieces, actual, neutral, locked, eos, onForce }: NextProps) {
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
