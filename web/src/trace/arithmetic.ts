/** What the operations of the forward and of the backward pass are written with: numbers as text, lines, and tables of products. */
import { number } from "../tensors/format";
import type { Numbers } from "../tensors/ops";
import { type Arithmetic, type Cell, cellValue, inputData, type Step } from "./stepData";

/** An operation: `recompute` computes all its values from its inputs, `cell` shows the arithmetic of one value. */
export interface Operation {
  recompute: (step: Step) => Promise<Numbers>;
  cell: (step: Step, cell: Cell) => Promise<Arithmetic>;
}

export const n = (x: number) => number(x, 4);
/** In parentheses if negative. */
export const p = (x: number) => (x < 0 ? `(${n(x)})` : n(x));
export const lines = (...text: string[]): Arithmetic => ({ lines: text, terms: [], columns: ["", "", "", ""] });

export function products(columns: Arithmetic["columns"], a: Numbers, b: Numbers, labels: string[] = []): Arithmetic {
  const terms = Array.from(a, (x, i) => ({ label: labels[i] ?? String(i + 1), a: x, b: b[i]!, value: x * b[i]! }));
  return { lines: [], terms, columns };
}

export const weightedSum = (what: string, values: number[], divisor: number, labels: string[]) =>
  products([what, "value", divisor === 1 ? "1" : `1/${divisor}`, "product"], values, values.map(() => 1 / divisor), labels);

/** An elementwise operation. */
export const elementwise = (f: (x: number) => number, expression: (x: number) => string): Operation => ({
  recompute: async (step) => Float64Array.from(await inputData(step, 0), f),
  cell: async (step, cell) => {
    const x = await cellValue(step, cell, 0);
    return lines(`${expression(x)} = ${n(f(x))}`);
  },
});
