/**
 * The words of the table of operations (`nn/operations.py`) over arrays, and a walker of its trees: what Python computes,
 * computed from the same expressions. In 32-bit floats the page runs a model; what it shows as arithmetic, and compares with
 * recorded numbers, it computes in 64-bit floats. Shapes are without a batch.
 */
import type { Row, Tree } from "../types";

export type Numbers = ArrayLike<number>;
type Floats = Float32ArrayConstructor | Float64ArrayConstructor;
type FloatArray = Float32Array | Float64Array;

/** Values row by row. Of a table that is fetched in part, `rows` are the ids of the rows that there are. */
export interface Values {
  shape: readonly number[];
  data: Numbers;
  rows?: readonly number[];
}

export type Value = Values | number | null | undefined;
export type Names = Record<string, Value>;

/** Most products that are computed at once for a step that is shown: a few seconds. */
const MOST_PRODUCTS = 3e8;

/** Thrown where there is too much to compute. */
export class TooMuch extends Error {}

const product = (sizes: readonly number[]) => sizes.reduce((a, b) => a * b, 1);
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

/** How often a tensor that is broadcast to a shape repeats each of its values, and itself; null where neither is enough. */
function repeats(x: Values, shape: readonly number[]): [number, number] | null {
  const own = x.data.length, size = product(shape), width = shape.at(-1) ?? 1;
  if (own === size) return [1, size];
  if (own === 1) return [size, 1];
  const given = [...shape.map(() => 1), ...x.shape].slice(-shape.length);
  const first = given.findIndex((one) => one > 1);
  if (given.slice(first).every((one, i) => one === shape[first + i])) return [1, own];
  return given.at(-1) === 1 && own * width === size ? [width, own] : null;
}

/** One number of each row: `f` of the array and where the row begins. */
type OfRow = (data: Numbers, start: number, n: number) => number;
const total: OfRow = (data, start, n) => {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += data[start + i]!;
  return sum;
};
const largest: OfRow = (data, start, n) => {
  let peak = -Infinity;
  for (let i = 0; i < n; i++) if (data[start + i]! > peak) peak = data[start + i]!;
  return peak;
};

/** The standard normal distribution function, by a series of positive terms, without cancellation. */
function normalShare(x: number): number {
  if (Math.abs(x) > 8) return Number(x > 0);
  let [term, sum] = [x, 0];
  for (let n = 1; n < 200 && Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    sum += term;
    term *= (x * x) / (2 * n + 1);
  }
  return 0.5 + (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
}

/** out (m, n) = a (m, k) times the transpose of b (n, k), from places on in each: four rows at a time, which share a row of b. */
function rowsByRows(a: Numbers, x: number, m: number, b: Numbers, y: number, n: number, k: number, out: FloatArray, z: number): void {
  let r = 0;
  for (; r + 4 <= m; r += 4) {
    const [x0, x1, x2, x3] = [x + r * k, x + (r + 1) * k, x + (r + 2) * k, x + (r + 3) * k];
    for (let j = 0; j < n; j++) {
      const start = y + j * k;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let i = 0; i < k; i++) {
        const w = b[start + i]!;
        s0 += a[x0 + i]! * w;
        s1 += a[x1 + i]! * w;
        s2 += a[x2 + i]! * w;
        s3 += a[x3 + i]! * w;
      }
      const at = z + r * n + j;
      out[at] = s0;
      out[at + n] = s1;
      out[at + 2 * n] = s2;
      out[at + 3 * n] = s3;
    }
  }
  for (; r < m; r++) {
    const start = x + r * k;
    let j = 0;
    for (; j + 4 <= n; j += 4) {
      const [y0, y1, y2, y3] = [y + j * k, y + (j + 1) * k, y + (j + 2) * k, y + (j + 3) * k];
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let i = 0; i < k; i++) {
        const v = a[start + i]!;
        s0 += v * b[y0 + i]!;
        s1 += v * b[y1 + i]!;
        s2 += v * b[y2 + i]!;
        s3 += v * b[y3 + i]!;
      }
      const at = z + r * n + j;
      out[at] = s0;
      out[at + 1] = s1;
      out[at + 2] = s2;
      out[at + 3] = s3;
    }
    for (; j < n; j++) {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += a[start + i]! * b[y + j * k + i]!;
      out[z + r * n + j] = sum;
    }
  }
}

