/**
 * A step computed from its inputs by the table of operations: all its values, which are compared with the model's, and the
 * arithmetic of one value, which is the same expression with its numbers.
 */
import { count, number, visible } from "../tensors/format";
import { BLOCKED, magnitude, sliceOffsets, type TensorValue } from "../tensors/tensor";
import { defined, type Names, type Numbers, offsetIn, run, softmax, TooMuch, type Value, type Values, walk } from "../tensors/walk";
import type { Axis, Manifest, Prediction, Row, TraceNode, Tree } from "../types";
import { editsOf } from "./edits";
import {
  type Arithmetic, axisLabels, type Cell, cellValue, firstPosition, hasCandidates, idsSlice, isGradient, labelsOf, lastSize, nameOf, ngramsOf, nodeOf,
  pieceOf, predictionAt, PROBABILITIES, rowOf, type Step, streamOf, table, type TensorReader, tokensOf, Unavailable,
} from "./steps";

/** The row of a step: "pool" with the constant how="mean" is "pool:mean". */
export const rowOfStep = ({ op, attrs }: TraceNode): Row | undefined =>
  table.rows[`${op}:${attrs.how}`] ?? table.rows[`${op}:${attrs.scheme}`] ?? table.rows[op];

/** The ids of the steps and parameters that are a step's arguments, by name; where there are fewer, an optional one is missing. */
export function argumentsOf({ inputs, params }: TraceNode, { arguments: takes, optional }: Row): Record<string, string> {
  const all = takes.filter((name) => !(name in params) && (name === "mask" || !optional.includes(name)));
  const names = inputs.length < all.length ? all.filter((name) => !optional.includes(name)) : all;
  return Object.fromEntries([...names.map((name, i) => [name, inputs[i]!]), ...takes.filter((name) => name in params).map((name) => [name, params[name]!])]);
}

const sizes = (axes: readonly Axis[]) => axes.map((axis) => axis.size);
const namesOfShape = (shape: readonly number[]): Names => ({ C: shape.at(-1) ?? 1, R: shape.at(-2) ?? 1, H: shape.at(-3) ?? 1 });

/** Constants as the expressions need them: labels as numbers, of which those that are missing are NaN. */
const constants = ({ attrs }: TraceNode): Names =>
  Object.fromEntries(Object.entries(attrs).map(([name, x]) => [name, Array.isArray(x) ? { shape: [x.length], data: x.map((one) => one ?? NaN) } : (x as number)]));

/** Fetches what the expression of a step needs. Of a table of which rows are gathered, those that are. */
async function namesOf(step: Step, row: Row): Promise<Names> {
  const { node, get, trace } = step;
  const names: Names = { first: firstPosition(step), ...namesOfShape(sizes(node.axes)), ...constants(node) };
  for (const name of row.optional) names[name] = name === "mask" ? null : 0;
  const ids = argumentsOf(node, row);
  for (const [name, id] of Object.entries(ids)) {
    const picked = name === "weight" && ids.ids ? [...new Set(Array.from((await get(ids.ids)).data))].sort((a, b) => a - b) : undefined;
    const { shape, data } = await get(id, picked && idsSlice(trace.params[id]?.axes[0]?.name ?? "out", picked));
    names[name] = { shape, data, rows: picked };
  }
  return names;
}

/** Computes all values of a step. */
export async function recompute(step: Step): Promise<Numbers> {
  const { node } = step, row = rowOfStep(node);
  if (node.op in SOURCES) return SOURCES[node.op]!.values(step);
  if (!row?.gives) throw new Unavailable(`the page does not know the operation ${node.op}`);
  return run(row, await namesOf(step, row));
}

const n = (x: number) => number(x, 4);
/** In parentheses if negative. */
const p = (x: number) => (x < 0 ? `(${n(x)})` : n(x));
const lines = (...text: string[]): Arithmetic => ({ lines: text, terms: [], columns: ["", "", "", ""] });

