/**
 * The Why screen: the attribution of a prediction to the input words, its faithfulness compared with random rankings,
 * and words that can be masked.
 */
import type { ComponentChildren } from "preact";
import { editable, edited, edits, other, route, setParams, source, toggleEdit } from "../state/page";
import { type Resource, useResource } from "../state/resource";
import { useValue } from "../state/signals";
import { capital, nodeLocation, number, percent, signed, tiny, visible } from "../tensors/format";
import { describeEdit } from "../trace/edits";
import { isClassifier, isEmbedder, isMasked, isNumber, predictionIndex, targetIndex } from "../trace/generation";
import { title } from "../trace/steps";
import { colours, erasedPositions, gapBetween, keyOf, nameOf, scaleOf, strongest, type Word, wordsOf } from "../trace/words";
import type {
  AttributeRequest, Attribution, Candidate, Erased, Faithfulness as Score, Manifest, Prediction, Sweep as Swept, SweepRequest, SweepRow,
} from "../types";
import { Bars, Track } from "../views/Bars";
import { Choices, OutputTokens } from "../views/Choices";
import { Matrix } from "../views/Matrix";
import { Section, Select } from "../views/Parts";
import { Table } from "../views/Table";
import { Terms } from "../views/Terms";
import { ErrorText, NoAnswer, OtherText } from "../views/Text";

/** A row of a table: what was edited, which can be tried, cells, and the number that its bar shows. */
interface Row {
  words: string;
  edits?: readonly string[];
  cells: ComponentChildren[];
  bar?: number;
  /** Of a block, not of a head. */
  whole?: boolean;
  attributes?: Record<`data-${string}`, string | number>;
}

interface Sweep {
  name: string;
  columns: ComponentChildren[];
  rows: Row[];
}

type Kind = SweepRequest["kind"];

interface Shown {
  says: ComponentChildren;
  tables: Sweep[];
}

/** The rows of long lists that are shown, of parts of a sum and of edits. */
const [MOST, STRONGEST] = [24, 15];

const changeOf = ({ value_before, value_after }: SweepRow) => value_after - value_before;

const answerOf = ({ before, after, n_changed }: SweepRow, numeric: boolean) =>
  (numeric || n_changed > 0) && <>{!numeric && <><bdi>{visible(before)}</bdi> → </>}<b><bdi>{visible(after)}</bdi></b></>;

