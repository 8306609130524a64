/**
 * The Learn screen: an answer that the model should have given, its loss, and what steps of the optimizer on it change:
 * the losses, other texts, the weights, and every number of one update.
 */
import { useState } from "preact/hooks";
import { subtract } from "../sources/source";
import {
  base, busy, edited, edits, go, learn, learnSteps, reportError, route, runFacts, selection, setEdits, setParams, source, trace as ask,
} from "../state/page";
import { useResource } from "../state/resource";
import { useValue } from "../state/signals";
import { axisNames, breakable, capital, exact, number, percent, shapeText, signed, tiny } from "../tensors/format";
import { magnitude, sliceOffsets, type TensorValue } from "../tensors/tensor";
import { multiply, type Numbers, transpose as transposed } from "../tensors/walk";
import { hasSource, isClassifier, isEmbedder, isMasked } from "../trace/generation";
import { isGradient, nodeOf } from "../trace/steps";
import type { LearnDefaults, Learned, LearningFacts, Manifest, ParameterGroup, TraceRequest } from "../types";
import { ArithmeticView, CheckLine } from "../views/Arithmetic";
import { Bars } from "../views/Bars";
import { Chart } from "../views/Chart";
import { Matrix } from "../views/Matrix";
import { Form, Section, Select } from "../views/Parts";
import { Table } from "../views/Table";
import { Terms } from "../views/Terms";
import { openStep } from "../views/interaction";

/** The relative error of one rounding of a 32-bit float. */
const ROUNDING = 2 ** -24;
/** That of bfloat16, between two neighbours. */
const BFLOAT16 = 2 ** -8;
/** Roundings of the terms of a sum, and of a quotient of several. */
export const [FEW, MANY] = [4, 16];

/** The coefficients of the Newton–Schulz iteration of Muon (Jordan et al. 2024), and how often it is done. */
const COEFFICIENTS = [3.4445, -4.775, 2.0315] as const;
const ITERATIONS = 5;

const matrix = (data: Numbers, cols: number) => ({ shape: [data.length / cols, cols], data });
const transpose = (x: Numbers, cols: number) => transposed(matrix(x, cols)).data as Float64Array;
/** x yᵀ, for rows of n numbers. */
const timesTransposed = (x: Numbers, y: Numbers, n: number) => multiply(matrix(x, n), transposed(matrix(y, n))).data as Float64Array;

/** The type in which Muon multiplies. */
type Dtype = "float32" | "bfloat16";
const BITS = new DataView(new ArrayBuffer(4));

