/**
 * The operations of the loss and of the backward pass, each as `operations.ts` has those of the forward pass: what a
 * gradient is computed from, and the arithmetic of one of its values.
 */
import { visible } from "../tensors/format";
import * as back from "../tensors/backward";
import type { Numbers } from "../tensors/ops";
import type { Op } from "../types";
import { elementwise, lines, n, type Operation, p, products } from "./arithmetic";
import { labelsOf, nameOf } from "./labels";
import {
  type Arithmetic, type Cell, cellValue, input, inputData, inputNode, lastSize, pieces, requireParam, rowSlice, sizeOf, type Step, Unavailable, width,
} from "./stepData";

/** Most products that are recomputed in the browser at once: a few seconds. */
const MOST_PRODUCTS = 3e8;

/** The last input, g: the gradient of the operation's result. */
const gradient = (step: Step, slice = "") => inputData(step, step.node.inputs.length - 1, slice);
const gradientNode = (step: Step) => inputNode(step, step.node.inputs.length - 1);
const epsOf = ({ node }: Step) => Number(node.attrs.eps);
const zeros = (step: Step) => step.node.axes.reduce((product, axis) => product * axis.size, 1);

/** The tokens of the rows of g. */
const tokensOfGradient = (step: Step) => pieces(step, gradientNode(step), 0);

/** One column of a tensor of tokens, or one number where there are none. */
async function columnOf(step: Step, i: number, col: number): Promise<Numbers> {
  const node = inputNode(step, i);
  return inputData(step, i, `${node?.axes.at(-1)?.name}:${col}`);
}

/** Σ over tokens of what each adds. */
const overTokens = (step: Step, columns: Arithmetic["columns"], a: Numbers, b: Numbers) =>
  products(columns, a, b, tokensOfGradient(step).map(visible));

/** g times the slope of an activation. */
const activation = (name: keyof typeof back.SLOPES, expression: (x: number) => string): Operation => ({
  recompute: async (step) => {
    const g = await gradient(step);
    return Float64Array.from(await inputData(step, 0), (x, i) => back.SLOPES[name](x) * g[i]!);
  },
  cell: async (step, cell) => {
    const [x, g] = [await cellValue(step, cell, 0), await cellValue(step, cell, 1)];
    const slope = back.SLOPES[name](x);
    return lines(`Slope at x = ${n(x)}: ${expression(x)} = ${n(slope)}`, `g · slope = ${n(g)} · ${p(slope)} = ${n(g * slope)}`);
  },
});

const norm = (centred: boolean): Operation => ({
  recompute: async (step) => back.normBackward(await inputData(step, 0), await gradient(step), await requireParam(step, "weight"), lastSize(step.node), epsOf(step), centred),
  cell: async (step, cell) => {
    const slice = rowSlice(step, cell);
    const [x, g, weight] = [await inputData(step, 0, slice), await gradient(step, slice), await requireParam(step, "weight")];
    const row = back.normRow(x, g, weight, epsOf(step), centred);
    const [weighted, normalised] = [g[cell.col]! * weight[cell.col]!, row.normalised[cell.col]!];
    return lines(
      `Over the ${x.length} features: 1/σ = ${n(row.scale)}${centred ? `, mean of ĝ = ${n(row.mean)}` : ""}, mean of ĝ · x̂ = ${n(row.meanOfProducts)}.`,
      `ĝ = g · γ = ${n(g[cell.col]!)} · ${p(weight[cell.col]!)} = ${n(weighted)}, x̂ = ${n(normalised)}`,
      `(${n(weighted)}${centred ? ` − ${p(row.mean)}` : ""} − ${p(normalised)} · ${p(row.meanOfProducts)}) · ${n(row.scale)} = ${n(row.scale * (weighted - row.mean - normalised * row.meanOfProducts))}`,
    );
  },
});

const normWeight = (centred: boolean): Operation => ({
  recompute: async (step) => back.normWeightBackward(await inputData(step, 0), await gradient(step), lastSize(step.node), epsOf(step), centred),
  cell: async (step, { col }) => {
    const x = await input(step, 0);
    const [size, g] = [width(x), await gradient(step)];
    const rows = Array.from({ length: x.data.length / size }, (_, t) => x.data.subarray(t * size, (t + 1) * size));
    const normalised = rows.map((row, t) => back.normRow(row, g.subarray(t * size, (t + 1) * size), null, epsOf(step), centred).normalised[col]!);
    return overTokens(step, ["token", "g", "x̂", "product"], rows.map((_, t) => g[t * size + col]!), normalised);
  },
});