const SWEEPS: { [kind in Exclude<Kind, "states">]: (value: Swept, trace: Manifest, numeric: boolean) => Shown } = {
  parts: ({ rows }, trace, numeric) => {
    const instead = numeric ? "Number" : "Predicts instead";
    return {
      says: <>
        Each head and each feed-forward block is switched off in turn. The number is the change of {numeric ? "the answer" : "the log-probability of what the model predicts"}. Heads can stand in for each
        other, so all heads of a block together, and each head with the others off, are measured too.
      </>,
      tables: [{
        name: "Heads and blocks", columns: ["Part", "Off", instead, "Others off", instead],
        rows: rows.map((row) => ({
          words: /self$|cross$/.test(row.name) ? "all of these heads" : partName(row, trace), edits: row.edits, whole: !/head\d+$/.test(row.name), bar: changeOf(row),
          cells: [signed(changeOf(row)), answerOf(row, numeric), row.alone && signed(changeOf(row.alone)), row.alone && answerOf(row.alone, numeric)],
          attributes: { "data-part": row.edits.join(" "), "data-change": changeOf(row) },
        })),
      }],
    };
  },
  keys: ({ rows }, trace, numeric) => {
    const strength = (row: SweepRow) => (numeric ? -Math.abs(changeOf(row)) : changeOf(row));
    return {
      says: `Each head is kept from attending to each token, ${rows.length} edits in all; these ${numeric ? "change the number" : "lower the log-probability of what the model predicts"} most.`,
      tables: [{
        name: "Attention to tokens", columns: ["Edit", "Change", numeric ? "Number" : "Predicts instead"],
        rows: [...rows].sort((a, b) => strength(a) - strength(b)).slice(0, STRONGEST).map((row) => ({
          words: describeEdit(row.edits[0]!, trace), edits: row.edits, cells: [signed(changeOf(row)), answerOf(row, numeric)], bar: changeOf(row),
          attributes: { "data-part": row.edits.join(" "), "data-change": changeOf(row) },
        })),
      }],
    };
  },
  layers: ({ rows }, trace, numeric) => {
    const at = (position: number | null) => (position === null ? (numeric ? "number" : "prediction") : <>{isMasked(trace) ? "at" : "after"} <bdi>{visible(trace.streams.at(-1)!.pieces[position])}</bdi></>);
    return {
      says: <>
        What the model would predict if only the first layers acted: the later ones are skipped, and the output reads the state as it
        is. Early rows are biased, since those states were not made for this reader.{!numeric && " Bold: the prediction of the whole model."}
      </>,
      tables: stacksOf(rows).map(([stack, ofStack]) => ({
        name: `Layers of the ${stack}`, columns: ["Layers", ...(numeric ? [null] : rows[0]!.effects.map(({ position }) => position)).map(at)],
        rows: ofStack.map(({ after, effects }, layer) => ({
          words: layer ? String(layer) : "none", attributes: { "data-layer": `${stack}/${layer}` },
          cells: numeric ? [<bdi>{after}</bdi>] : effects.map((one, i) => {
            const Name = one.rank_after === 0 ? "b" : "span";
            return <Name key={i} title={`log-probability of the answer ${number(one.log_prob_after)}, rank ${one.rank_after + 1}`}><bdi>{visible(one.after)}</bdi></Name>;
          }),
        })),
      })),
    };
  },
  contributions: ({ rows, target, contrast, value, position, error }, trace, numeric) => {
    const digits = numeric ? 3 : 2;
    const ordered = [...rows].sort((a, b) => Math.abs(b.direct!) - Math.abs(a.direct!)), rest = ordered.slice(MOST);
    const others = { ...rest[0]!, name: `${rest.length} others`, direct: rest.reduce((sum, part) => sum + part.direct!, 0), edits: [] };
    return {
      says: <>
        The residual stream is a sum, so {numeric ? "the number" : "a logit"} is one too: each head, block and bias adds a part (direct), with the norms as they
        were in this pass. Switching a part off also changes what later parts compute (total); with opposite signs, later parts make up for it.{" "}
        <span data-role="contributions" data-value={value}>
          {numeric ? `${capital(target)} minus ${contrast}` : <>Logit of <b><bdi>{visible(target)}</bdi></b> minus that of <b><bdi>{visible(contrast)}</bdi></b></>}
          {position === null ? "" : `, after position ${position}`}: <b>{signed(value, digits)}</b>.
          The parts sum to it within {tiny(Math.abs(error!))}.
        </span>
      </>,
      tables: [{
        name: "Contributions", columns: ["Part", "Direct", "Total"],
        rows: [...ordered.slice(0, MOST), ...(rest.length ? [others] : [])].map((part) => ({
          words: partName(part, trace), edits: part.edits, bar: part.direct!,
          cells: [signed(part.direct!, digits), part.edits.length > 0 && signed(-changeOf(part), digits)], attributes: { "data-part": part.name, "data-direct": part.direct! },
        })),
      }],
    };
  },
  checkpoints: ({ rows }, _, numeric) => ({
    says: `At every saved point of training, what it predicts${numeric ? "" : " after each token that the trained model wrote, and the log-probability of those tokens"}.`,
    tables: [{
      name: "Training", columns: ["Step", "Without the edits", ...(numeric ? [] : ["log p"]), "With them", ...(numeric ? [] : ["log p"])],
      rows: rows.map(({ name, before, after, value_before, value_after }) => ({
        words: name === "model" ? "best" : String(Number(name.replace("step-", ""))),
        cells: [
          <bdi>{before}</bdi>, ...(numeric ? [] : [number(value_before)]),
          after === before ? "the same" : <b dir="auto">{after}</b>, ...(numeric ? [] : [number(value_after)]),
        ],
      })),
    }],
  }),
};

/** The rows of each stack, whose first is its embedding. */
function stacksOf(rows: readonly SweepRow[]): [string, SweepRow[]][] {
  const starts = [...rows.keys()].filter((i) => !/\d/.test(rows[i]!.name));
  return starts.map((start, i) => {
    const ofStack = rows.slice(start, starts[i + 1]);
    return [ofStack.at(-1)!.name.split(".")[0]!, ofStack];
  });
}