/** The nearest bfloat16, the upper half of a 32-bit float; of two equally near ones the even. */
export function toBfloat16(x: number): number {
  BITS.setFloat32(0, x);
  const bits = BITS.getUint32(0);
  BITS.setUint32(0, ((bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000) >>> 0);
  return BITS.getFloat32(0);
}

/** A number that is off by `error`, relative to its own size and the largest: to either side, in pseudorandom order. */
const off = (x: number, i: number, largest: number, error: number) => x + error * (Math.abs(x) + largest) * (Math.sin(i * 12.9898) * 43758.5453 % 1 > 0 ? 1 : -1);

/**
 * Approximately U Vᵀ of a matrix U S Vᵀ (rows, cols): X ← a X + (b A + c A²) X with A = X Xᵀ, five times. Each result is
 * rounded to `dtype`, as in training, where that is bfloat16. With `error`, each is off by so much before.
 */
export function orthogonalise(values: Numbers, rows: number, cols: number, dtype: Dtype = "float32", error = 0): Float64Array {
  const tall = rows > cols;
  const [m, n] = tall ? [cols, rows] : [rows, cols];
  const [a, b, c] = COEFFICIENTS;
  const rounded = (all: Float64Array) => {
    const size = magnitude(all);
    const moved = error ? all.map((one, i) => off(one, i, size, error)) : all;
    return dtype === "bfloat16" ? moved.map(toBfloat16) : moved;
  };
  let x = rounded(tall ? transpose(values, cols) : Float64Array.from(values));
  const size = Math.max(1e-7, rounded(Float64Array.of(Math.sqrt(x.reduce((sum, one) => sum + one * one, 0))))[0]!);
  x = rounded(x.map((one) => one / size));
  for (let i = 0; i < ITERATIONS; i++) {
    const gram = rounded(timesTransposed(x, x, n));
    const squared = timesTransposed(gram, gram, m); // symmetric
    const combined = rounded(gram.map((one, j) => b * one + c * squared[j]!));
    const product = multiply(matrix(combined, m), matrix(x, n)).data;
    x = rounded(x.map((one, j) => a * one + product[j]!));
  }
  return tall ? transpose(x, n) : x;
}

/** Products that the five iterations take. */
export const productsOf = (rows: number, cols: number) => ITERATIONS * Math.min(rows, cols) ** 2 * (2 * Math.max(rows, cols) + Math.min(rows, cols));

/** One line: what it is, the arithmetic, and, of a number that the optimizer keeps, how far the recomputed one is from it. */
export interface Line {
  name: string;
  text: string;
  /** The difference, and the bound that rounding gives it. */
  check?: { delta: number; bound: number };
  last?: boolean;
}

type Read = (id: string, slice?: string) => Promise<TensorValue>;

/** Matrices whose orthogonalisation takes more products are not recomputed in the browser. */
const MOST_PRODUCTS = 1.5e9;

interface Place {
  parameter: string;
  row: number;
  col: number;
}

/** The slice of one number of a parameter. */
function sliceOfPlace(trace: Manifest, { parameter, row, col }: Place): string {
  const axes = trace.params[parameter]!.axes;
  return axes.length > 1 ? `${axes[0]!.name}:${row};${axes[1]!.name}:${col}` : `${axes[0]!.name}:${col}`;
}

/** `factor` is that of clipping; `step` counts from 1. */
export async function updateLines(trace: Manifest, group: ParameterGroup, place: Place, step: number, read: Read): Promise<Line[]> {
  const slice = sliceOfPlace(trace, place);
  const get = async (part: string) => (await read(part ? `${place.parameter}.${part}` : place.parameter, slice)).data[0]!;
  const [before, g, after] = [await get("before"), await get("clipped_grad"), await get("")];
  const { constants: c } = group;
  const start: Line = { name: "θ before", text: number6(before) };
  const gradient: Line = { name: "g", text: `${n(g)}, the gradient after clipping` };
  if (group.optimizer === "muon") return [start, gradient, ...(await muonLines(trace, group, place, before, after, read))];
  const old = async (part: string) => (step === 1 ? 0 : get(`${part}_before`));
  const kept = async (part: string, value: number, bound: number) => ({ delta: Math.abs(value - (await get(part))), bound });
  const lr = c.lr!, decay = c.weight_decay!, size = FEW * ROUNDING;
  if (group.optimizer === "sgd") {
    const buffer = c.momentum ? await old("momentum_buffer") : 0;
    const decayed = g + decay * before, b = c.momentum! * buffer + decayed, value = before - lr * b;
    const bound = size * (Math.abs(c.momentum! * buffer) + Math.abs(g) + Math.abs(decay * before));
    return [
      start, gradient,
      ...(decay ? [{ name: "g with weight decay", text: `g + λ θ = ${n(g)} + ${n(decay)} · ${p(before)} = ${n(decayed)}` }] : []),
      ...(c.momentum ? [{ name: "momentum", text: `μ b + g = ${n(c.momentum)} · ${p(buffer)} + ${p(decayed)} = ${n(b)}`, check: await kept("momentum_buffer", b, bound) }] : []),
      { name: "θ after", text: `θ − lr · b = ${number6(before)} − ${n(lr)} · ${p(b)} = ${number6(value)}`, check: { delta: Math.abs(value - after), bound: lr * bound * 2 + size * Math.abs(before) }, last: true },
    ];
  }
  const [mean, square, beta1, beta2] = [await old("exp_avg"), await old("exp_avg_sq"), c.beta1!, c.beta2!];
  const [m, v] = [beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g * g], [left1, left2] = [1 - beta1 ** step, 1 - beta2 ** step];
  const decayed = before * (1 - lr * decay), update = (lr * (m / left1)) / (Math.sqrt(v / left2) + c.eps!), value = decayed - update;
  const lost = size * (Math.abs(beta1 * mean) + Math.abs((1 - beta1) * g)); // of a mean that nearly cancels, the rounding of its terms remains
  const bound = MANY * ROUNDING * Math.abs(update) + Math.abs((update / (m || 1)) * lost) + size * Math.abs(before);
  return [
    start, gradient,
    { name: "mean m", text: `β₁ m + (1 − β₁) g = ${n(beta1)} · ${p(mean)} + ${n(1 - beta1)} · ${p(g)} = ${n(m)}`, check: await kept("exp_avg", m, lost) },
    { name: "mean square v", text: `β₂ v + (1 − β₂) g² = ${n(beta2)} · ${n(square)} + ${n(1 - beta2)} · ${n(g * g)} = ${n(v)}`, check: await kept("exp_avg_sq", v, size * v + Number.MIN_VALUE) },
    { name: "corrected m̂", text: `m / (1 − β₁${power(step)}) = ${n(m)} / ${n(left1)} = ${n(m / left1)}` },
    { name: "corrected v̂", text: `v / (1 − β₂${power(step)}) = ${n(v)} / ${n(left2)} = ${n(v / left2)}` },
    ...decayLine(before, lr, decay, decayed),
    { name: "step", text: `lr · m̂ / (√v̂ + ε) = ${n(lr)} · ${p(m / left1)} / (${n(Math.sqrt(v / left2))} + ${n(c.eps!)}) = ${n(update)}` },
    { name: "θ after", text: `${number6(decayed)} − ${p(update)} = ${number6(value)}`, check: { delta: Math.abs(value - after), bound }, last: true },
  ];
}

/** How much rounding moves the orthogonal matrix is measured: the same is computed with each sum off by a few roundings. */
async function muonLines(trace: Manifest, { constants, dtype }: ParameterGroup, place: Place, before: number, after: number, read: Read): Promise<Line[]> {
  const axes = trace.params[place.parameter]!.axes;
  const [rows, cols] = axes.map(({ size }) => size) as [number, number];
  if (productsOf(rows, cols) > MOST_PRODUCTS) return [{ name: "not recomputed", text: `a matrix of ${rows} × ${cols} takes too many products for a browser` }, { name: "θ after", text: number6(after), last: true }];
  const whole = async (part: string) => (await read(`${place.parameter}.${part}`)).data;
  const [g, buffer] = [await whole("clipped_grad"), await whole("momentum_buffer_before")];
  const lr = constants.lr!, mu = constants.momentum!, decay = constants.weight_decay!, type = dtype === "bfloat16" ? dtype : "float32";
  const average = Float64Array.from(g, (one, i) => mu * buffer[i]! + (1 - mu) * one);
  const nesterov = Float64Array.from(g, (one, i) => (1 - mu) * one + mu * average[i]!);
  const orthogonal = orthogonalise(nesterov, rows, cols, type);
  const moved = magnitude(orthogonalise(nesterov, rows, cols, type, FEW * ROUNDING).map((one, i) => one - orthogonal[i]!));
  const off = 2 * moved + (type === "bfloat16" ? BFLOAT16 : MANY * ROUNDING) * magnitude(orthogonal);
  const [at] = sliceOffsets([rows, cols], axes.map(({ name }) => name), sliceOfPlace(trace, place)) as [number];
  const kept = (await whole("momentum_buffer"))[at]!, factor = Math.sqrt(Math.max(1, rows / cols)), x = orthogonal[at]!;
  const decayed = before * (1 - lr * decay), value = decayed - lr * factor * x;
  const [a, b, d] = COEFFICIENTS;
  return [
    {
      name: "momentum m", text: `μ m + (1 − μ) g = ${n(mu)} · ${p(buffer[at]!)} + ${n(1 - mu)} · ${p(g[at]!)} = ${n(average[at]!)}`,
      check: { delta: Math.abs(average[at]! - kept), bound: FEW * ROUNDING * (Math.abs(mu * buffer[at]!) + Math.abs(g[at]!)) },
    },
    { name: "Nesterov’s M", text: `μ m + (1 − μ) g, one gradient ahead = ${n(nesterov[at]!)}` },
    { name: "X, orthogonal", text: `M / |M|, then ${ITERATIONS} times X ← ${a} X ${b < 0 ? "−" : "+"} ${Math.abs(b)} A X + ${d} A² X with A = X Xᵀ, of the whole matrix${type === "bfloat16" ? " in bfloat16, where rounding is amplified" : ""} = ${n(x)}` },
    { name: "scale", text: `√max(1, M/N) = √max(1, ${rows}/${cols}) = ${n(factor)}` },
    ...decayLine(before, lr, decay, decayed),
    {
      name: "θ after", text: `${number6(decayed)} − lr · scale · X = ${number6(decayed)} − ${n(lr)} · ${n(factor)} · ${p(x)} = ${number6(value)}`,
      check: { delta: Math.abs(value - after), bound: lr * factor * off + FEW * ROUNDING * Math.abs(before) }, last: true,
    },
  ];
}

const decayLine = (before: number, lr: number, decay: number, decayed: number): Line[] =>
  (decay ? [{ name: "weight decay", text: `θ (1 − lr λ) = ${number6(before)} · (1 − ${n(lr)} · ${n(decay)}) = ${number6(decayed)}` }] : []);

/** "", "²", "¹⁰": the power of a step. */
const power = (step: number) => (step === 1 ? "" : String(step).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]!));
/** Five significant digits, so that a reader can compute with them. */
function n(x: number): string {
  const short = Number(x.toPrecision(5));
  return (short && Math.abs(short) < 1e-4 ? short.toExponential() : String(short)).replaceAll("-", "−");
}
/** In parentheses if negative. */
const p = (x: number) => (x < 0 ? `(${n(x)})` : n(x));
/** Six decimals, as an update is small. */
const number6 = (x: number) => (Math.abs(x) < 1e-4 ? n(x) : `${x < 0 ? "−" : ""}${Math.abs(x).toFixed(6)}`);

