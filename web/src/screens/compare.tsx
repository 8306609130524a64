/**
 * The Compare screen: two texts under one model, or one text under two checkpoints, with answers, tokens,
 * probabilities and one head of both.
 */
import { useEffect } from "preact/hooks";
import { busy, other, otherText, paramsFromRequest, route, runFacts, selection, setParams, source, traceOther } from "../state/page";
import { useResource, useTensor } from "../state/resource";
import { toErrorMessage, useValue } from "../state/signals";
import { checkpointName, number, percent, points, visible } from "../tensors/format";
import { difference, headOf, magnitude, type TensorValue, toGrid, toTensorValue } from "../tensors/tensor";
import { hasSource, isClassifier, isEmbedder, isMasked, outputStream, predictionIndex } from "../trace/generation";
import { type AttentionLayer, labelsOf, rowLabelsOf, type View, viewOf } from "../trace/heads";
import type { Manifest, Prediction, RunInfo, TraceRequest } from "../types";
import { Bars } from "../views/Bars";
import { Choices, HeadPicker, Tokens } from "../views/Choices";
import { Matrix, Thumb, thumbHeight } from "../views/Matrix";
import { Section, Select } from "../views/Parts";
import { OtherText } from "../views/Text";
import { fetchLayer, type LayerValues } from "../views/weights";

interface PairRow {
  id: number;
  piece: string;
  /** Probabilities; null where the token is not listed. */
  a: number | null;
  b: number | null;
}

/** The `max` most probable tokens of either side, by the larger of the two probabilities. */
export function pairRows(a: Prediction | undefined, b: Prediction | undefined, max: number): PairRow[] {
  const rows = new Map<number, PairRow>();
  for (const { id, piece, log_prob } of a?.top ?? []) rows.set(id, { id, piece, a: Math.exp(log_prob), b: null });
  for (const { id, piece, log_prob } of b?.top ?? []) {
    rows.set(id, { id, piece, a: rows.get(id)?.a ?? null, b: Math.exp(log_prob) });
  }
  const size = (row: PairRow) => Math.max(row.a ?? 0, row.b ?? 0);
  return [...rows.values()].sort((x, y) => size(y) - size(x) || x.id - y.id).slice(0, max);
}

/** The smallest listed probability, an upper bound for unlisted tokens. */
export function smallestProbability(prediction: Prediction | undefined): number {
  return Math.exp(prediction?.top.at(-1)?.log_prob ?? -Infinity);
}

/**
 * The prediction of B at the same distance from its first generated token as one of A, since prompts may differ in
 * length. `at` and its range `from` to `to` are indices of A.
 */
export function alignedPositions(a: Manifest, b: Manifest, wanted: number) {
  const shift = predictionIndex(b, undefined) - predictionIndex(a, undefined);
  const from = Math.max(0, -shift);
  const to = Math.min(a.predictions.length, b.predictions.length - shift) - 1;
  const at = Math.max(from, Math.min(wanted, to));
  return { from, to, at, other: at + shift };
}

/**
 * The request for the same tokens under another checkpoint (teacher forcing), so that the rows and columns of both
 * traces are the same tokens.
 */
export function teacherForcedRequest(manifest: Manifest, checkpoint: string): TraceRequest {
  const { target, prefix = [], checkpoint: _, edits: __, other_text: ___, ...kept } = manifest.request;
  const request: TraceRequest = { ...kept, ...(checkpoint !== "model" && { checkpoint }) };
  const { ids, special, n_given, text: output } = outputStream(manifest);
  if (hasSource(manifest)) return { ...request, target: target ?? output };
  if (isClassifier(manifest) || isMasked(manifest) || isEmbedder(manifest)) return request;
  // All generated tokens but the last: the model generates one more, so that the lengths are equal.
  const end = special.slice(n_given, -1).indexOf(true);
  return { ...request, prefix: [...prefix, ...ids.slice(n_given, end < 0 ? -1 : n_given + end)], decode: { ...request.decode, max_new_tokens: 1 } };
}

/** Maximum bytes of the weights of all checkpoints. */
const FILM_BYTES = 96e6;

/** The slice to fetch: all heads of a layer with `cells` weights each, or only the selected one to save memory. */
export const filmSlice = ({ layer, head }: { layer: { nHeads: number }; head: number }, cells: number, checkpoints: number) =>
  (4 * layer.nHeads * cells * checkpoints > FILM_BYTES ? `head:${head}` : "");