/** What the positions with a label count for; else 0. */
const shares = ({ node }: Step) => {
  const labels = labelsOf(node);
  const there = labels.filter((one) => one !== null).length;
  return labels.map((one) => (one === null ? 0 : 1 / there));
};

/** "for “cat”", the label of a row. */
function labelOf({ trace, node }: Step, row: number) {
  const id = labelsOf(trace.nodes.find((one) => one.op === "targets") ?? node)[row] ?? null;
  return { id, name: id === null ? "" : nameOf(trace, trace.nodes.find((one) => one.op === "targets") ?? node, id) };
}

export type BackwardOp = Extract<Op, `${string}_backward` | "targets" | "cross_entropy" | "mean_loss" | "error" | "square" | "one" | "sum" | "transposed_mix">;

/** The operations of a forward pass that a backward pass uses, too, are those of `operations.ts`. */
export const BACKWARD: Record<BackwardOp, Operation> = {
  targets: {
    recompute: async ({ node }) => {
      const [size, smoothing] = [lastSize(node), Number(node.attrs.smoothing)];
      return labelsOf(node).flatMap((label) => Array.from({ length: size }, (_, i) => (label === null ? 0 : smoothing / size + (i === label ? 1 - smoothing : 0))));
    },
    cell: async (step, cell) => {
      const { id } = labelOf(step, cell.row);
      const [size, smoothing] = [lastSize(step.node), Number(step.node.attrs.smoothing)];
      if (id === null) return lines("Nothing is learned at this position: 0.");
      const share = smoothing ? `${n(smoothing)} / ${size}` : "0";
      const value = smoothing / size + (cell.col === id ? 1 - smoothing : 0);
      return lines(cell.col === id ? `The right answer: 1 − ${n(smoothing)} + ${share} = ${n(value)}` : `Not the right answer: ${share} = ${n(value)}`);
    },
  },
  cross_entropy: {
    recompute: async (step) => back.crossEntropy(await inputData(step, 0), await inputData(step, 1), inputNode(step, 0)!.axes.at(-1)!.size),
    cell: async (step, cell) => {
      const row = step.node.axes[0]?.name === "token" ? cell.col : 0;
      const slice = step.node.axes[0]?.name === "token" ? `token:${row}` : "";
      const [z, q] = [await inputData(step, 0, slice), await inputData(step, 1, slice)];
      const all = back.logSumExp(z);
      const used = Array.from(q, (_, i) => i).filter((i) => q[i] !== 0);
      if (!used.length) return lines("Nothing is learned at this position: 0.");
      const worked = products([inputNode(step, 0)!.axes.at(-1)!.name === "class" ? "class" : "token", "target q", "−log p", "product"], used.map((i) => q[i]!), used.map((i) => all - z[i]!),
        used.map((i) => nameOf(step.trace, inputNode(step, 0)!, i)));
      return { ...worked, lines: [`−log p = log Σ e^z − z, and log Σ e^z = ${n(all)}.`] };
    },
  },
  mean_loss: {
    recompute: async (step) => [Array.from(await inputData(step, 0)).reduce((sum, x, i) => sum + x * (shares(step)[i] ?? 0), 0)],
    cell: async (step) => {
      const [each, share] = [await inputData(step, 0), shares(step)];
      const kept = share.map((_, i) => i).filter((i) => share[i]);
      return products(["label", "loss", `1/${kept.length}`, "share"], kept.map((i) => each[i]!), kept.map((i) => share[i]!), kept.map((i) => labelOf(step, i).name));
    },
  },
  error: {
    recompute: async (step) => [(await inputData(step, 0))[0]! - Number(step.node.attrs.number)],
    cell: async (step, cell) => lines(`${n((await inputData(step, 0))[0]!)} − ${p(Number(step.node.attrs.number))} = ${n(await cellValue(step, cell))}`),
  },
  square: elementwise((x) => x * x, (x) => `${p(x)}²`),
  one: {
    recompute: async () => [1],
    cell: async () => lines("1"),
  },
  sum: {
    recompute: async (step) => {
      const parts = await Promise.all(step.node.inputs.map((_, i) => inputData(step, i)));
      return Float64Array.from(parts[0]!, (_, i) => parts.reduce((sum, part) => sum + part[i]!, 0));
    },
    cell: async (step, cell) => {
      const values = await Promise.all(step.node.inputs.map((_, i) => cellValue(step, cell, i)));
      if (values.length === 1) return lines(`A sum passes its gradient back unchanged: ${n(values[0]!)}`);
      return lines(`${values.map((x, i) => (i ? p(x) : n(x))).join(" + ")} = ${n(values.reduce((a, b) => a + b, 0))}`);
    },
  },
  lookup_backward: {
    recompute: async (step) => {
      const rows = step.node.axes[0]!.size;
      return back.scattered(await inputData(step, 0), await gradient(step), lastSize(step.node), rows, (id) => id > 0 || !step.node.attrs.without_row_0);
    },
    cell: async (step, { row, col }) => {
      const [ids, g] = [await inputData(step, 0), await columnOf(step, 1, col)];
      const here = Array.from(ids, (_, t) => t).filter((t) => ids[t] === row && (row > 0 || !step.node.attrs.without_row_0));
      if (!here.length) return lines(`No token has id ${row}: 0.`);
      const tokens = tokensOfGradient(step);
      return products(["token", "g", "uses", "product"], here.map((t) => g[t]!), here.map(() => 1), here.map((t) => visible(tokens[t])));
    },
  },
  embedding_bag_backward: {
    recompute: async (step) => {
      const ids = await input(step, 0);
      const [perToken, size] = [width(ids), lastSize(step.node)];
      const each = back.forEachNgram(ids.data, await gradient(step), perToken, size, String(step.node.attrs.how));
      return back.scattered(ids.data, each, size, step.node.axes[0]!.size, (id) => id > 0);
    },
    cell: async (step, { row, col }) => {
      const [ids, g] = [await input(step, 0), await columnOf(step, 1, col)];
      const perToken = width(ids);
      const each = back.forEachNgram(ids.data, g, perToken, 1, String(step.node.attrs.how));
      const slots = Array.from(ids.data, (_, i) => i).filter((i) => ids.data[i] === row && row > 0);
      if (!slots.length) return lines("No token has this n-gram: 0.");
      const tokens = tokensOfGradient(step);
      const token = (slot: number) => Math.floor(slot / perToken);
      return products(["token", "g", "share", "product"], slots.map((i) => g[token(i)]!), slots.map((i) => (g[token(i)] ? each[i]! / g[token(i)]! : 0)), slots.map((i) => visible(tokens[token(i)])));
    },
  },
  positions_backward: {
    recompute: async (step) => {
      const out = new Float64Array(zeros(step));
      out.set(await gradient(step));
      return out;
    },
    cell: async (step, cell) => {
      const length = gradientNode(step)!.axes[0]!.size;
      return lines(cell.row < length ? `The gradient of token ${cell.row + 1}, unchanged: ${n((await columnOf(step, 0, cell.col))[cell.row]!)}` : "The text has no token at this position: 0.");
    },
  },
  layer_norm_backward: norm(true),
  rms_norm_backward: norm(false),
  layer_norm_weight_backward: normWeight(true),
  rms_norm_weight_backward: normWeight(false),
  linear_backward: {
    recompute: async (step) => {
      const [g, weight] = [await input(step, 0), await requireParam(step, "weight")];
      const [outputs, inputs] = [width(g), lastSize(step.node)];
      if (g.data.length * inputs > MOST_PRODUCTS) throw new Unavailable("it takes too many products for a browser");
      return back.transposedProduct(transposed(g.data, outputs), weight, g.data.length / outputs, inputs);
    },
    cell: async (step, cell) => {
      const g = await inputData(step, 0, gradientNode(step)!.axes.length > 1 ? `token:${cell.row}` : "");
      const id = step.node.params.weight!;
      const names = step.trace.params[id]!.axes;
      const weight = (await step.get(id, `${names[1]!.name}:${cell.col}`)).data;
      const across = gradientNode(step)!;
      const labels = Array.from(g, (_, i) => (/^(class|vocab)$/.test(across.axes.at(-1)!.name) ? nameOf(step.trace, across, i) : String(i + 1)));
      return products(["output", "g", "weight", "product"], g, weight, labels);
    },
  },
  linear_weight_backward: {
    recompute: async (step) => {
      const [x, g] = [await input(step, 0), await input(step, 1)];
      const [inputs, outputs] = [width(x), width(g)];
      if (g.data.length * inputs > MOST_PRODUCTS) throw new Unavailable("it takes too many products for a browser");
      return back.transposedProduct(g.data, x.data, outputs, inputs);
    },
    // What each token adds to one weight.
    cell: async (step, { row, col }) => overTokens(step, ["token", "g(t, o)", "x(t, i)", "product"], await columnOf(step, 1, row), await columnOf(step, 0, col)),
  },
  bias_backward: {
    recompute: async (step) => back.columnSums(await gradient(step), lastSize(step.node)),
    cell: async (step, { col }) => {
      const g = await columnOf(step, 0, col);
      return overTokens(step, ["token", "g", "1", "g"], g, Array.from(g, () => 1));
    },
  },
  rotate_backward: {
    recompute: async (step) => back.rotateBack(await gradient(step), sizeOf(step.node, "token"), lastSize(step.node), Number(step.node.attrs.base)),
    cell: async (step, cell) => {
      const g = await gradient(step, rowSlice(step, cell));
      const { angle, partner, sign } = back.rotationOf(cell.col, g.length, cell.row, Number(step.node.attrs.base));
      const [value, paired] = [g[cell.col]!, g[partner]!];
      return lines(
        `Position ${cell.row}, feature ${cell.col} paired with ${partner}: angle ${n(-angle)} radians, back.`,
        `${n(value)} · cos ${n(angle)} ${sign < 0 ? "+" : "−"} ${p(paired)} · sin ${n(angle)} = ${n(value * Math.cos(angle) - sign * paired * Math.sin(angle))}`,
      );
    },
  },
  transposed_mix: {
    recompute: async (step) => back.transposedMix(await inputData(step, 0), await inputData(step, 1), sizeOf(step.node, "head"), sizeOf(step.node, "token")),
    cell: async (step, { head, row, col }) => {
      const across = inputNode(step, 0)!.axes.at(-1)!.name;
      const [weights, x] = [await inputData(step, 0, `head:${head};${across}:${row}`), await inputData(step, 1, `head:${head};head_feature:${col}`)];
      const fromWeights = inputNode(step, 0)!.op === "softmax";
      return products(["query", fromWeights ? "weight" : "g", fromWeights ? "g" : "query", "product"], weights, x, pieces(step, inputNode(step, 1), 1).map(visible));
    },
  },
  softmax_backward: {
    recompute: async (step) => back.softmaxBackward(await inputData(step, 0), await gradient(step), lastSize(step.node)),
    cell: async (step, cell) => {
      const slice = rowSlice(step, cell);
      const [y, g] = [await inputData(step, 0, slice), await gradient(step, slice)];
      const mean = Array.from(y).reduce((sum, one, i) => sum + one * g[i]!, 0);
      const worked = products(["key", "weight y", "g", "product"], y, g, pieces(step, inputNode(step, 0), -1).map(visible));
      return { ...worked, mark: cell.col, lines: [`The sum of all products below is ${n(mean)}.`, `y · (g − sum) = ${n(y[cell.col]!)} · (${n(g[cell.col]!)} − ${p(mean)}) = ${n(y[cell.col]! * (g[cell.col]! - mean))}`] };
    },
  },
  relu_backward: activation("relu", (x) => (x > 0 ? "x > 0" : "x ≤ 0")),
  gelu_backward: activation("gelu", () => "Φ(x) + x φ(x)"),
  gelu_tanh_backward: activation("gelu_tanh", () => "(1 + t) / 2 + x/2 · (1 − t²) u′"),
  silu_backward: activation("silu", (x) => `s (1 + x (1 − s)), s = ${n(back.sigmoid(x))},`),
  square_backward: activation("square", (x) => `2 · ${p(x)}`),
  tanh_backward: activation("tanh", (x) => `1 − tanh² x = 1 − ${n(Math.tanh(x) ** 2)}`),
  swiglu_gate_backward: {
    recompute: async (step) => {
      const [x, g] = [await inputData(step, 1), await gradient(step)];
      return Float64Array.from(await inputData(step, 0), (gate, i) => back.gateSlope(gate, x[i]!) * g[i]!);
    },
    cell: async (step, cell) => {
      const [gate, x, g] = [await cellValue(step, cell, 0), await cellValue(step, cell, 1), await cellValue(step, cell, 2)];
      const slope = back.siluSlope(gate);
      return lines(`Slope of SiLU at the gate ${n(gate)}: s (1 + gate (1 − s)), s = ${n(back.sigmoid(gate))}, = ${n(slope)}`, `g · x · slope = ${n(g)} · ${p(x)} · ${p(slope)} = ${n(g * x * slope)}`);
    },
  },
  swiglu_backward: {
    recompute: async (step) => {
      const g = await gradient(step);
      return Float64Array.from(await inputData(step, 0), (gate, i) => back.swigluSlope(gate) * g[i]!);
    },
    cell: async (step, cell) => {
      const [gate, g] = [await cellValue(step, cell, 0), await cellValue(step, cell, 1)];
      return lines(`g · SiLU(${n(gate)}) = ${n(g)} · ${p(back.swigluSlope(gate))} = ${n(g * back.swigluSlope(gate))}`);
    },
  },
  pool_backward: {
    recompute: async (step) => {
      const x = await input(step, 0);
      return back.poolBackward(x.data, await inputData(step, 1), width(x), String(step.node.attrs.how), step.node.inputs[2] ? await inputData(step, 2) : null);
    },
    cell: pooledCell,
  },
  pin_zero_backward: {
    recompute: async (step) => (await gradient(step)).slice(1),
    cell: async (step) => lines(`The gradient of the second class; the first logit is fixed at 0: ${n((await gradient(step))[1] ?? NaN)}`),
  },
  cross_entropy_backward: {
    recompute: async (step) => {
      const [probabilities, q, g] = [await inputData(step, 0), await inputData(step, 1), await gradient(step)];
      const size = lastSize(step.node);
      return Float64Array.from(probabilities, (x, i) => (x - q[i]!) * g[Math.floor(i / size)]!);
    },
    cell: async (step, cell) => {
      const [x, q] = [await cellValue(step, cell, 0), await cellValue(step, cell, 1)];
      const g = (await gradient(step))[step.node.axes.length > 1 ? cell.row : 0]!;
      return lines(`(p − q) · g = (${n(x)} − ${n(q)}) · ${p(g)} = ${n((x - q) * g)}`);
    },
  },
  mean_loss_backward: {
    recompute: async (step) => {
      const g = (await gradient(step))[0]!;
      return shares(step).map((share) => share * g);
    },
    cell: async (step, cell) => {
      const [share, g] = [shares(step)[cell.col] ?? 0, (await gradient(step))[0]!];
      return lines(share ? `${n(g)} / ${Math.round(1 / share)} = ${n(g * share)}` : "Nothing is learned at this position: 0.");
    },
  },
};

/** The transpose of x (L, n). */
function transposed(x: Numbers, n: number): Float64Array {
  const rows = x.length / n;
  return Float64Array.from({ length: x.length }, (_, i) => x[(i % rows) * n + Math.floor(i / rows)]!);
}

async function pooledCell(step: Step, { row, col }: Cell): Promise<Arithmetic> {
  const x = await input(step, 0);
  const [size, length] = [width(x), x.shape[0]!];
  const mask = step.node.inputs[2] ? await inputData(step, 2) : null;
  const g = await inputData(step, 1);
  const column = Array.from({ length }, (_, t) => x.data[t * size + col]!);
  const real = column.map((_, t) => !mask || mask[t] !== 0);
  const names = String(step.node.attrs.how).split("+");
  const share = (name: string) => back.poolShares(column, real, name)[row]!;
  return products(["pooling", "g", "share", "product"], names.map((_, i) => g[i * size + col]!), names.map(share), names);
}