const MOST_STEPS = 100;
/** A loss below this counts as learned, even where the answer is not the most probable. */
const LEARNED = 0.1;
const OPTIMIZERS: Record<string, string> = { adamw: "AdamW", adam: "Adam", sgd: "SGD", muon: "Muon" };

type How = Pick<TraceRequest, "answer" | "lr" | "optimizer" | "learn_steps">;

function LearnForm({ trace }: { trace: Manifest }) {
  const defaults = useValue(runFacts)!.learn;
  const steps = useValue(learnSteps);
  const waits = useValue(busy) !== null;
  const [looking, setLooking] = useState(false);
  const [said, setSaid] = useState("");
  const { request } = trace;
  const names = isClassifier(trace) ? trace.model.label_names : null;
  const [answer, setAnswer] = useState(request.answer ?? (names?.find((name) => name !== trace.answer.headline) ?? ""));
  const [optimizer, setOptimizer] = useState<string>(request.optimizer ?? defaults.optimizer);
  const [lr, setLr] = useState<number>(request.lr ?? defaults.lr);
  const how: How = {
    answer, ...(optimizer === defaults.optimizer ? {} : { optimizer }), ...(lr === defaults.lr ? {} : { lr }),
  };
  const same = request.answer === answer && (request.optimizer ?? defaults.optimizer) === optimizer && (request.lr ?? defaults.lr) === lr;
  const from = same ? steps : 0;
  const ready = answer.trim() !== "" && !waits && !looking;
  const take = (by: number) => {
    setSaid("");
    learn({ ...how, learn_steps: Math.min(MOST_STEPS, from + by) });
  };
  /** More steps are taken at once; which of them is the first after which the answer is learned follows from their losses. */
  const until = async () => {
    setLooking(true);
    setSaid("");
    try {
      const { answer: _, learn_steps: __, lr: ___, optimizer: ____, edits: _____, other_text: ______, ...plain } = request;
      let first = -1;
      for (const n of [10, 30, MOST_STEPS]) {
        const { target, learned } = (await source.trace({ ...plain, ...how, learn_steps: n })).learning!;
        const low = target === null ? LEARNED : 0;
        first = [...learned!.steps, learned!].findIndex(({ loss, right }) => right || loss < low);
        if (first >= 0) break;
      }
      setSaid(first === 0 ? "The model gives this answer already." : first < 0 ? `After ${MOST_STEPS} steps it is not yet learned.` : `Learned after ${first} step${first > 1 ? "s" : ""}.`);
      learn({ ...how, learn_steps: first < 0 ? MOST_STEPS : first });
    } catch (error) {
      reportError(error);
    } finally {
      setLooking(false);
    }
  };
  return (
    <Form class="row" aria-label="Learn" send={() => ready && take(0)}>
      <label>
        {names ? "Right class" : isEmbedder(trace) ? "Right number" : hasSource(trace) ? "Right translation" : isMasked(trace) ? "Words at [MASK]" : "Words that should follow"}{" "}
        {names
          ? <Select value={answer} onChoose={setAnswer} options={names.map((name) => [name, name])} attributes={{ "data-role": "learn-answer" }} />
          : <input data-role="learn-answer" value={answer} spellcheck={false} autocomplete="off" dir="auto" onInput={({ currentTarget }) => setAnswer(currentTarget.value)} />}
      </label>
      <Examples defaults={defaults} />
      <Select
        label="Optimizer" value={optimizer} onChoose={setOptimizer} attributes={{ "data-role": "optimizer" }}
        options={Object.entries(OPTIMIZERS).map(([value, words]) => [value, value === defaults.optimizer ? `${words}, as the run` : words])}
      />
      <label class="learn-rate">
        <span>Learning rate <output>{plain(lr)}</output>{lr === defaults.lr && <span class="note"> as the run</span>}</span>
        <input
          type="range" data-role="lr" min={-6} max={1} step={0.05} value={Math.log10(lr)} aria-valuetext={plain(lr)}
          onInput={({ currentTarget }) => setLr(rateOf(Number(currentTarget.value)))}
        />
        {lr !== defaults.lr && <button type="button" class="quiet" onClick={() => setLr(defaults.lr)}>That of the run</button>}
      </label>
      {optimizer === "muon" && <p class="note" data-role="matrix-lr">Muon moves the matrices of the layers, with the rate {plain((defaults.matrix_lr * lr) / defaults.lr)}. AdamW moves all else, embeddings, biases and norms, with {plain(lr)}.</p>}
      <div class="row">
        <button type="button" data-role="one-step" disabled={!ready || from >= MOST_STEPS} onClick={() => take(1)}>Take the step</button>
        <button type="button" data-role="ten-steps" disabled={!ready || from >= MOST_STEPS} onClick={() => take(10)}>Ten steps</button>
        <button type="button" data-role="until" disabled={!ready} onClick={() => void until()}>Until it is learned</button>
        <button type="submit" class="quiet" data-role="loss" disabled={!ready || same}>Show its loss</button>
        <button type="button" class="quiet" data-role="put-back" disabled={waits || !steps} onClick={() => {
          setSaid("");
          learn({ ...how, learn_steps: 0 });
        }}>Undo the steps</button>
      </div>
      <p class="note" role="status" data-role="said">{looking ? "Taking up to 100 steps …" : said}</p>
    </Form>
  );
}

