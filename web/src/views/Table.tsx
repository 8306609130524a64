/** A table of words and numbers, which scrolls where there is no room. Numbers stand to the right of their column. */
import type { ComponentChildren } from "preact";
import { Scroll } from "./Matrix";

interface TableRow {
  /** The first is the name of the row. */
  cells: ComponentChildren[];
  attributes?: Record<string, string | number | boolean | undefined>;
}

const isNumber = (cell: ComponentChildren) => typeof cell === "number" || (typeof cell === "string" && /^[+−≤<>(]?\d/.test(cell));

export function Table({ label, columns, rows }: { label: string; columns: ComponentChildren[]; rows: readonly TableRow[] }) {
  const kinds = columns.map((_, i) => (rows.some(({ cells }) => isNumber(cells[i])) ? "table-number" : undefined));
  return (
    <Scroll class="table-scroll" label={label}>
      <table class="table" aria-label={label}>
        <thead><tr>{columns.map((head, i) => <th key={i} scope="col" class={kinds[i]}>{head}</th>)}</tr></thead>
        <tbody>
          {rows.map(({ cells, attributes }, row) => (
            <tr key={row} {...attributes}>{cells.map((cell, i) => (i ? <td key={i} class={kinds[i]}>{cell}</td> : <th key={i} scope="row" class={kinds[i]}>{cell}</th>))}</tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