/** "Decoder layer 0, self-attention, head 2", "Decoder layer 0, self-attention, output projection: bias". */
function partName({ name }: SweepRow, { nodes }: Manifest): string {
  const [, block, head] = /^((?:encoder|decoder)\.\d+\.(?:self|cross|ff))(?:\.head(\d+))?$/.exec(name) ?? [];
  const of = block && nodes.find(({ id }) => id.startsWith(`${block}.`));
  if (of) return `${nodeLocation(of)}${head === undefined ? "" : `, head ${head}`}`;
  const id = name.replace(/^edit of /, "");
  const node = nodes.find((one) => one.id === id || Object.values(one.params).includes(id));
  if (!node) return name;
  const words = node.id === "logits" ? nodeLocation(node) : `${nodeLocation(node)}, ${title(node).toLowerCase()}`;
  return id !== name ? `Edit: ${words}` : node.id === id ? words : `${words}: ${id.split(".").at(-1)}`;
}

/** One sweep of a trace: of the position in the address, with the second text, or of the trace with edits. */
function SweepView({ trace, kind }: { trace: Manifest; kind: Kind }) {
  const [second, after, made, { position }] = [useValue(other), useValue(edited), useValue(edits).length > 0, useValue(route).params];
  const numeric = isNumber(trace), index = isClassifier(trace) ? 0 : predictionIndex(trace, position);
  const of = kind === "checkpoints" ? after?.id : trace.id;
  const request: SweepRequest | null = !of || (kind === "states" && !second) ? null
    : { trace: of, kind, ...(kind === "states" && { other: second!.id }), ...(kind === "contributions" && { prediction: index }) };
  const { value, error, stale } = useResource(request && JSON.stringify(request), () => source.ask("sweep", request!), { within: `${kind}/${of}` });
  if (kind === "checkpoints" && !made) return <p class="note">Make an edit first: its effect is then measured at every saved point of training.</p>;
  const shown = value && kind !== "states" ? SWEEPS[kind](value, trace, numeric) : null;
  return (
    <>
      {kind === "contributions" && !isClassifier(trace) && !isMasked(trace) && !numeric && (
        <OutputTokens manifest={trace} index={index} label="Output token" />
      )}
      {kind === "states" && <SecondText key={second?.request.text} given={second?.request.text} numeric={numeric} />}
      {request && !value && (error ? <ErrorText error={error} /> : <p class="note" aria-live="polite">Computing …</p>)}
      {kind === "states" && value && <StatesMaps sweep={value} trace={trace} numeric={numeric} />}
      {shown && <div data-stale={stale} aria-busy={stale}>
        <p><Terms>{shown.says}</Terms></p>
        {shown.tables.map((table) => <SweepTable key={table.name} table={table} titled={shown.tables.length > 1} />)}
      </div>}
    </>
  );
}

function SweepTable({ table: { name, columns, rows }, titled }: { table: Sweep; titled: boolean }) {
  const made = useValue(edits), limit = Math.max(1e-12, ...rows.map(({ bar = 0 }) => Math.abs(bar)));
  const bars = rows.some(({ bar }) => bar !== undefined);
  const named = ({ words, edits: wanted }: Row) => (wanted?.[0]
    ? <button type="button" class="quiet sweep-part" aria-pressed={wanted.every((edit) => made.includes(edit))} onClick={() => toggleEdit(wanted[0]!)}>{words}</button>
    : <span class="sweep-part">{words}</span>);
  return (
    <section>
      {titled && <h2>{name}</h2>}
      <Table
        label={name} columns={bars ? [...columns, <span class="visually-hidden">{columns[1]}, as a bar</span>] : columns}
        rows={rows.map((row) => ({
          cells: [named(row), ...row.cells, ...(row.bar === undefined ? [] : [<Track share={row.bar / limit} signs />])], attributes: { class: row.whole ? "sweep-block" : undefined, ...row.attributes },
        }))}
      />
    </section>
  );
}

const SecondText = ({ given, numeric }: { given: string | undefined; numeric: boolean }) => (
  <>
    <p><Terms>
      The state of one token after one layer is taken from a second text. Noising: the share of{" "}
      {numeric ? "the difference of both numbers that is lost" : "this text’s answer that is lost"}.
      Denoising: the share that comes back when only that state of this text is put into the second. 1 is all of it.
    </Terms></p>
    <OtherText label="Second text" given={given} />
  </>
);