/** Two digits, so that the address is short. */
const rateOf = (power: number) => Number((10 ** power).toPrecision(2));
const plain = (lr: number) => {
  const rounded = Number(lr.toPrecision(4));
  return rounded < 0.001 ? rounded.toExponential().replace("-", "−") : String(rounded);
};

const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most)}…` : text);

/** Texts that the run was evaluated on, with their right answers. */
const Examples = ({ defaults: { examples } }: { defaults: LearnDefaults }) => examples.length > 0 && (
  <Select
    label={<span class="visually-hidden">A text with its right answer</span>} value="" onChoose={(i) => i && ask(examples[Number(i)]!)} attributes={{ "data-role": "learn-example" }}
    options={[["", "Take one from the evaluation …"], ...examples.map(({ text, answer }, i) => [i, `${cut(text, 40)} → ${cut(answer, 24)}`] as const)]}
  />
);

/** The loss before and after the steps, as the step that computes it has its arithmetic and its check. */
function LossSection({ before, after }: { before: Manifest; after: Manifest | null }) {
  const { answer, target, smoothing, loss } = before.learning!, isNumber = target !== null;
  const classes = before.nodes.find(({ id }) => id === "logits")!.axes.at(-1)!.name === "class";
  const passes = [["before", before, loss] as const, ...(after ? [["after", after, after.learning!.learned!.loss] as const] : [])];
  return (
    <Section title={<Terms>The loss of the answer</Terms>} data-role="loss-section">
      {isNumber ? (
        <p>
          The output is a distance from the mean of the training numbers, in their standard deviations: for {answer} it should
          be {number(target, 4)}. The loss is the square of the error, the output minus that.
        </p>
      ) : (
        <p>
          {classes ? "The model gives the right class" : "At each position the model gives the right token"} the probability p. The loss is −log p{smoothing > 0 && <>, with the label smoothing ε = {number(smoothing)}: (1 − ε) · (−log p) + ε · the mean of −log p over all {classes ? "classes" : "tokens"}</>}
          , averaged over all labels.
        </p>
      )}
      <div class="columns">
        {passes.map(([name, trace, value]) => {
          const node = nodeOf(trace, "loss")!;
          return (
            <div key={name} data-role={`mean-${name}`} data-value={exact(value)}>
              <p>Loss {name}: <strong>{number(value, 4)}</strong></p>
              <ArithmeticView node={node} cell={{ head: 0, row: 0, col: 0, position: 0 }} trace={trace} />
              <CheckLine node={node} trace={trace} />
            </div>
          );
        })}
      </div>
      <p class="learn-links">
        {!isNumber && <><button type="button" class="link" onClick={() => openStep("loss.each")}>The step that computes it of each label</button> · </>}
        <button type="button" class="link" onClick={() => openStep("loss.grad")}>The backward pass, from the loss on</button>
      </p>
    </Section>
  );
}

/** Larger parameters are chosen by numbers, without their picture. */
const MOST_NUMBERS = 300_000;

function UpdateSection({ before, after, learned }: { before: Manifest; after: Manifest; learned: Learned }) {
  const { param } = useValue(route).params;
  const { row: chosenRow, col: chosenCol } = useValue(selection);
  const groups = after.learning!.groups;
  const names = groups.flatMap(({ params }) => params).filter((name) => name in after.params && (source.live || source.peek(after.id, `${name}.before`)));
  const matrices = names.filter((name) => after.params[name]!.axes.length > 1);
  const furthest = (matrices.length ? matrices : names).sort((a, b) => (learned.moved[b] ?? 0) - (learned.moved[a] ?? 0))[0];
  const parameter = param !== undefined && names.includes(param) ? param : furthest;
  const group = groups.find(({ params }) => params.includes(parameter!));
  if (!parameter || !group) return null;
  const sizes = after.params[parameter]!.axes.map(({ size }) => size);
  const [rows, cols] = sizes.length > 1 ? [sizes[0]!, sizes[1]!] : [1, sizes[0]!];
  const [row, col] = [Math.min(chosenRow ?? 0, rows - 1), Math.min(chosenCol ?? 0, cols - 1)];
  const choose = (row: number, col: number) => setParams({ param: parameter, cell: `${row},${col}` });
  const step = learned.steps.length;
  const gradient = nodeOf(before, `${parameter}.grad`);
  return (
    <Section title={`The update of one number by ${step === 1 ? "the step" : `step ${step}`}`} data-role="update">
      <div class="row">
        <label>Parameter{" "}
          <select data-role="parameter" value={parameter} onChange={({ currentTarget }) => setParams({ param: currentTarget.value, cell: null })}>
            {groups.map(({ optimizer, params }, i) => {
              const own = params.filter((name) => names.includes(name));
              return own.length > 0 && <optgroup key={i} label={`${OPTIMIZERS[optimizer]}${groups[i]!.constants.weight_decay ? ", with weight decay" : ""}`}>{own.map((name) => <option key={name} value={name}>{name}</option>)}</optgroup>;
            })}
          </select>
        </label>
        <span class="small">{shapeText(sizes)}</span>
        {rows > 1 && <Index label="Row" value={row} size={rows} onChange={(next) => choose(next, col)} />}
        <Index label={rows > 1 ? "Column" : "Feature"} value={col} size={cols} onChange={(next) => choose(row, next)} />
        {gradient && isGradient(gradient) && <button type="button" class="link small" onClick={() => go("step", { node: gradient.id, numbers: "gradients", show: "before", cell: `${row},${col}` })}>Its gradient before learning</button>}
      </div>
      {group.optimizer !== "muon" && groups.some(({ optimizer }) => optimizer === "muon") && <p class="note" data-role="not-muon">Muon moves the matrices of the layers only: this parameter is moved by {OPTIMIZERS[group.optimizer]}, with the learning rate {Number(group.constants.lr!.toPrecision(4))}.</p>}
      {rows * cols <= MOST_NUMBERS && <Change parameter={parameter} after={after} cell={[row, col]} onSelect={choose} />}
      <Lines key={parameter} {...{ after, parameter, row, col, step }} />
    </Section>
  );
}

const Index = ({ label, value, size, onChange }: { label: string; value: number; size: number; onChange: (value: number) => void }) => (
  <label>{label} <input type="number" min={0} max={size - 1} value={value} onChange={({ currentTarget }) => onChange(Math.max(0, Math.min(size - 1, Number(currentTarget.value))))} /></label>
);

/** What the step changed of a parameter. */
function Change({ parameter, after, cell, onSelect }: { parameter: string; after: Manifest; cell: [number, number]; onSelect: (row: number, col: number) => void }) {
  const { value, error } = useResource(`${after.id}/${parameter}`, async () => {
    const [now, then] = await Promise.all([source.tensor(after.id, parameter), source.tensor(after.id, `${parameter}.before`)]);
    return subtract(now, then);
  });
  const axes = after.params[parameter]!.axes;
  if (error) return <p class="note">{error.message}</p>;
  return (
    <>
      <p class="note">The change of each number by the last step. Select one.</p>
      <Matrix
        node={parameter} value={value} scale="signed" label={`Change of ${parameter}`} cell={cell} onSelect={onSelect}
        rowName={axes.length > 1 ? axisNames(axes[0]!.name)[0] : undefined} colName={axisNames(axes.at(-1)!.name)[0]}
      />
    </>
  );
}

function Lines({ after, parameter, row, col, step }: { after: Manifest; parameter: string; row: number; col: number; step: number }) {
  const group = after.learning!.groups.find(({ params }) => params.includes(parameter))!;
  const { value, error, stale } = useResource(`${after.id}/${parameter}/${row},${col}`,
    () => updateLines(after, group, { parameter, row, col }, step, (id, slice) => source.tensor(after.id, id, slice)), { within: parameter });
  if (error) return <p class="note">{error.message}</p>;
  return (
    <div data-role="update-lines" data-state={stale || !value ? "pending" : "ready"} aria-live="polite">
      <p class="note">Recomputed in your browser from what the optimizer keeps. ✓: the optimizer has the same number, up to rounding, which the bound allows for.</p>
      {value && <Table
        label="Update" columns={["", "", ""]}
        rows={value.map(({ name, text, check, last }) => {
          const ok = check && check.delta <= check.bound;
          return {
            cells: [name, <span class="learn-text">{text}</span>, check && (
              <span class={ok ? "check-ok" : "check-bad"} data-check-line={name} data-state={ok ? "ok" : "bad"} data-delta={exact(check.delta)} data-bound={exact(check.bound)}>
                {ok ? "✓" : "✗ the optimizer has another,"} Δ {tiny(check.delta)} {ok ? "≤" : ">"} {tiny(check.bound)}
              </span>
            )],
            attributes: { class: last ? "term-mark" : undefined },
          };
        })}
      />}
    </div>
  );
}

export function LearnScreen({ trace: shown }: { trace: Manifest }) {
  const trace = useValue(base) ?? shown;
  const steps = useValue(learnSteps);
  const after = useValue(edited);
  const made = useValue(edits).length > 0;
  const facts = trace.learning;
  const learned = steps ? after?.learning?.learned ?? null : null;
  return (
    <div class="learn">
      <h1>Learn</h1>
      <p>
        <Terms>{source.live
          ? "Give the answer that the model should have given. The page shows the loss of that answer and its gradients, takes steps of the optimizer on this text alone, and recomputes every number. The files of the run never change."
          : "The answer that the model should have given, its loss and its gradients; what steps of the optimizer on this text alone changed; and every number recomputed."}</Terms>
      </p>
      {!source.live ? facts === null && <p class="note">This page was saved without an answer to learn. Open the run with <code>glassformer explain</code> to learn one.</p>
        : trace.refused.learn ? <p class="note" data-role="refused">{capital(trace.refused.learn)}.</p>
        : made ? <p class="note" data-role="refused">A model learns without edits only. <button type="button" class="link" onClick={() => setEdits([])}>Remove the edits</button></p>
        : <LearnForm key={`${trace.request.text}|${trace.request.answer}`} trace={trace} />}
      {facts && source.live && <OwnAnswer trace={trace} />}
      {facts && <LossSection before={trace} after={learned && after} />}
      {facts && learned && after && (
        <>
          <StepsSection learned={learned} facts={facts} />
          <div class="columns">
            <OthersSection learned={learned} trace={trace} />
            <MovedSection learned={learned} params={after.params} />
          </div>
          <UpdateSection before={trace} after={after} learned={learned} />
        </>
      )}
      {facts && (
        <Section title="What is left out">
          <ul class="learn-sentences">
            <li>A step of training is on many texts at once; here it is on one.</li>
            {facts.left_out.map((what) => <li key={what} data-left-out={what}>This run’s training has, and these steps have not: {what}.</li>)}
            {facts.smoothing > 0 && <li>Label smoothing is that of training, {number(facts.smoothing)}.</li>}
          </ul>
        </Section>
      )}
    </div>
  );
}

/** What the model itself answers, which the answer above the screen is not where one was given. */
function OwnAnswer({ trace }: { trace: Manifest }) {
  const { answer: _, lr: __, optimizer: ___, target: ____, ...request } = trace.request;
  const given = trace.learning?.target == null && !isClassifier(trace) && !isMasked(trace);
  const { value } = useResource(given ? JSON.stringify(request) : null, () => source.ask("decode", request));
  return value && <p data-role="own-answer">Before learning, the model itself {hasSource(trace) ? "answers" : "continues with"} <strong dir="auto">{value.answer.headline}</strong> <span class="note">{value.answer.detail}</span></p>;
}

function StepsSection({ learned, facts }: { learned: Learned; facts: LearningFacts }) {
  const losses = [...learned.steps.map(({ loss }) => loss), learned.loss];
  const last = learned.steps.at(-1)!;
  const n = learned.steps.length, least = Math.min(...losses), wide = least > 0 && Math.max(...losses) > 20 * least;
  return (
    <Section title={`${n === 1 ? "One step" : `${n} steps`}: the loss goes from ${number(losses[0]!)} to ${number(learned.loss)}`} data-role="steps-section">
      <div class="columns">
        <Chart
          name="learned" title={`Loss of the answer, ${facts.target === null ? "in nats per label" : "a squared error"}`} by="step" log={wide} zero={!wide} xs={[0, n]}
          lines={[{ name: "loss", points: losses.map((loss, i) => [i, loss]), dots: n < 32 }]}
        />
        <div>
          <p>
            <Terms>{`The gradient of ${n === 1 ? "the" : "the last"} step, of all parameters together, has the norm ${number(last.grad_norm)}.`}</Terms>{" "}
            {facts.max_grad_norm > 0 ? last.clipped < 1
              ? `That is more than ${number(facts.max_grad_norm)}: it is clipped to that norm, ${percent(last.clipped)} of its own: each number is multiplied by ${number(facts.max_grad_norm)} / ${number(last.grad_norm)} = ${number(last.clipped)}.`
              : `That is at most ${number(facts.max_grad_norm)}: it is not clipped.` : "This run does not clip gradients."}
          </p>
          <p>{facts.target !== null ? `The answer is ${learned.right ? "now" : "not yet"} within 0.1 standard deviations of the training numbers.`
            : learned.right ? "The answer is now the most probable one."
              : learned.loss < LEARNED ? "Its loss is low, though not each of its tokens is the most probable one." : "The answer is not yet the most probable one."}</p>
          <Table
            label="Steps" columns={["step", "loss before", "norm of gradient", "clipped to"]}
            rows={learned.steps.map(({ loss, grad_norm, clipped }, i) => ({ cells: [i + 1, number(loss, 4), number(grad_norm, 4), clipped < 1 ? percent(clipped) : "not"], attributes: { "data-step": i + 1 } }))}
          />
        </div>
      </div>
    </Section>
  );
}

/** Parameters that are shown: those that moved furthest. */
const MOST = 14;

function OthersSection({ learned, trace }: { learned: Learned; trace: Manifest }) {
  const others = learned.others.filter((one) => one.text !== trace.request.text);
  const worse = others.filter((one) => one.loss_after > one.loss_before).length;
  return (
    <Section title="Other texts" data-role="others">
      {others.length === 0 ? <p class="note">{isClassifier(trace) || isEmbedder(trace) || hasSource(trace)
        ? <>The run has no evaluated texts with right answers to compare with: <code>glassformer evaluate</code> makes some.</>
        : "The evaluation of such a model keeps no texts with right answers, so there are none to compare with."}</p> : (
        <>
          <p>Learning one answer may be forgetting another: of {others.length} texts that the run was evaluated on, {worse} {worse === 1 ? "has" : "have"} a larger loss than before.</p>
          <Table
            label="Losses of other texts" columns={["text", "right answer", "before", "after", "change"]}
            rows={others.map(({ text, answer, loss_before, loss_after }) => ({
              cells: [<bdi>{cut(text, 60)}</bdi>, <bdi>{answer}</bdi>, number(loss_before), number(loss_after), signed(loss_after - loss_before)],
            }))}
          />
          <p class="note">Losses of the right answers{trace.learning?.target == null ? " in nats per label, without label smoothing" : ", squared errors in standard deviations of the training numbers"}.</p>
        </>
      )}
    </Section>
  );
}

function MovedSection({ learned: { moved }, params }: { learned: Learned; params: Manifest["params"] }) {
  const every = Object.entries(moved).filter(([, share]) => share > 0).sort(([, a], [, b]) => b - a);
  const all = every.filter(([name]) => (params[name]?.axes.length ?? 2) > 1);
  const vectors = every.length - all.length;
  const limit = all[0]?.[1] ?? 1;
  return (
    <Section title="How far each matrix moved" data-role="moved">
      <p>The norm of its change, divided by its own norm before.</p>
      <Bars label="Change of each parameter" limit={limit} bars={all.slice(0, MOST).map(([name, share]) => ({ key: name, label: breakable(name), value: share, text: percent(share) }))} />
      {all.length > MOST && <p class="note">The {MOST} of {all.length} matrices that moved furthest; the least moved by {percent(all.at(-1)![1])}.</p>}
      {vectors > 0 && <p class="note">Without the {vectors} vectors, biases and norms: many begin at or near 0, and any step is far in their own norm.</p>}
    </Section>
  );
}