/** The names that a reader sees, where they are not those of the table. */
const SYMBOLS: Record<string, string> = { x_hat: "x̂", g_hat: "ĝ", variance: "σ²", real: "takes part", largest: "is the largest", seen: "score", eps: "ε", e: "u" };
const symbol = (name: string) => SYMBOLS[name] ?? name;

/** How a word is written around its argument. */
const WRITTEN: Record<string, (x: string) => string> = {
  exp: (x) => `e^${x}`, sq: (x) => `${x}²`, rsqrt: (x) => `1/√${x}`, tanh: (x) => `tanh ${x}`, sigmoid: (x) => `sigmoid ${x}`,
  Phi: (x) => `Φ(${x})`, phi: (x) => `φ(${x})`, max0: (x) => `max(0, ${x})`, positive: (x) => `[${x} > 0]`, nonzero: (x) => x,
};
const SIGNS: Record<string, string> = { "+": "+", "-": "−", "*": "·", "/": "/" };
const RANK: Record<string, number> = { "+": 1, "-": 1, "*": 2, "/": 2 };

const at = (x: Value, shape: readonly number[], i: number): number => (typeof x === "number" ? x : x ? x.data[offsetIn(x, shape, i)]! : NaN);

/** An expression with the numbers of one place of its result; what is computed from many numbers is one number. */
function written(tree: Tree, names: Names, shape: readonly number[], i: number, rank = 0): string {
  if (Array.isArray(tree) && tree[0] in SIGNS) {
    const own = RANK[tree[0]]!;
    const text = `${written(tree[1]!, names, shape, i, own)} ${SIGNS[tree[0]]} ${written(tree[2]!, names, shape, i, own + (tree[0] === "-" || tree[0] === "/" ? 1 : 0.5))}`;
    return own < rank ? `(${text})` : text;
  }
  if (Array.isArray(tree) && tree[0] in WRITTEN) {
    const inner = written(tree[1]!, names, shape, i);
    return WRITTEN[tree[0]]!(/[ −]/.test(inner) && !/^(Φ|φ|max0|positive|nonzero)$/i.test(tree[0]) ? `(${inner})` : inner);
  }
  const value = at(walk(tree, names), shape, i);
  return rank ? p(value) : n(value);
}

/** What is summed: the factors along the axis that a word sums over, and what stands along it. */
interface Summed {
  a: number[];
  b: number[] | null;
  /** The expression whose rows or columns are summed, and whether over columns. */
  tree: Tree;
  isDown: boolean;
}

/** The terms of a sum, mean or matrix product at one place of its result. */
function summed(tree: Tree, names: Names, shape: readonly number[], i: number): Summed | null {
  if (!Array.isArray(tree) || !/^(@|sum|mean|down|over_rows|total)$/.test(tree[0])) return null;
  const [col, row] = [i % (shape.at(-1) ?? 1), Math.floor(i / (shape.at(-1) ?? 1)) % (shape.at(-2) ?? 1)];
  const head = Math.floor(i / (shape.at(-1) ?? 1) / (shape.at(-2) ?? 1));
  if (tree[0] === "@") {
    const [x, y] = [walk(tree[1]!, names) as Values, walk(tree[2]!, names) as Values];
    const [k, cols] = [x.shape.at(-1)!, y.shape.at(-1)!];
    const [left, right] = [(x.shape.length > 2 ? head * x.shape.at(-2)! : 0) * k + row * k, y.shape.length > 2 ? head * k * cols : 0];
    const all = Array.from({ length: k }, (_, j) => j);
    return { a: all.map((j) => x.data[left + j]!), b: all.map((j) => y.data[right + j * cols + col]!), tree: tree[1]!, isDown: false };
  }
  const inner = tree[1]!, whole = walk(inner, names) as Values, isDown = tree[0] === "down" || tree[0] === "over_rows";
  const width = whole.shape.at(-1) ?? 1, height = whole.shape.at(-2) ?? 1;
  const place = isDown ? (j: number) => (tree[0] === "down" ? row * (shape.length > 1 ? height * width : 0) : 0) + j * width + col : (j: number) => (tree[0] === "total" ? j : Math.floor(i / (shape.at(-1) ?? 1)) * width + j);
  const all = Array.from({ length: tree[0] === "over_rows" ? whole.data.length / width : isDown ? height : tree[0] === "total" ? whole.data.length : width }, (_, j) => place(j));
  const factor = (one: Tree) => all.map((j) => at(walk(one, names), whole.shape, j));
  const parts = Array.isArray(inner) && inner[0] === "*" ? [factor(inner[1]!), factor(inner[2]!)] : [factor(inner), tree[0] === "mean" ? all.map(() => 1 / all.length) : null];
  return { a: parts[0]!, b: parts[1]!, tree: inner, isDown };
}

