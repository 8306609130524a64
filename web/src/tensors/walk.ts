/**
 * The words of the table of operations (`nn/operations.py`) over arrays in float64, and a walker of its trees,
 * so that the page computes what Python computes from the same expressions. Shapes are without a batch.
 */
import type { Row, Tree } from "../types";

export type Numbers = ArrayLike<number>;

/** Values row by row. Of a table that is fetched in part, `rows` are the ids of the rows that there are. */
export interface Values {
  shape: readonly number[];
  data: Numbers;
  rows?: readonly number[];
}

export type Value = Values | number | null | undefined;
export type Names = Record<string, Value>;

/** Most products that are computed at once: a few seconds. */
const MOST_PRODUCTS = 3e8;

/** Thrown where there is too much to compute. */
export class TooMuch extends Error {}

const product = (sizes: readonly number[]) => sizes.reduce((a, b) => a * b, 1);
const filled = (shape: readonly number[], f: (i: number) => number): Values => ({ shape, data: Float64Array.from({ length: product(shape) }, (_, i) => f(i)) });
const last = (x: Values) => x.shape.at(-1) ?? 1;
const values = (x: Value): Values => (typeof x === "number" ? { shape: [], data: [x] } : x!);

/** Where the value at a place of a shape is in a tensor that is broadcast to it. */
export function offsetIn(x: Values, shape: readonly number[], i: number): number {
  let [offset, stride, rest] = [0, 1, i];
  for (let axis = 1; axis <= shape.length; axis++) {
    const [size, own] = [shape.at(-axis)!, x.shape.at(-axis) ?? 1];
    if (own > 1) offset += (rest % size) * stride;
    stride *= own;
    rest = Math.floor(rest / size);
  }
  return offset;
}

function broadcast(a: Values, b: Values): number[] {
  const n = Math.max(a.shape.length, b.shape.length);
  return Array.from({ length: n }, (_, i) => Math.max(a.shape.at(i - n) ?? 1, b.shape.at(i - n) ?? 1));
}

const both = (f: (a: number, b: number) => number) => (first: Value, second: Value): Value => {
  if (typeof first === "number" && typeof second === "number") return f(first, second);
  const [a, b] = [values(first), values(second)];
  const shape = broadcast(a, b), size = product(shape);
  const place = (x: Values) => (x.data.length === size ? (i: number) => i : (i: number) => offsetIn(x, shape, i));
  const [inA, inB] = [place(a), place(b)];
  return filled(shape, (i) => f(a.data[inA(i)]!, b.data[inB(i)]!));
};

const each = (f: (x: number) => number) => (x: Value): Value =>
  (typeof x === "number" ? f(x) : { shape: x!.shape, data: Float64Array.from(x!.data, f) });

const rowsOf = ({ shape, data }: Values) => Array.from({ length: data.length / (shape.at(-1) ?? 1) }, (_, i) => Array.prototype.slice.call(data, i * shape.at(-1)!, (i + 1) * shape.at(-1)!) as number[]);

/** One number of each row, which stays an axis of size 1. */
const byRow = (f: (row: Numbers) => number) => (x: Value): Value => ({ shape: [...values(x).shape.slice(0, -1), 1], data: rowsOf(values(x)).map(f) });

/** One number of each column of the last two axes. */
const byColumn = (f: (column: number[]) => number) => (x: Value): Values => {
  const { shape, data } = values(x);
  const [rows, columns] = [shape.at(-2)!, shape.at(-1)!];
  return filled([...shape.slice(0, -2), columns], (i) => {
    const start = Math.floor(i / columns) * rows * columns + (i % columns);
    return f(Array.from({ length: rows }, (_, r) => data[start + r * columns]!));
  });
};

/** The same numbers at other places: `from` says where the number of each place comes from. */
const moved = (x: Values, shape: readonly number[], from: (i: number) => number) => filled(shape, (i) => x.data[from(i)]!);

const total = (row: Numbers) => {
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += row[i]!;
  return sum;
};
const largest = (row: Numbers) => Array.prototype.reduce.call(row, (a, b) => Math.max(a as number, b as number), -Infinity) as number;

export function transpose(x: Values): Values {
  const [m, n] = [x.shape.at(-2)!, x.shape.at(-1)!];
  return moved(x, [...x.shape.slice(0, -2), n, m], (i) => Math.floor(i / (m * n)) * m * n + (i % m) * n + (Math.floor(i / m) % n));
}