/** Of the examples, the one with the longest beginning and end in common with a text: what differs is then in one place. */
export function nearestText(text: string, examples: readonly string[]): string | undefined {
  const common = (a: string, b: string) => {
    let n = 0;
    while (n < Math.min(a.length, b.length) && a[n] === b[n]) n++;
    return n;
  };
  const reversed = (a: string) => [...a].reverse().join("");
  const likeness = (example: string) => common(text, example) + common(reversed(text), reversed(example));
  return examples.filter((example) => example !== text).sort((a, b) => likeness(b) - likeness(a))[0];
}

/** For each position of `a`, whether it is outside the longest common subsequence of `a` and `b`. */
export function differingTokens(a: readonly number[], b: readonly number[]): boolean[] {
  const longest = [...a, 0].map(() => new Uint16Array(b.length + 1)); // of the suffixes from i and j
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i]![j] = a[i] === b[j] ? longest[i + 1]![j + 1]! + 1 : Math.max(longest[i + 1]![j]!, longest[i]![j + 1]!);
    }
  }
  let j = 0;
  return a.map((id, i) => {
    while (j < b.length && id !== b[j] && longest[i]![j + 1]! > longest[i + 1]![j]!) j++;
    if (j >= b.length || id !== b[j]) return true;
    j++;
    return false;
  });
}

interface Frame {
  values?: LayerValues;
  error?: string;
  answer?: string; // of a classifier; others read A's tokens
}

async function frameOf(layer: AttentionLayer, slice: string, request: TraceRequest): Promise<Frame> {
  try {
    const trace = await source.trace(request);
    const answer = isClassifier(trace) ? `${trace.answer.headline} ${trace.answer.detail}` : undefined;
    return { values: await fetchLayer(trace.id, layer, slice), answer };
  } catch (error) {
    return { error: toErrorMessage(error).message };
  }
}

function FilmStrip({ manifest, view, checkpoints, chosen }: { manifest: Manifest; view: View; checkpoints: RunInfo["checkpoints"]; chosen: string | null }) {
  const { weights, layer } = view.layer;
  const rows = labelsOf(manifest, view.group.queries);
  const slice = filmSlice(view, rows.length * labelsOf(manifest, view.group.keys).length, checkpoints.length);
  const { value: frames } = useResource<Map<string, Frame>>(`${manifest.id}|${weights}?${slice}`, async (soFar) => {
    const found = new Map<string, Frame>();
    for (const { name } of checkpoints) {
      found.set(name, await frameOf(view.layer, slice, teacherForcedRequest(manifest, name)));
      if (!soFar(new Map(found))) break;
    }
    return found;
  });
  const width = checkpoints.length > 8 ? 92 : 124;
  const height = thumbHeight(width, rows.length, labelsOf(manifest, view.group.keys).length);
  const picture = ({ values, error }: Frame = {}) => {
    if (values) return <Thumb grid={gridOf(values, view)} mask={values.mask} width={width} height={height} />;
    return <span class={error ? "note note-bad" : "head-blank"} style={{ width: `${width}px`, height: error ? "" : `${height}px` }}>{error}</span>;
  };
  return (
    <Section title={`${view.group.title}, layer ${layer}, head ${view.head}, through training`}>
      <ol class="film">
        {checkpoints.map((one) => {
          const frame = frames?.get(one.name);
          return (
            <li key={one.name}>
              <button type="button" class="head-button" aria-pressed={one.name === chosen} data-checkpoint={one.name} onClick={() => traceOther(teacherForcedRequest(manifest, one.name))}>
                {picture(frame)}
                <span class="head-caption">{checkpointName(one.name, one.step)}</span>
                {frame?.answer && <span class="head-caption">{frame.answer}</span>}
              </button>
            </li>
          );
        })}
      </ol>
      <p class="note">
        {!isClassifier(manifest) && "Every checkpoint reads A’s tokens (teacher forcing). "}
        Each heat map has its own scale.
      </p>
    </Section>
  );
}

/** The selected head, which may have been fetched alone. */
const gridOf = ({ weights }: LayerValues, { head }: View) => (weights.shape.length > 2 ? headOf(weights, head) : toGrid(weights));

function BlockPicker({ view: { groups, layer, head } }: { view: View }) {
  return (
    <div class="row">
      <Select
        label="Layer" value={layer.weights} onChoose={(node) => setParams({ node, layer: null })}
        options={groups.flatMap(({ title, layers }) => layers.map((one) => [one.weights, `${title}, layer ${one.layer}`] as const))}
      />
      <HeadPicker heads={layer.nHeads} head={head} />
    </div>
  );
}