/** The first sum within a tree. */
function sumIn(tree: Tree): Tree | null {
  if (!Array.isArray(tree)) return null;
  if (/^(@|sum|mean|down|over_rows|total)$/.test(tree[0])) return tree;
  return tree.slice(1).map((part) => sumIn(part as Tree)).find(Boolean) ?? null;
}

/** The first argument that a tree names, and whether its last two axes are swapped. */
function firstName(tree: Tree, ids: Record<string, string>, swapped = false): [string, boolean] | null {
  if (typeof tree === "string") return tree in ids ? [tree, swapped] : null;
  if (!Array.isArray(tree)) return null;
  return tree.slice(1).map((part) => firstName(part as Tree, ids, tree[0] === "T" ? !swapped : swapped)).find(Boolean) ?? null;
}

/** What the terms of a sum are called, and their labels: tokens, n-grams, classes or numbers. */
function labelled(step: Step, { tree, isDown, a }: Summed, ids: Record<string, string>, row: number): [string, string[]] {
  if (step.node.op === "embedding_bag") return ["n-gram", a.map((_, i) => ngramsOf(step.trace, row)[i] ?? "none")];
  const found = firstName(tree, ids), id = found && ids[found[0]];
  const node = id ? nodeOf(step.trace, id) : undefined;
  const axes = node?.axes ?? (id ? step.trace.params[id]?.axes : undefined) ?? [];
  const axis = axes.at((isDown !== (found?.[1] ?? false)) ? -2 : -1);
  const numbers = a.map((_, i) => String(i));
  if (!axis || axis.size !== a.length) return [axis?.name ?? "term", numbers];
  if (axis.name === "class" || axis.name === "vocab") return [axis.name === "class" ? "class" : "token", a.map((_, i) => nameOf(step.trace, { ...node!, axes: [axis] } as TraceNode, i))];
  const names = axisLabels(step.trace, axis);
  return [axis.name === "key" ? "token" : axis.name.replace(/^(head_|heads_)feature.*/, "feature"), names?.length === a.length ? names.map(visible) : numbers];
}

const letterOf = (tree: Tree, ids: Record<string, string>, fallback: string) => symbol(firstName(tree, ids)?.[0] ?? (typeof tree === "string" ? tree : fallback));

