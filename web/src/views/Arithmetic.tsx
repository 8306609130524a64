/** The arithmetic of one value of a step, and the check of all of them. */
import { useState } from "preact/hooks";
import { source } from "../state/page";
import { useResource } from "../state/resource";
import { exact, number, signed, tiny, visible } from "../tensors/format";
import { sliceOffsets } from "../tensors/tensor";
import { editsOf } from "../trace/edits";
import { arithmetic, checkNode, type CheckResult } from "../trace/operations";
import type { Arithmetic, Cell, Term } from "../trace/steps";
import type { Manifest, TraceNode } from "../types";
import { Track } from "./Bars";
import { Table } from "./Table";
import { useStableHeight } from "./interaction";

const SHOWN = 8;

/** The kind of the last edit that the cell is within. */
function editOf(trace: Manifest, node: TraceNode, { head, row, col }: Cell) {
  const [shape, names] = [node.axes.map((axis) => axis.size), node.axes.map((axis) => axis.name)];
  const place = [...(names[0] === "head" ? [head] : []), row, col].slice(-shape.length).reduce((at, i, axis) => at * shape[axis]! + i, 0);
  return editsOf(trace, node.id).filter(({ slice }) => sliceOffsets(shape, names, slice).includes(place)).pop()?.kind;
}

/** The arithmetic of one value of a step. */
export function ArithmeticView({ node, cell, trace }: { node: TraceNode; cell: Cell; trace: Manifest }) {
  const key = `${trace.id}/${node.id}/${cell.head},${cell.row},${cell.col},${cell.position}`;
  const get = (id: string, slice?: string) => source.tensor(trace.id, id, slice);
  const { value: worked, error } = useResource(key, async () => {
    const made = await arithmetic({ trace, node, get }, cell);
    // Of a large weight the gradient is not recomputed whole; a saved page rounds it.
    const [row, col] = node.axes;
    const compared = source.live && node.op === "linear.weight";
    return compared ? { ...made, value: (await get(node.id, `${row!.name}:${cell.row};${col!.name}:${cell.col}`)).data[0]! } : made;
  });
  const edit = worked && editOf(trace, node, cell);
  return (
    <div {...useStableHeight(!worked && !error)} class="arithmetic" data-role="arithmetic" data-cell={`${cell.row},${cell.col}`} aria-live="polite">
      {error && <p class="note">{error.message}</p>}
      {worked?.lines.map((line) => <p key={line} class="arithmetic-line">{line}</p>)}
      {worked && worked.terms.length > 0 && <TermsTable worked={worked} />}
      {edit && <p class="note note-edited">Then {edit === "blocked" ? "blocked by you" : "set by you to the number above"}.</p>}
    </div>
  );
}

function TermsTable({ worked }: { worked: Arithmetic }) {
  const [all, setAll] = useState(false);
  const { terms, extra, columns, mark } = worked;
  const sizes = terms.map((term) => Math.abs(term.value)).sort((a, b) => b - a);
  const many = terms.length > SHOWN + 2;
  const least = many && !all ? (sizes[SHOWN - 1] ?? 0) : 0;
  const shown = terms.map((term, i) => ({ term, i })).filter(({ term, i }) => Math.abs(term.value) >= least || i === mark);
  const rest = terms.length - shown.length;
  const total = (some: Term[]) => some.reduce((sum, term) => sum + term.value, 0);
  const restSum = total(terms) - total(shown.map(({ term }) => term));
  const signs = terms.some((term) => term.value < 0);
  const limit = Math.max(sizes[0] ?? 0, Math.abs(restSum));
  const sum = total(terms) + (extra?.value ?? 0), digits = (x: number | undefined) => (x === undefined ? "" : number(x, 4));
  const state = worked.value === undefined ? undefined : Math.abs(sum - worked.value) <= 1e-5 * sizes.reduce((a, b) => a + b, 0) ? "ok" : "bad";
  const row = ({ label, a, b, value }: Term, marked = false) => ({
    cells: [<bdi>{visible(label)}</bdi>, digits(a), digits(b), (signs ? signed : number)(value, 4), <Track share={limit ? value / limit : 0} signs={signs} />],
    attributes: { class: marked ? "term-mark" : undefined },
  });
  return (
    <>
      <Table
        label="Arithmetic" columns={[...columns, ""]}
        rows={[
          ...shown.map(({ term, i }) => row(term, i === mark)),
          ...(rest > 0 ? [row({ label: `sum of the other ${rest}`, value: restSum })] : []), ...(extra ? [row(extra)] : []),
          {
            cells: ["sum", "", "", <b class="sum">{digits(sum)}</b>, state && <span class={`check-${state}`} data-sum-check={state}>{state === "ok" ? "✓" : `✗ ${digits(worked.value)}`}</span>],
            attributes: { class: "table-sum" },
          },
        ]}
      />
      {many && <button type="button" class="quiet" onClick={() => setAll(!all)}>{all ? `Show the ${SHOWN} largest` : `Show all ${terms.length} in order`}</button>}
    </>
  );
}

/** Results of checks, cached. */
const known = new Map<string, CheckResult>();

/** The result of the check of a step, with the largest difference. */
export function CheckLine({ node, position = 0, trace }: { node: TraceNode; position?: number; trace: Manifest }) {
  const key = `${trace.id}/${node.id}/${node.axes.at(-1)?.name === "vocab" ? position : ""}`;
  // After the values have been rendered.
  const asked = useResource(known.has(key) ? null : key, async () => {
    const found = await checkNode(trace, node, position, source);
    if (found.state !== "unavailable") known.set(key, found);
    return found;
  }, { delay: 30 });
  const failed: CheckResult | null = asked.error && { state: "bad", delta: null, words: asked.error.message };
  const found = known.get(key) ?? asked.value ?? failed;
  const state = found?.state ?? "pending";
  return (
    <p class={`check check-${state}`} data-check={node.id} data-state={state} data-delta={found?.delta == null ? undefined : exact(found.delta)}>
      <span class="check-mark" aria-hidden="true">{{ pending: "…", ok: "✓", bad: "✗", unavailable: "–" }[state]}</span>
      {words(found)}
    </p>
  );
}

function words(found: CheckResult | null): string {
  if (!found) return "Recomputing in your browser …";
  const what = found.words ? ` (${found.words})` : "";
  if (found.state === "unavailable") return `Not recomputed: ${found.words}.`;
  const delta = found.delta === null ? "" : `, max Δ ${tiny(found.delta)}`;
  if (found.state === "ok") return `Recomputed in your browser${what}${delta}.`;
  return `Recomputed in your browser${what}, and the numbers disagree${delta}.`;
}