function HeadPair({ a, b, view: { group, layer, head } }: { a: Manifest; b: Manifest; view: View }) {
  const cell = useValue(selection), slice = `head:${head}`;
  const [ofA, ofB] = [useTensor(layer.weights, slice, a), useTensor(layer.weights, slice, b)];
  if (!ofA.value || !ofB.value) return <p class="note">{(ofA.error ?? ofB.error)?.message ?? "Loading …"}</p>;
  const [gridA, gridB] = [toGrid(ofA.value), toGrid(ofB.value)];
  const change = difference(gridA, gridB);
  const limit = Math.max(magnitude(gridA.data), magnitude(gridB.data));
  const one = (title: string, of: Manifest, value: TensorValue, signs = false) => (
    <div>
      <h3>{title}</h3>
      <Matrix
        node={layer.weights} slice={signs ? `${slice};difference` : slice} of={of} label={`${group.title}, layer ${layer.layer}, head ${head}, ${title}`}
        value={value} scale={signs ? "signed" : "sequential"} limit={signs ? undefined : limit}
        rowLabels={rowLabelsOf(of, group.queries).map((label) => label.text)} colLabels={labelsOf(of, group.keys).map((label) => label.text)}
        cell={[cell.row ?? 0, cell.col ?? 0]} onSelect={(r, c) => setParams({ cell: `${r},${c}` })} numbers="toggle"
      />
    </div>
  );
  return (
    <>
      <div class="compare-heads" style={{ "--least": Math.max(gridA.cols, gridB.cols) > 20 ? "34rem" : "19rem" }}>
        {one("A", a, ofA.value)}
        {one("B", b, ofB.value)}
        {change && one("B − A", a, toTensorValue(change), true)}
      </div>
      <p class="note">
        {change
          ? `A and B share one scale, up to ${number(limit)}. The largest difference is ${number(magnitude(change.data))}; cells of B − A with a dash are negative.`
          : `A has ${gridA.rows} × ${gridA.cols} tokens and B ${gridB.rows} × ${gridB.cols}, so there is no difference to show.`}
      </p>
    </>
  );
}

type By = "text" | "checkpoint";

export function CompareScreen({ trace: a }: { trace: Manifest }) {
  const [b, waits, written] = [useValue(other), useValue(busy), useValue(otherText)];
  const { params } = useValue(route);
  const known = useValue(runFacts)?.checkpoints ?? [];
  const checkpoints = source.live ? known : [];
  const by: By = params.by === "checkpoint" && checkpoints.length > 1 ? "checkpoint" : "text";
  const view = viewOf(a, params);
  useEffect(() => {
    const like = by === "text" && source.live && otherText.value === undefined && nearestText(a.request.text, runFacts.value?.examples ?? []);
    if (like) setParams(paramsFromRequest({ ...a.request, target: undefined, prefix: undefined, edits: undefined, text: like }, "o."));
  }, []);

  return (
    <div class="compare">
      <h1 class="visually-hidden">Compare</h1>
      {checkpoints.length > 1 && (
        <div class="row">
          <Choices
            name="by" label="Compare by" options={[["text", "Two texts"], ["checkpoint", "Two checkpoints"]]} chosen={by}
            onChoose={(next) => {
              if (next === by) return;
              setParams({ by: next });
              traceOther(next === "checkpoint" ? teacherForcedRequest(a, checkpoints[0]!.name) : null);
            }}
          />
        </div>
      )}
      {by === "text" && source.live && (
        <OtherText label="Text B (the text above is A):" given={written ?? a.request.text}>
          {b && <button type="button" class="quiet" onClick={() => traceOther(null)}>Remove B</button>}
        </OtherText>
      )}
      {view && (b || by === "checkpoint") && <BlockPicker view={view} />}
      {by === "checkpoint" && view && (
        <FilmStrip manifest={a} view={view} checkpoints={checkpoints} chosen={b && b.model.checkpoint} />
      )}
      {b
        ? (
          <>
            <Sides a={a} b={b} by={by} />
            {isEmbedder(a) ? <Vectors a={a} b={b} /> : <Distributions a={a} b={b} position={params.position} />}
            {view && (
              <Section title="Attention weights in A and B"><HeadPair a={a} b={b} view={view} /></Section>
            )}
          </>
        )
        : <p class="note">{!source.live ? "This saved page holds one trace. To save two: glassformer explain RUN TEXT --compare TEXT2 -o page.html"
          : waits ? `${waits} …` : by === "checkpoint" ? "Select a checkpoint above to compare it with these weights."
          : "Enter a second text above. Texts that differ in one word show the effect of that word; if both have the same length, the difference of their weights is shown."}</p>}
    </div>
  );
}