/** The arithmetic of one value. */
export async function arithmetic(step: Step, cell: Cell): Promise<Arithmetic> {
  const { node } = step;
  if (node.id === PROBABILITIES) return probabilityCell(step, cell);
  if (node.op in SOURCES) return SOURCES[node.op]!.cell(step, cell);
  const prediction = hasCandidates(node) ? predictionAt(step.trace, cell.position) : undefined;
  const one = hasCandidates(node) ? ofCandidates(step, prediction, [prediction?.top[cell.col]?.id ?? cell.col]) : step;
  const row = rowOfStep(node);
  if (!row?.gives) throw new Unavailable(`the page does not know the operation ${node.op}`);
  const names = defined(row, await namesOf(one, row)), ids = argumentsOf(node, row);
  const shape = sizes(one.node.axes), [cols, rows] = [shape.at(-1) ?? 1, shape.at(-2) ?? 1];
  const i = one === step ? ((node.axes.length > 2 ? cell.head : 0) * rows + (node.axes.length > 1 ? cell.row : 0)) * cols + cell.col : 0;
  const gives = row.gives;
  const inner = sumIn(gives), terms = inner && summed(inner, names, shape, i);
  const worked = terms ? tableOf(one, terms, inner, ids, cell.row) : lines();
  if (terms && inner === gives) return worked;
  if (terms && Array.isArray(gives) && gives[0] === "+" && gives[1] === inner && typeof gives[2] === "string") {
    const bias = names[gives[2]];
    return { ...worked, extra: typeof bias === "number" ? undefined : { label: "bias b", value: at(bias, shape, i) } };
  }
  const value = at(walk(gives, names), shape, i);
  const definitions = Object.entries(row.where).map(([name, tree]) => {
    const [text, found] = [written(tree, names, shape, i), n(at(names[name], shape, i))];
    return `${symbol(name)} = ${text === found ? found : `${text} = ${found}`}`;
  });
  const turned = angleLine(step, gives, cell);
  const text = written(gives, names, shape, i), unchanged = Array.isArray(gives) && !(gives[0] in SIGNS) && !(gives[0] in WRITTEN);
  const gathered = unchanged && gives[0] === "gather" ? `row ${(names.ids as Values).data[Math.floor(i / cols)]} of the ${/(bigram|segment)s$/.exec(node.id)?.[1] ?? "embedding"} table, feature ${cell.col}` : "";
  return { ...worked, mark: terms && !terms.isDown ? cell.col : undefined, lines: [...turned, ...definitions, unchanged || typeof gives === "string" ? `${gathered || "unchanged"}: ${n(value)}` : `${text} = ${n(value)}`] };
}

/** The angle of a wave or a rotation, which the words of the table compute from the position. */
function angleLine(step: Step, gives: Tree, { row, col }: Cell): string[] {
  const [what, position, size] = [JSON.stringify(gives), row + firstPosition(step), lastSize(step.node)];
  if (what.includes('"waves"')) {
    const [even, name] = [col - (col % 2), col % 2 ? "cos" : "sin"];
    return [`Position ${position}, feature ${col}: ${name}(${position} / 10000^(${even}/${size})) = ${name} ${n(position / 10000 ** (even / size))}`];
  }
  if (!what.includes('"cosines"')) return [];
  const [j, base] = [col % (size / 2), Number(step.node.attrs.base)];
  return [`Position ${position}, feature ${col} paired with ${(col + size / 2) % size}: angle ${position} · ${base}^(−${2 * j}/${size}) = ${n(position * base ** ((-2 * j) / size))} radians.`];
}

function tableOf(step: Step, terms: Summed, tree: Tree, ids: Record<string, string>, row: number): Arithmetic {
  const [what, labels] = labelled(step, terms, ids, row);
  const inner = Array.isArray(tree) ? tree : [];
  const factors = inner[0] === "@" ? [inner[1]!, inner[2]!] : Array.isArray(inner[1]) && inner[1][0] === "*" ? [inner[1][1]!, inner[1][2]!] : [inner[1]!, inner[1]!];
  const [first, second] = [letterOf(factors[0]! as Tree, ids, "value"), terms.b ? letterOf(factors[1]! as Tree, ids, "factor") : ""];
  const rows = terms.a.map((a, i) => ({ label: labels[i]!, a, b: terms.b?.[i], value: a * (terms.b?.[i] ?? 1) }));
  const there = rows.filter(({ value }) => value !== 0);
  const isSparse = step.node.op === "embedding_bag" || there.length * 4 < rows.length; // what takes no part, or is blocked
  return { lines: [], terms: isSparse ? there : rows, columns: [what, first, second, second ? "product" : "value"] };
}