type Word = (...args: any[]) => Value;

/** The words over arrays of one kind of floats. */
function wordsOf(Floats: Floats): Record<string, Word> {
  const filled = (shape: readonly number[], f: (i: number) => number): Values => {
    const data = new Floats(product(shape));
    for (let i = 0; i < data.length; i++) data[i] = f(i);
    return { shape, data };
  };
  const both = (f: (a: number, b: number) => number): Word => (first: Value, second: Value) => {
    if (typeof first === "number" && typeof second === "number") return f(first, second);
    const [a, b] = [values(first), values(second)];
    const shape = a.data.length === b.data.length && a.shape.length === b.shape.length ? a.shape : broadcast(a, b);
    const [inA, inB] = [repeats(a, shape), repeats(b, shape)];
    if (!inA || !inB) return filled(shape, (i) => f(a.data[offsetIn(a, shape, i)]!, b.data[offsetIn(b, shape, i)]!));
    const [x, y, out] = [a.data, b.data, new Floats(product(shape))];
    // Each is repeated value by value or as a whole, so that two counters are enough.
    let [p, q, ofP, ofQ] = [0, 0, inA[0], inB[0]];
    for (let i = 0; i < out.length; i++) {
      out[i] = f(x[p]!, y[q]!);
      if (--ofP === 0) [p, ofP] = [p + 1 === inA[1] ? 0 : p + 1, inA[0]];
      if (--ofQ === 0) [q, ofQ] = [q + 1 === inB[1] ? 0 : q + 1, inB[0]];
    }
    return { shape, data: out };
  };
  const each = (f: (x: number) => number): Word => (x: Value) => {
    if (typeof x === "number") return f(x);
    const { shape, data } = x!, out = new Floats(data.length);
    for (let i = 0; i < out.length; i++) out[i] = f(data[i]!);
    return { shape, data: out };
  };
  /** One number of each row, which stays an axis of size 1. */
  const byRow = (f: OfRow): Word => (x: Value) => {
    const { shape, data } = values(x), n = shape.at(-1) ?? 1;
    return filled([...shape.slice(0, -1), 1], (i) => f(data, i * n, n));
  };
  /** One number of each column of the last two axes. */
  const byColumn = (begin: number, f: (so: number, x: number) => number) => (x: Value): Values => {
    const { shape, data } = values(x), [rows, columns] = [shape.at(-2)!, shape.at(-1)!];
    return filled([...shape.slice(0, -2), columns], (i) => {
      const start = Math.floor(i / columns) * rows * columns + (i % columns);
      let so = begin;
      for (let r = 0; r < rows; r++) so = f(so, data[start + r * columns]!);
      return so;
    });
  };
  const down = byColumn(0, (sum, x) => sum + x);
  /** The same numbers at other places: `from` says where the number of each place comes from. */
  const moved = (x: Values, shape: readonly number[], from: (i: number) => number) => filled(shape, (i) => x.data[from(i)]!);
  const flat = (x: Values): Values => ({ ...x, shape: [x.data.length / last(x), last(x)] });
  const transpose = (x: Values): Values => {
    const [m, n] = [x.shape.at(-2)!, x.shape.at(-1)!];
    return moved(x, [...x.shape.slice(0, -2), n, m], (i) => Math.floor(i / (m * n)) * m * n + (i % m) * n + (Math.floor(i / m) % n));
  };
  const check = (products: number) => {
    if (Floats === Float64Array && products > MOST_PRODUCTS) throw new TooMuch("it takes too many products for a browser");
  };
  /** x (…, m, k) times the transpose of y (…, n, k); a vector is one row, and a y of two axes that of every head. */
  const byRows = (x: Values, y: Values): Values => {
    const k = last(x), n = y.shape.at(-2)!, m = y.shape.length > 2 ? x.shape.at(-2)! : x.data.length / k;
    const out = new Floats((x.data.length / k) * n);
    check(x.data.length * n);
    for (let r = 0; r * m * k < x.data.length; r++) rowsByRows(x.data, r * m * k, m, y.data, r * n * k, n, k, out, r * m * n);
    return { shape: [...x.shape.slice(0, -1), n], data: out };
  };
  /** x (…, m, k) times y (…, k, n); a vector is one row. */
  const multiply = (x: Values, y: Values): Values => {
    const k = last(x), n = last(y), rows = x.data.length / k;
    const rowsOfOne = y.shape.length > 2 ? x.shape.at(-2)! : rows;
    check(x.data.length * n);
    const [a, b, out] = [x.data, y.data, new Floats(rows * n)];
    for (let r = 0; r < rows; r++) {
      const start = Math.floor(r / rowsOfOne) * k * n, at = r * n;
      for (let i = 0; i < k; i++) {
        const factor = a[r * k + i]!, from = start + i * n;
        if (factor) for (let j = 0; j < n; j++) out[at + j]! += factor * b[from + j]!;
      }
    }
    return { shape: [...x.shape.slice(0, -1), n], data: out };
  };
  /** (A, B·E) to (B, A, E). */
  const split = (x: Values, heads: number) => {
    const [rows, width] = [x.shape.at(-2)!, last(x) / heads];
    return moved(x, [heads, rows, width], (i) => (Math.floor(i / width) % rows) * heads * width + Math.floor(i / width / rows) * width + (i % width));
  };
  const join = (x: Values) => {
    const [heads, rows, width] = x.shape as [number, number, number];
    return moved(x, [rows, heads * width], (i) => (Math.floor((i % (heads * width)) / width) * rows + Math.floor(i / (heads * width))) * width + (i % width));
  };
  const angles = (f: (x: number) => number) => (base: number, first: number, rows: number, columns: number) =>
    filled([rows, columns], (i) => f((first + Math.floor(i / columns)) * base ** ((-2 * ((i % columns) % (columns / 2))) / columns)));
  const halves = (x: Values, which: number) => {
    const half = last(x) / 2;
    return moved(x, [...x.shape.slice(0, -1), half], (i) => Math.floor(i / half) * 2 * half + which * half + (i % half));
  };
  const scatter = (ids: Values, g: Values, rows: number): Values => {
    const width = last(g), out = new Floats(rows * width);
    for (let t = 0; t < ids.data.length; t++) for (let i = 0; i < width; i++) out[ids.data[t]! * width + i]! += g.data[t * width + i]!;
    return { shape: [rows, width], data: out };
  };
  const gather = (table: Values, ids: Values): Values => {
    const width = last(table), at = table.rows && new Map(table.rows.map((id, i) => [id, i]));
    return filled([...ids.shape, width], (i) => {
      const id = ids.data[Math.floor(i / width)]!;
      return table.data[(at ? at.get(id)! : id) * width + (i % width)]!;
    });
  };
  const peaked = byRow(largest);
  const logSum = (x: Values) => byRow((data, start, n) => {
    const peak = largest(data, start, n);
    let sum = 0;
    for (let i = 0; i < n; i++) sum += Math.exp(data[start + i]! - peak);
    return peak + Math.log(sum);
  })(x);
  const [minus, exp] = [both((a, b) => a - b), each(Math.exp)];
  const quotient = both((a, b) => a / b);
  return {
    "+": both((a, b) => a + b),
    "-": minus,
    "*": both((a, b) => a * b),
    "/": quotient,
    "@": multiply,
    byRows,
    T: transpose,
    sum: byRow(total),
    mean: byRow((data, start, n) => total(data, start, n) / n),
    down,
    total: (x: Values) => filled([1], () => total(x.data, 0, x.data.length)),
    flat,
    over_rows: (x: Values) => down(flat(x)),
    exp,
    softmax: (x: Values) => exp(minus(x, logSum(x))),
    minus_log_softmax: (x: Values) => minus(logSum(x), x),
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
    used: (ids: Values) => filled([...ids.shape, 1], (i) => Number(ids.data[i]! > 0)),
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
    peak_of: (x: Values) => each((peak) => Math.max(-3.4028234663852886e38, peak))(peaked(x)),
    column: (mask: Values | null, x: Values) => (mask ? transpose(mask.shape.length > 1 ? mask : { ...mask, shape: [1, mask.data.length] }) : filled([...x.shape.slice(0, -1), 1], () => 1)),
    down_max: (x: Values, real: Values) => each((peak) => (peak === -Infinity ? 0 : peak))(byColumn(-Infinity, Math.max)(both((a, seen) => (seen ? a : -Infinity))(x, real))),
    at_first: (x: Values) => filled([x.shape.at(-2)!, 1], (i) => Number(i === 0)),
    beside: (a: Values, b: Values) => filled([last(a) + last(b)], (i) => (i < last(a) ? a.data[i]! : b.data[i - last(a)]!)),
    left: (x: Values) => halves(x, 0),
    right: (x: Values) => halves(x, 1),
    after_zero: (x: Values) => filled([last(x) + 1], (i) => (i ? x.data[i - 1]! : 0)),
    without_first: (x: Values) => filled([last(x) - 1], (i) => x.data[i + 1]!),
    by_row: (x: Values) => ({ ...x, shape: x.shape.length > 1 ? x.shape.slice(0, -1) : x.shape }),
    column_of: (g: Values, x: Values) => ({ ...g, shape: [...x.shape.slice(0, -1), 1] }),
    shares: (labels: Values) => {
      const there = Array.from(labels.data, (label) => Number(!Number.isNaN(label)));
      return filled(labels.shape, (i) => there[i]! / total(there, 0, there.length));
    },
  };
}