/** The residual stream of two texts exchanged, state by state; tokens without a partner in the second text are masked. */
function StatesMaps({ sweep: { rows, target, contrast, position, value }, trace, numeric }: { sweep: Swept; trace: Manifest; numeric: boolean }) {
  const second = rows[0]!.back!.value_before;
  const shares = { noising: (row: SweepRow) => -changeOf(row), denoising: (row: SweepRow) => changeOf(row.back!) };
  const stateName = (state: string) => (/\d+/.test(state) ? `layer ${/\d+/.exec(state)![0]}` : "embedding");
  return (
    <>
      <p data-role="states">
        <b><bdi>{visible(target)}</bdi></b> here, <b><bdi>{visible(contrast)}</bdi></b> in the second text
        {position === null ? "" : `, ${isMasked(trace) ? "at" : "after"} position ${position}`}
        {numeric ? "" : `: logit difference ${signed(value, 2)} and ${signed(second, 2)}`}.
      </p>
      {trace.streams.map(({ name: stream, pieces }, i) => {
        const own = rows.filter(({ name }) => trace.streams.length === 1 || /^(encoder|source)/.test(name) === (i === 0));
        const states = [...new Set(own.map(({ name }) => name))], shape = [states.length, pieces.length];
        return states.length > 0 && (
          <div key={stream} class="columns">
            {(["noising", "denoising"] as const).map((name) => {
              const data = new Float32Array(states.length * pieces.length).fill(NaN);
              for (const row of own) data[states.indexOf(row.name) * pieces.length + row.position!] = shares[name](row) / (value - second);
              return (
                <section key={name}>
                  <h3>{capital(name)}: {stream}</h3>
                  <Matrix
                    node={`${name}/${stream}`} value={{ shape, dtype: "f32", data }} mask={{ shape, dtype: "u8", data: Uint8Array.from(data, (share) => Number(!Number.isNaN(share))) }}
                    scale="signed" limit={1} label={`${capital(name)}, ${stream}`} numbers="toggle" rowLabels={states.map(stateName)} colLabels={pieces}
                  />
                </section>
              );
            })}
          </div>
        );
      })}
    </>
  );
}

const VIEWS = [["words", "Words"], ["parts", "Heads and blocks"], ["keys", "Attention to tokens"], ["layers", "Layers"], ["contributions", "Contributions"], ["states", "Second text"], ["checkpoints", "Training"]] as const;
type View = (typeof VIEWS)[number][0];

/** Words, or parts of the model, that the prediction depends on: the words alone where no edits can be made. */
export function WhyScreen({ trace }: { trace: Manifest }) {
  const { params } = useValue(route);
  const views = useValue(editable) ? VIEWS.filter(([name]) => !(name in trace.refused) && (name !== "checkpoints" || source.hasTraining)) : [];
  const view = views.find(([name]) => name === params.why)?.[0] ?? "words";
  if (isEmbedder(trace) && !isNumber(trace)) return <NoAnswer title="Why" what="explain" trace={trace} />;
  return (
    <>
      {views.length > 0 && (
        <div class="row">
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
  const attribution = useResource(prediction ? JSON.stringify(request) : null, () => source.ask("attribute", request), { within: manifest.id });
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
  const after = useResource(wants && prediction ? JSON.stringify(without) : null, () => source.ask("erase", without), { within: manifest.id });
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
                <p class="word-text" role="group" aria-label={name}>
                  {words.map((word, i) => [gapBetween([...stream.text], words[i - 1], word), <WordButton key={keyOf(word)} {...{ word, scale, onToggle }} maskedBy={erased.has(keyOf(word)) ? found?.erased_with ?? "[UNK]" : null} />])}
                </p>
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
          <Section title="Strongest words">
            <Bars
              label="Strongest words" signs limit={scale} bars={strongest(all, 12).map((word) => ({
                key: keyOf(word), label: nameOf(word, all), value: word.score, text: signed(word.score), struck: erased.has(keyOf(word)),
                attributes: { "aria-pressed": erased.has(keyOf(word)), onClick: () => onToggle(word)},
              }))}
            />
          </Section>
        </div>
      )}
    </>
  );
}

/** In place of a prediction, which a number is not. */
const OUTPUT: Prediction = { position: null, logsumexp: 0, top: [], actual: null, rank: null };

const requestOf = (manifest: Manifest, index: number, { method, class: target, foil }: Record<string, string>): AttributeRequest => ({
  trace: manifest.id, method: method === "integrated_gradients" ? method : "erase",
  ...(isNumber(manifest) ? {} : isClassifier(manifest) ? target !== undefined && { target: Number(target) } : { prediction: index, ...(foil !== undefined && { foil: Number(foil) }) }),
});