/** Logits over a vocabulary: the step of some candidates, of which alone the weights are fetched. The ids are in ascending order. */
function ofCandidates({ trace, node, get }: Step, prediction: Prediction | undefined, ids: readonly number[]): Step {
  const params = new Set(Object.values(node.params));
  const row = node.axes.length > 1 && prediction ? `token:${rowOf(trace, prediction)}` : "";
  return {
    trace,
    node: { ...node, axes: [{ ...node.axes.at(-1)!, size: ids.length }] },
    get: (of) => get(of, params.has(of) ? idsSlice(trace.params[of]?.axes[0]?.name ?? "out", ids) : row),
  };
}

function probabilityCell({ trace }: Step, { position, col }: Cell): Arithmetic {
  const prediction = predictionAt(trace, position);
  const [logit, total] = [prediction?.top[col]?.logit ?? NaN, prediction?.logsumexp ?? NaN];
  return lines(
    `The logarithm of the sum of e^logit over all ${prediction?.position === null ? "classes" : `${count(trace.model.vocab_size)} tokens`} is ${n(total)}.`,
    `e^(${n(logit)} − ${p(total)}) = ${n(Math.exp(logit - total))}`,
  );
}

/** What no expression gives: what the tokenizer, the masks and the answer are; and the sum of any number of gradients. */
const SOURCES: Record<string, { values: (step: Step) => Numbers | Promise<Numbers>; cell: (step: Step, cell: Cell) => Promise<Arithmetic> }> = {
  ids: {
    values: ({ trace, node }) => streamOf(trace, tokensOf(node))?.ids ?? [],
    cell: async (step, cell) => lines(`“${visible(streamOf(step.trace, tokensOf(step.node))?.pieces[cell.col])}” has id ${await cellValue(step, cell)} in the vocabulary of ${count(step.trace.model.vocab_size)} tokens.`),
  },
  ngram_ids: {
    values: ({ trace }) => trace.streams[0]?.ngram_ids?.flat() ?? [],
    cell: async (step, cell) => lines(`${ngramsOf(step.trace, cell.row)[cell.col] ?? "None"}: ${await cellValue(step, cell)}`),
  },
  bigram_ids: {
    values: ({ trace, node }) => trace.streams[0]?.bigram_ids?.slice(firstPosition({ node }), firstPosition({ node }) + lastSize(node)) ?? [],
    cell: async (step, cell) => {
      const [row, pair] = [await cellValue(step, cell), step.trace.streams[0]?.bigrams?.[cell.col + firstPosition(step)]];
      return lines(row ? `“${pair}” has row ${row} of the bigram table.` : "This token and the one before it are not a listed bigram.");
    },
  },
  segment_ids: {
    values: ({ trace, node }) => {
      const [ids, first] = [trace.streams[0]!.ids, firstPosition({ node })];
      const end = ids.indexOf(Number(node.attrs.separator));
      return Float64Array.from({ length: lastSize(node) }, (_, i) => +(end >= 0 && first + i > end));
    },
    cell: async () => lines("A text alone is segment 0, the second text of a pair 1."),
  },
  mask: {
    values: ({ trace, node }) => {
      const [kind, keys] = [node.attrs.kind, lastSize(node)];
      if (kind !== "causal" && kind !== "padding") throw new Unavailable(kind === "word" ? "this mask keeps one token, the first of the word that is tagged" : "this mask was passed to the model by its caller");
      const padding = streamOf(trace, node.axes.at(-1)?.stream)?.padding ?? [];
      const rows = node.axes.length > 1 ? node.axes.at(-2)!.size : 1;
      return Float64Array.from({ length: rows * keys }, (_, i) => Number(kind === "causal" ? i % keys <= Math.floor(i / keys) : !padding[i % keys]));
    },
    cell: async (step, cell) => lines(await cellValue(step, cell) ? "Not masked." : "Masked: its weight is exactly 0."),
  },
  targets: {
    values: ({ node }) => {
      const [size, smoothing] = [lastSize(node), Number(node.attrs.smoothing)];
      return labelsOf(node).flatMap((label) => Array.from({ length: size }, (_, i) => (label === null ? 0 : smoothing / size + (i === label ? 1 - smoothing : 0))));
    },
    cell: async ({ trace, node }, cell) => {
      const [id, size, smoothing] = [labelsOf(node)[cell.row] ?? null, lastSize(node), Number(node.attrs.smoothing)];
      if (id === null) return lines("Nothing is learned at this position: 0.");
      const share = smoothing ? `${n(smoothing)} / ${size}` : "0";
      const value = smoothing / size + (cell.col === id ? 1 - smoothing : 0);
      return lines(cell.col === id ? `The right answer, “${pieceOf(trace, id)}”: 1 − ${n(smoothing)} + ${share} = ${n(value)}` : `Not the right answer: ${share} = ${n(value)}`);
    },
  },
  one: { values: () => [1], cell: async () => lines("1") },
  sum: {
    values: async ({ node, get }) => {
      const parts = await Promise.all(node.inputs.map((id) => get(id)));
      return Float64Array.from(parts[0]!.data, (_, i) => parts.reduce((sum, part) => sum + part.data[i]!, 0));
    },
    cell: async (step, cell) => {
      const found = await Promise.all(step.node.inputs.map((_, i) => cellValue(step, cell, i)));
      if (found.length === 1) return lines(`An addition or subtraction passes its gradient back unchanged: ${n(found[0]!)}`);
      return lines(`${found.map((x, i) => (i ? p(x) : n(x))).join(" + ")} = ${n(found.reduce((a, b) => a + b, 0))}`);
    },
  },
};