/** Both sides. A checkpoint that reads A's tokens is also decoded, for its own answer. */
function Sides({ a, b, by }: { a: Manifest; b: Manifest; by: By }) {
  const { checkpoint } = b.model;
  const held = by === "checkpoint" && !isClassifier(a) && !isEmbedder(a);
  const { value, error } = useResource(held ? `${a.id} ${checkpoint}` : null, () => source.ask("decode", { ...a.request, checkpoint }));
  const own = value?.answer.headline ?? (error ? `(${error.message})` : "…");
  return (
    <div class="compare-sides">
      <Side name="A" of={a} other={b} />
      <Side name="B" of={b} other={a} own={held ? own : undefined} />
    </div>
  );
}

function Side({ name, of, other, own }: { name: "A" | "B"; of: Manifest; other: Manifest; own?: string }) {
  const marks = (stream: Manifest["streams"][number]) =>
    differingTokens(stream.ids, other.streams.find((one) => one.name === stream.name)?.ids ?? []).map((differs) => (differs ? "≠" : null));
  return (
    <section class="compare-side" data-side={name} aria-label={`Side ${name}`}>
      <p>{name} <span class="note">{checkpointName(of.model.checkpoint, of.model.step)}</span></p>
      <p class="compare-answer">
        <strong><bdi>{own ?? of.answer.headline}</bdi></strong>
        <span class="answer-detail">{own === undefined ? of.answer.detail : "its own output; below, it reads A’s tokens"}</span>
      </p>
      {of.streams.map((stream) => (
        <Tokens key={stream.name} stream={stream} label={`${name}: tokens of the ${stream.name}`} marks={marks(stream)} />
      ))}
    </section>
  );
}

const MAX_ROWS = 8;

function Distributions({ a, b, position }: { a: Manifest; b: Manifest; position: string | undefined }) {
  const classes = isClassifier(a);
  const { from, to, at, other } = alignedPositions(a, b, predictionIndex(a, position));
  const [pa, pb] = [a.predictions[at], b.predictions[other]];
  const rows = pairRows(pa, pb, MAX_ROWS);
  const side = (of: Prediction | undefined, name: "a" | "b") => rows.map((row) => {
    const value = row[name];
    return {
      key: row.id, label: row.piece, value: value ?? 0, strong: of?.top[0]?.id === row.id,
      text: value !== null ? percent(value) : `≤ ${percent(smallestProbability(of)).replace("<", "")}`,
      note: name === "b" ? points((row.b ?? smallestProbability(pb)) - (row.a ?? smallestProbability(pa))) : undefined,
    };
  });
  return (
    <Section title={classes ? "Probabilities" : isMasked(a) ? "Token probabilities" : "Next-token probabilities"}>
      {!classes && to > from && (
        <label class="row">
          {at === other ? `Position ${at}` : `Position ${at} of A, ${other} of B`}
          <input type="range" min={from} max={to} value={at} aria-valuetext={`${at}`} onInput={(event) => setParams({ position: a.predictions[Number(event.currentTarget.value)]!.position })} />
        </label>
      )}
      <div class="compare-sides">
        <div>
          <h3>A{!classes && <> {isMasked(a) ? "at" : "after"}  <bdi class="quoted">{after(a, pa)}</bdi></>}</h3>
          <Bars label="A" bars={side(pa, "a")} />
        </div>
        <div>
          <h3>B{!classes && <> {isMasked(b) ? "at" : "after"} <bdi class="quoted">{after(b, pb)}</bdi></>}<span class="note">, and B − A</span></h3>
          <Bars label="B" bars={side(pb, "b")} />
        </div>
      </div>
    </Section>
  );
}

/** The last few tokens up to the position of the prediction. */
function after(manifest: Manifest, prediction: Prediction | undefined): string {
  const at = prediction?.position ?? 0;
  return visible(manifest.streams.at(-1)!.pieces.slice(Math.max(0, at - 3), at + 1).join(""));
}

/** How alike the vectors of two texts are. */
function Vectors({ a, b }: { a: Manifest; b: Manifest }) {
  const { value } = useResource(`${a.id} ${b.id} pooled`, () => Promise.all([a, b].map(({ id }) => source.tensor(id, "pooled"))));
  const [va, vb] = value?.map(({ data }) => data) ?? [];
  const dot = (x: ArrayLike<number>, y: ArrayLike<number>) => Array.from(x).reduce((sum, one, i) => sum + one * y[i]!, 0);
  return (
    <Section title="Vectors of A and B">
      <p data-role="cosine">
        {va && vb ? <>Cosine: <b>{(dot(va, vb) / Math.sqrt(dot(va, va) * dot(vb, vb))).toFixed(3)}</b>. It is 1 where both vectors have the same direction, and 0 where they are orthogonal.</> : "…"}
      </p>
      <p class="note">This model gives no probabilities to compare.</p>
    </Section>
  );
}
