/** A long list of tokens, folded: its ends and what is around the selected tokens, and between them buttons that show the rest. */
import type { VNode } from "preact";
import { route, setParams } from "../state/page";
import { useValue } from "../state/signals";
import { outputStream } from "../trace/generation";
import type { Manifest, Stream } from "../types";

/** Lists up to LONG are whole. Of longer ones are shown ENDS at each end, and BESIDE on each side of a selected token. */
export const [LONG, ENDS, BESIDE] = [64, 16, 4];

/** The ranges of a list, each without its end, and whether it is folded. */
export function partsOf(count: number, near: readonly number[]): [from: number, to: number, folds: boolean][] {
  const shown = (i: number) => count <= LONG || i < ENDS || i >= count - ENDS || near.some((at) => Math.abs(at - i) <= BESIDE);
  const out: [number, number, boolean][] = [];
  for (let from = 0, to = 0; from < count; from = to) {
    while (to < count && shown(to) === shown(from)) to++;
    out.push([from, to, !shown(from) && to - from > BESIDE]);
  }
  return out;
}

/** The tokens of a long stream that the address selects: the row and the column of its cell, and its position. */
export function selectedTokens({ nodes, streams }: Pick<Manifest, "nodes" | "streams">, { name, pieces }: Stream, { node, cell, position }: Record<string, string | undefined>): number[] {
  const [row, col] = cell?.split(",") ?? [];
  // Without a node the cell is one of the last attention.
  const axes = (nodes.find((one) => one.id === node) ?? nodes.filter((one) => one.site === "weights").at(-1))?.axes ?? [];
  const own = [
    axes.at(-2)?.stream === name && row, axes.at(-1)?.stream === name && col, outputStream({ streams }).name === name && position,
  ];
  return pieces.length > LONG ? own.flatMap((one) => (one ? [Number(one)] : [])) : [];
}

export interface FoldProps {
  /** What the address calls the list where all of it is shown. */
  name: string;
  count: number;
  /** Indices of the selected tokens. */
  near: readonly number[];
  item: (index: number) => VNode;
}

export function Fold({ name, count, near, item }: FoldProps) {
  const opened = useValue(route, ({ params }) => params.unfold ?? "").split(".").filter(Boolean);
  const open = opened.includes(name);
  const toggle = () => setParams({ unfold: (open ? opened.filter((one) => one !== name) : [...opened, name]).join(".") || null });
  return (
    <>
      {partsOf(count, near).flatMap(([from, to, folds]) => [
        folds && <li key={`fold${from}`} class="fold"><button type="button" class="quiet" aria-expanded={open} onClick={toggle}>{open ? "Fold" : "…"} {to - from} tokens</button></li>,
        ...(open || !folds ? Array.from({ length: to - from }, (_, i) => item(from + i)) : []),
      ])}
    </>
  );
}