const EXACT = wordsOf(Float64Array);
/** The words in 32-bit floats, as the model itself computes. */
export const FAST = wordsOf(Float32Array);
export const transpose = EXACT.T as (x: Values) => Values;
export const multiply = EXACT["@"] as (x: Values, y: Values) => Values;

/** The value of a tree. The product with a transpose takes both row by row. */
export function walk(tree: Tree, names: Names, words = EXACT): Value {
  if (!Array.isArray(tree)) return typeof tree === "string" ? names[tree] : tree;
  const [word, ...parts] = tree, second = parts[1];
  if (word === "@" && Array.isArray(second) && second[0] === "T") return words.byRows!(walk(parts[0]!, names, words), walk(second[1]!, names, words));
  return words[word]!(...parts.map((part) => walk(part as Tree, names, words)));
}

/** Adds what a row defines to the names. */
export function defined(row: Row, names: Names, words = EXACT): Names {
  const all = { ...names };
  for (const [name, tree] of Object.entries(row.where)) all[name] = walk(tree, all, words);
  return all;
}

/** What an operation or a gradient gives. */
export const run = (row: Row, names: Names, words = EXACT): Values => values(walk(row.gives, defined(row, names, words), words));

/** The softmax of logits divided by a temperature; 0: all on the first of the largest. */
export function softmax(logits: Numbers, temperature = 1): number[] {
  const peak = largest(logits, 0, logits.length);
  if (temperature === 0) return Array.from(logits, (_, i) => Number(i === Array.prototype.indexOf.call(logits, peak)));
  const e = Array.from(logits, (z) => Math.exp((z - peak) / temperature));
  const sum = total(e, 0, e.length);
  return e.map((one) => one / sum);
}
