/** The arithmetic of one number of an update, line by line, from the tensors of the optimizer's last step. */
import { sliceOffsets, type TensorValue } from "../../tensors/tensor";
import { COEFFICIENTS, FEW, ITERATIONS, MANY, muonStep, productsOf, ROUNDING } from "../../tensors/optimizers";
import type { Manifest, ParameterGroup } from "../../types";

/** One line: what it is, the arithmetic, and, of a number that the optimizer keeps, how far the recomputed one is from it. */
export interface Line {
  name: string;
  text: string;
  /** The difference, and the bound that rounding gives it. */
  check?: { delta: number; bound: number };
  last?: boolean;
}

export type Read = (id: string, slice?: string) => Promise<TensorValue>;

/** Matrices whose orthogonalisation takes more products are not recomputed in the browser. */
const MOST_PRODUCTS = 1.5e9;

interface Place {
  parameter: string;
  row: number;
  col: number;
}

/** The slice of one number of a parameter. */
export function sliceOfPlace(trace: Manifest, { parameter, row, col }: Place): string {
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
    ...(decay ? [{ name: "weight decay", text: `θ (1 − lr λ) = ${number6(before)} · (1 − ${n(lr)} · ${n(decay)}) = ${number6(decayed)}` }] : []),
    { name: "step", text: `lr · m̂ / (√v̂ + ε) = ${n(lr)} · ${p(m / left1)} / (${n(Math.sqrt(v / left2))} + ${n(c.eps!)}) = ${n(update)}` },
    { name: "θ after", text: `${number6(decayed)} − ${p(update)} = ${number6(value)}`, check: { delta: Math.abs(value - after), bound }, last: true },
  ];
}

async function muonLines(trace: Manifest, { constants: c, dtype }: ParameterGroup, place: Place, before: number, after: number, read: Read): Promise<Line[]> {
  const axes = trace.params[place.parameter]!.axes;
  const [rows, cols] = axes.map(({ size }) => size) as [number, number];
  if (productsOf(rows, cols) > MOST_PRODUCTS) return [{ name: "not recomputed", text: `a matrix of ${rows} × ${cols} takes too many products for a browser` }, { name: "θ after", text: number6(after), last: true }];
  const whole = async (part: string) => (await read(`${place.parameter}.${part}`)).data;
  const [start, g, buffer] = [await whole("before"), await whole("clipped_grad"), await whole("momentum_buffer_before")];
  const found = muonStep(start, g, buffer, rows, cols, c, dtype === "bfloat16" ? dtype : "float32");
  const [at] = sliceOffsets([rows, cols], axes.map(({ name }) => name), sliceOfPlace(trace, place)) as [number];
  const kept = (await whole("momentum_buffer"))[at]!;
  const bound = 4 * ROUNDING * (Math.abs(c.momentum! * buffer[at]!) + Math.abs(g[at]!));
  const decayed = before * (1 - c.lr! * c.weight_decay!);
  const [a, b, d] = COEFFICIENTS;
  return [
    { name: "momentum m", text: `μ m + (1 − μ) g = ${n(c.momentum!)} · ${p(buffer[at]!)} + ${n(1 - c.momentum!)} · ${p(g[at]!)} = ${n(found.momentum[at]!)}`, check: { delta: Math.abs(found.momentum[at]! - kept), bound } },
    { name: "Nesterov’s M", text: `μ m + (1 − μ) g, one gradient ahead = ${n(found.nesterov[at]!)}` },
    { name: "X, orthogonal", text: `M / |M|, then ${ITERATIONS} times X ← ${a} X ${b < 0 ? "−" : "+"} ${Math.abs(b)} A X + ${d} A² X with A = X Xᵀ, of the whole matrix${dtype === "bfloat16" ? " in bfloat16, where rounding is amplified" : ""} = ${n(found.orthogonal[at]!)}` },
    { name: "scale", text: `√max(1, M/N) = √max(1, ${rows}/${cols}) = ${n(found.factor)}` },
    ...(c.weight_decay ? [{ name: "weight decay", text: `θ (1 − lr λ) = ${number6(before)} · (1 − ${n(c.lr!)} · ${n(c.weight_decay)}) = ${number6(decayed)}` }] : []),
    {
      name: "θ after", text: `${number6(decayed)} − lr · scale · X = ${number6(decayed)} − ${n(c.lr!)} · ${n(found.factor)} · ${p(found.orthogonal[at]!)} = ${number6(found.after[at]!)}`,
      check: { delta: Math.abs(found.after[at]! - after), bound: c.lr! * found.factor * found.bound + 4 * ROUNDING * Math.abs(before) }, last: true,
    },
  ];
}

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