export interface CheckResult {
  state: "ok" | "bad" | "unavailable";
  /** Largest difference; null where it could not be computed. */
  delta: number | null;
  /** What was compared, or why nothing could be. */
  words: string;
}

/** The largest difference; Infinity where one value is NaN. */
function maxDifference(a: Numbers, b: Numbers): number {
  let largest = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = a[i] === b[i] || (a[i]! < -BLOCKED && b[i]! < -BLOCKED) ? 0 : Math.abs(a[i]! - b[i]!);
    if (!(difference <= largest)) largest = Number.isNaN(difference) ? Infinity : difference;
  }
  return largest;
}

/** Rounding error of 16-bit floats, relative and absolute. */
const [F16_RELATIVE, F16_ABSOLUTE] = [2 ** -11, 2 ** -25];

/** A few roundings of 32-bit floats, in sums of products that cancel as gradients do. */
const F32_RELATIVE = 2 ** -21;

/** A copy with every float perturbed by its rounding error, in pseudorandom directions: 16-bit floats, or all of them. */
function perturbed(value: TensorValue, all: boolean): TensorValue {
  const [relative, absolute] = value.dtype === "f16" ? [F16_RELATIVE, F16_ABSOLUTE] : value.dtype === "f32" && all ? [F32_RELATIVE, 0] : [0, 0];
  if (!relative) return value;
  const data = Float32Array.from(value.data, (x, i) => x + (Math.abs(x) * relative + absolute) * (Math.sin(i * 12.9898) * 43758.5453 % 1 > 0 ? 1 : -1));
  return { ...value, data };
}

/**
 * Recomputes a step and compares. `position` selects the row of logits over a vocabulary. Values may differ by rounding:
 * by 1e-4 of the largest, or, with the 16-bit floats of a saved page, by what perturbing those by their rounding error
 * changes. A gradient may be a small difference of large numbers: there perturbing 32-bit floats counts, too.
 */