/** x (…, m, k) times y (…, k, n); a vector is one row. */
export function multiply(x: Values, y: Values): Values {
  const k = last(x), n = last(y), rows = x.data.length / k;
  const rowsOfOne = y.shape.length > 2 ? x.shape.at(-2)! : rows;
  if (x.data.length * n > MOST_PRODUCTS) throw new TooMuch("it takes too many products for a browser");
  const [a, b, out] = [x.data, y.data, new Float64Array(rows * n)];
  for (let r = 0; r < rows; r++) {
    const start = Math.floor(r / rowsOfOne) * k * n;
    for (let i = 0; i < k; i++) {
      const factor = a[r * k + i]!;
      if (factor) for (let j = 0; j < n; j++) out[r * n + j]! += factor * b[start + i * n + j]!;
    }
  }
  return { shape: [...x.shape.slice(0, -1), n], data: out };
}

/** (A, B·E) to (B, A, E). */
const split = (x: Values, heads: number) => {
  const [rows, width] = [x.shape.at(-2)!, last(x) / heads];
  return moved(x, [heads, rows, width], (i) => (Math.floor(i / width) % rows) * heads * width + Math.floor(i / width / rows) * width + (i % width));
};
const join = (x: Values) => {
  const [heads, rows, width] = x.shape as [number, number, number];
  return moved(x, [rows, heads * width], (i) => (Math.floor((i % (heads * width)) / width) * rows + Math.floor(i / (heads * width))) * width + (i % width));
};