function FaithfulnessSection({ found }: { found: Attribution }) {
  const { completeness, erased_with, warnings, comprehensiveness, sufficiency, n_random } = found;
  const values = [comprehensiveness, sufficiency].flatMap(({ value, random_low, random_high }) => [value, random_low, random_high]);
  const low = Math.min(0, ...values);
  const span = Math.max(1e-9, ...values) - low;
  const x = (value: number): number => LEFT + ((value - low) / span) * (RIGHT - LEFT);
  return (
    <Section title="Faithfulness">
      {completeness
        ? <p class={completeness.ok ? "" : "warning"} data-role="completeness" data-value={completeness.relative}>
            <Terms>Completeness</Terms>: the scores should sum to the difference between this text and the fully masked one. The error
            is <b>{percent(completeness.relative)}</b> of the difference,
            with {completeness.n_steps} gradients{completeness.ok ? "." : ": above the limit of 2%. Use leave-one-out instead."} The
            error of a single token’s score is at most {number(completeness.token_error)}, estimated with a second quadrature rule.
          </p>
        : <p>A score is the drop of the quantity when that word alone is replaced by {erased_with}. It is exact for single words, but misses redundant words.</p>}
      <div class="faithfulness">
        <Faith name="Comprehensiveness: top words masked" better="right" score={comprehensiveness} x={x} />
        <Faith name="Sufficiency: only top words kept" better="left" score={sufficiency} x={x} />
        <p class="note">
          The drop of the quantity, averaged over the top 10, 20 and 50% of words. Grey: mean and 95% interval of {n_random} random
          rankings.
        </p>
      </div>
      {warnings.map((warning) => <p key={warning} class="warning">{warning}.</p>)}
    </Section>
  );
}

const METHODS = [
  { id: "erase", name: "Leave-one-out", description: "Each word is masked alone; its score is the drop of the quantity." },
  { id: "integrated_gradients", name: "Integrated gradients", description: "Gradients are averaged along the path from the fully masked text to this text; the scores sum to the difference of the quantity." },
] as const;

function Question({ manifest, index, request }: { manifest: Manifest; index: number; request: AttributeRequest }) {
  const { top, actual } = manifest.predictions[index]!;
  const decided = isClassifier(manifest);
  // Classes to explain, or tokens to contrast with.
  const choices = decided ? top : top.filter((c) => c.id !== actual?.id).slice(0, 20);
  return (
    <>
      {!decided && <OutputTokens manifest={manifest} index={index} label="Output token to explain" />}
      <div class="row">
        <Choices name="method" label="Method" options={METHODS.map(({ id, name }) => [id, name] as const)} chosen={request.method!} onChoose={(id) => setParams({ method: id === "erase" ? null : id })} />
        {!(decided && top.length === 2) && (
          <Select
            label={decided ? "Class" : "Contrast with"} value={(decided ? request.target ?? top[0]!.id : request.foil) ?? ""} attributes={{ "data-role": decided ? "class" : "foil" }}
            onChoose={(value) => setParams(decided ? { class: value } : { foil: value || null })}
            options={[...(decided ? [] : [["", "none"] as const]), ...choices.map((c) => [c.id, `${visible(c.piece)} ${percent(Math.exp(c.log_prob))}`] as const)]}
          />
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

function Probability({ prediction, explained, attribution, erased, nErased }: ProbabilityProps) {
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
      <Track share={now ?? 0}><span class="probability-tick" style={{ left: `${100 * p}%` }} /></Track>
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

/** `maskedBy` is what a masked word is replaced by. */
function WordButton({ word, scale, maskedBy, onToggle }: { word: Word; scale: number; maskedBy: string | null; onToggle: (word: Word) => void }) {
  const gone = maskedBy !== null;

  return (
    <button
      type="button" class="word" data-word={word.index} data-of={word.stream} data-score={word.score}
      {...colours(word.score, scale)} aria-pressed={gone}
      aria-label={`${word.text}, ${signed(word.score)}${gone ? ", masked" : ""}`}
      onClick={() => onToggle(word)}
      onKeyDown={(event) => {
        if (event.key === " ") event.stopPropagation(); // Space toggles this button
      }}
    >
      {maskedBy ?? visible(word.text).replace(/▁/g, " ")}
      <span class="word-score" aria-hidden="true">{signed(word.score)}</span>
    </button>
  );
}

const [LEFT, RIGHT] = [8, 512];

function Faith({ name, better, score, x }: { name: string; better: "left" | "right"; score: Score; x: (v: number) => number }) {
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