export async function checkNode(trace: Manifest, node: TraceNode, position: number, source: TensorReader): Promise<CheckResult> {
  let isF16 = false;
  const get: Step["get"] = async (id, slice) => {
    try {
      const value = await source.tensor(trace.id, id, slice);
      isF16 ||= value.dtype === "f16";
      return value;
    } catch (error) {
      throw new Unavailable(source.live ? (error as Error).message : `the tensor ${id} is not in this saved page`);
    }
  };
  try {
    const prediction = hasCandidates(node) ? predictionAt(trace, position) : undefined;
    if (hasCandidates(node) && !prediction) throw new Unavailable("there is no prediction here");
    const shown = prediction?.top.map((one) => (node.id === PROBABILITIES ? Math.exp(one.log_prob) : one.logit)) ?? (await get(node.id)).data;
    const again = async (read: Step["get"]) => {
      const step = { trace, node, get: read };
      return withEdits(step, await (prediction ? candidates(step, prediction) : recompute(step)), shown);
    };
    const computed = await again(get);
    const words = [prediction && `the ${shown.length} candidates shown`, editWords(trace, node), isF16 && "from values saved as 16-bit floats"].filter(Boolean).join(", ");
    if (computed.length !== shown.length) {
      return { state: "bad", delta: Infinity, words: `expected ${computed.length} values, got ${shown.length}` };
    }
    const [delta, largest] = [maxDifference(computed, shown), magnitude(shown)];
    const ofGradient = isGradient(node);
    const rounding = isF16 || ofGradient ? 4 * maxDifference(computed, await again(async (id, slice) => perturbed(await get(id, slice), ofGradient))) : 0;
    const allowed = rounding + (isF16 ? 2 * (largest * F16_RELATIVE + F16_ABSOLUTE) : 1e-4 * largest);
    return { state: delta <= allowed ? "ok" : "bad", delta, words };
  } catch (error) {
    if (error instanceof Unavailable || error instanceof TooMuch) return { state: "unavailable", delta: null, words: error.message };
    throw error;
  }
}

/** What scores of blocked keys are set to: a quarter of the lowest 32-bit float. */
const BLOCKED_SCORE = -(2 - 2 ** -23) * 2 ** 125;

/** The recomputed values of a step with its edits, as the forward pass used them. */
async function withEdits({ trace, node, get }: Step, values: Numbers, shown: Numbers): Promise<Numbers> {
  const edits = editsOf(trace, node.id);
  if (!edits.length) return values;
  if (node.axes.at(-1)?.name === "vocab") throw new Unavailable("the logits were edited");
  const edited = Float64Array.from(values);
  for (const { slice, kind, number, source } of edits) {
    const from = kind === "skip" ? (await get(source)).data : kind === "B" || kind === "mean" ? shown : null;
    for (const i of sliceOffsets(node.axes.map((axis) => axis.size), node.axes.map((axis) => axis.name), slice)) {
      edited[i] = from ? from[i]! : kind === "scale" ? edited[i]! * number : kind === "set" ? number : BLOCKED_SCORE;
    }
  }
  return edited;
}

function editWords(trace: Manifest, node: TraceNode): string {
  const kinds = editsOf(trace, node.id).map((edit) => edit.kind);
  return kinds.includes("B") ? "except the values of the second text" : kinds.includes("mean") ? "except the means of reference texts" : kinds.length ? "with what you set" : "";
}

/** The logits or probabilities of one prediction's candidates. */
async function candidates(step: Step, prediction: Prediction): Promise<Numbers> {
  const ids = prediction.top.map(({ id }) => id), ascending = [...ids].sort((a, b) => a - b);
  if (step.node.id === PROBABILITIES) {
    const found = softmax((await step.get("logits", prediction.position === null ? "" : `token:${rowOf(step.trace, prediction)}`)).data);
    return ids.map((id) => found[id]!);
  }
  const logits = await recompute(ofCandidates(step, prediction, ascending));
  return ids.map((id) => logits[ascending.indexOf(id)]!);
}