/** The standard normal distribution function, by a series of positive terms, without cancellation. */
function normalShare(x: number): number {
  if (Math.abs(x) > 8) return Number(x > 0);
  let [term, sum] = [x, 0];
  for (let n = 1; n < 200; n++) {
    sum += term;
    term *= (x * x) / (2 * n + 1);
  }
  return 0.5 + (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
}

/** The angle by which feature j at a position is rotated. */
const angle = (base: number, position: number, j: number, width: number) => position * base ** ((-2 * (j % (width / 2))) / width);
const angles = (f: (x: number) => number) => (base: Value, first: Value, rows: Value, columns: Value) =>
  filled([Number(rows), Number(columns)], (i) => f(angle(Number(base), Number(first) + Math.floor(i / Number(columns)), i % Number(columns), Number(columns))));

const halves = (x: Values, which: number) => {
  const half = last(x) / 2;
  return moved(x, [...x.shape.slice(0, -1), half], (i) => Math.floor(i / half) * 2 * half + which * half + (i % half));
};

function scatter(ids: Values, g: Values, rows: number): Values {
  const width = last(g), out = new Float64Array(rows * width);
  for (let t = 0; t < ids.data.length; t++) for (let i = 0; i < width; i++) out[ids.data[t]! * width + i]! += g.data[t * width + i]!;
  return { shape: [rows, width], data: out };
}

function gather(table: Values, ids: Values): Values {
  const width = last(table), at = table.rows && new Map(table.rows.map((id, i) => [id, i]));
  return filled([...ids.shape, width], (i) => {
    const id = ids.data[Math.floor(i / width)]!;
    return table.data[(at ? at.get(id)! : id) * width + (i % width)]!;
  });
}

const times = both((a, b) => a * b);
const over = both((a, b) => a / b);
const WORDS: Record<string, (...args: any[]) => Value> = {
  "+": both((a, b) => a + b),
  "-": both((a, b) => a - b),
  "*": times,
  "/": over,
  "@": multiply,
  T: transpose,
  sum: byRow(total),
  mean: byRow((row) => total(row) / row.length),
  down: byColumn(total),
  total: (x: Values) => filled([1], () => total(x.data)),
  flat: (x: Values) => ({ ...x, shape: [x.data.length / last(x), last(x)] }),
  over_rows: (x: Values) => byColumn(total)({ ...x, shape: [x.data.length / last(x), last(x)] }),
  exp: each(Math.exp),
  softmax: (x: Values) => ({ shape: x.shape, data: rowsOf(x).flatMap((row) => softmax(row)) }),
  minus_log_softmax: (x: Values) => ({ shape: x.shape, data: rowsOf(x).flatMap((row) => {
    const peak = largest(row), all = peak + Math.log(total(row.map((z) => Math.exp(z - peak))));
    return row.map((z) => all - z);
  }) }),
  sq: each((x) => x * x),
  rsqrt: each((x) => 1 / Math.sqrt(x)),
  tanh: each(Math.tanh),
  sigmoid: each((x) => 1 / (1 + Math.exp(-x))),
  Phi: each(normalShare),
  phi: each((x) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI)),
  max0: each((x) => Math.max(0, x)),
  positive: each((x) => Number(x > 0)),
  atleast1: each((x) => Math.max(1, x)),
  nonzero: each((x) => x || 1),
  equal: both((a, b) => Number(a === b)),
  used: (ids: Values) => ({ shape: [...ids.shape, 1], data: Float64Array.from(ids.data, (id) => Number(id > 0)) }),
  gather,
  scatter,
  rows_from: (table: Values, first: number, rows: number) => moved(table, [rows, last(table)], (i) => first * last(table) + i),
  placed: (g: Values, first: number, rows: number) => filled([rows, last(g)], (i) => g.data[i - first * last(g)] ?? 0),
  row: (x: Values) => ({ ...x, shape: [...x.shape.slice(0, -1), 1, last(x)] }),
  split,
  join,
  turned: (x: Values) => {
    const n = last(x);
    return filled(x.shape, (i) => (i % n < n / 2 ? -x.data[i + n / 2]! : x.data[i - n / 2]!));
  },
  cosines: angles(Math.cos),
  sines: angles(Math.sin),
  waves: (first: number, rows: number, columns: number) => filled([rows, columns], (i) => {
    const j = i % columns, turn = (first + Math.floor(i / columns)) / 10000 ** ((j - (j % 2)) / columns);
    return j % 2 ? Math.cos(turn) : Math.sin(turn);
  }),
  unmasked: (scores: Value, mask: Value) => (mask ? both((s, seen) => (seen ? s : -Infinity))(scores, mask) : scores),
  peak_of: byRow((row) => Math.max(-Number.MAX_VALUE, largest(row))),
  column: (mask: Values | null, x: Values) => (mask ? transpose(mask.shape.length > 1 ? mask : { ...mask, shape: [1, mask.data.length] }) : filled([...x.shape.slice(0, -1), 1], () => 1)),
  down_max: (x: Values, real: Values) => byColumn((column) => (largest(column) === -Infinity ? 0 : largest(column)))(both((a, seen) => (seen ? a : -Infinity))(x, real)),
  at_first: (x: Values) => filled([x.shape.at(-2)!, 1], (i) => Number(i === 0)),
  beside: (a: Values, b: Values) => filled([last(a) + last(b)], (i) => (i < last(a) ? a.data[i]! : b.data[i - last(a)]!)),
  left: (x: Values) => halves(x, 0),
  right: (x: Values) => halves(x, 1),
  after_zero: (x: Values) => filled([last(x) + 1], (i) => (i ? x.data[i - 1]! : 0)),
  without_first: (x: Values) => filled([last(x) - 1], (i) => x.data[i + 1]!),
  by_row: (x: Values) => ({ ...x, shape: x.shape.length > 1 ? x.shape.slice(0, -1) : x.shape }),
  column_of: (g: Values, x: Values) => ({ ...g, shape: [...x.shape.slice(0, -1), 1] }),
  shares: (labels: Values) => filled(labels.shape, (i) => (Number.isNaN(labels.data[i]!) ? 0 : 1 / Array.from(labels.data).filter((one) => !Number.isNaN(one)).length)),
};

/** The value of a tree. */
export const walk = (tree: Tree, names: Names): Value =>
  (typeof tree === "string" ? names[tree] : typeof tree === "number" ? tree : WORDS[tree[0]]!(...tree.slice(1).map((part) => walk(part as Tree, names))));

/** Adds what a row defines to the names. */
export function defined(row: Row, names: Names): Names {
  const all = { ...names };
  for (const [name, tree] of Object.entries(row.where)) all[name] = walk(tree, all);
  return all;
}

/** What an operation or a gradient gives. */
export const run = (row: Row, names: Names): Numbers => values(walk(row.gives, defined(row, names))).data;

/** The softmax of logits divided by a temperature; 0: all on the first of the largest. */
export function softmax(logits: Numbers, temperature = 1): number[] {
  const peak = largest(logits);
  if (temperature === 0) return Array.from(logits, (_, i) => Number(i === Array.prototype.indexOf.call(logits, peak)));
  const e = Array.from(logits, (z) => Math.exp((z - peak) / temperature));
  const sum = total(e);
  return e.map((one) => one / sum);
}
