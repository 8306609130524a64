/** Edits of a forward pass as text, "encoder.0.self.context[head:2]=0", and in words. */
import { axisNames, capital, nodeLocation, visible } from "../tensors/format";
import { fill, type Grid, mayAttend, sliceOffsets } from "../tensors/tensor";
import type { AxisName, Manifest, TraceNode, TraceRequest } from "../types";
import { rowTextsOf } from "./generation";
import { streamOf, title } from "./steps";

const EDIT = /^([\w.*]+?)(?:\[([^\]]*)\])?(=[^=]*|\*[^*]+)$/;

/** The text of an edit: a step, a part of it by axis names, and what becomes of it. */
export const editText = (step: string, slice: string, change: string) => `${step}${slice && `[${slice}]`}${change}`;

/** The edits that switch off a head, a block of a layer, or a layer. */
export const headOff = (weights: string, head: number) => editText(weights.replace(/weights$/, "context"), `head:${head}`, "=0");
export const blockOff = (out: string) => editText(out, "", "=0");
export const layerOff = (stack: string, layer: number) => `${stack}.${layer}.state=skip`;

/**
 * An edit in words: "Encoder layer 0, self-attention, head 3: set to 0".
 */
export function describeEdit(edit: string, trace: Manifest): string {
  const [, named = "", part = "", change = ""] = EDIT.exec(edit) ?? [];
  const [step, slice] = withoutAlias(named, part, trace);
  const skipped = /^(encoder|decoder)\.(\d+)\.state$/.exec(named);
  if (skipped && change === "=skip") return `${capital(skipped[1]!)} layer ${skipped[2]}: skipped`;
  const node = trace.nodes.find((one) => one.id === step);
  if (!node) return edit;
  const parts = partsOf(slice, node, trace);
  const off = change === "=0" && /^(context|out)(:|$)/.test(node.site);
  const what = off || change === "=blocked" ? "" : title(node);
  return `${[nodeLocation(node), what, ...parts].filter(Boolean).join(", ")}: ${off ? "switched off" : changeInWords(change, node)}`;
}

/** The step and the slice that an alias stands for (`edits/grammar.py`). */
function withoutAlias(step: string, slice: string, { model }: Manifest): [step: string, slice: string] {
  const [, place, alias, index] = /^(.+)\.(head|neuron|branch|state)(\d*)$/.exec(step) ?? [];
  if (alias === "branch") return [`${place}.out`, slice];
  if (alias === "state") return [`${place}.ff.${model.pre_norm ? "residual" : "norm"}`, slice];
  if (!alias || !index) return [step, slice];
  const [name, axis] = alias === "head" ? ["context", "head"] : ["hidden", "hidden"];
  return [`${place}.${name}`, `${axis}:${index}${slice && `;${slice}`}`];
}

function changeInWords(change: string, node: TraceNode): string {
  const [, from] = /^=B\[(.*)\]$/.exec(change) ?? [];
  if (from !== undefined) return `from ${partsOf(from, node, null).join(", ") || "all"} of the second text`;
  const words: Record<string, string> = { "=blocked": "blocked", "=B": "from the second text", "=mean": "set to its mean over reference texts", "=skip": "skipped" };
  return words[change] ?? (change[0] === "*" ? `times ${change.slice(1)}` : `set to ${change.slice(1)}`);
}

/** The parts of a slice in words: "head 2", "key [BOS] (token 0)", "query 6 → - (row 4)". Without a trace the tokens are not named. */
function partsOf(slice: string, node: TraceNode, trace: Manifest | null): string[] {
  return slice.split(";").filter(Boolean).map((part) => {
    const [name = "", at = ""] = part.split(":");
    const query = name === "token" && node.axes.some((one) => one.name === "key");
    const word = query ? "query" : name === "vocab" ? "vocabulary" : axisNames(name as AxisName)[0];
    const stream = node.axes.find((one) => one.name === name)?.stream;
    const texts = !trace || !stream ? [] : name === "token" ? rowTextsOf(trace, node) : streamOf(trace, stream)!.pieces.map(visible);
    const token = /^\d+$/.test(at) ? texts[Number(at)] : undefined;
    return token === undefined ? `${word} ${listed(at)}` : `${name === "token" && !query ? "" : `${word} `}${token} (${token.includes(" → ") ? "row" : "token"} ${listed(at)})`;
  });
}

/** Indices in words: "2", "0 to 2" for "0-3", whose end is not selected, "1, 5" for "1.5". */
function listed(indices: string): string {
  const [start, end] = indices.split("-").map(Number);
  if (end === undefined) return indices.replaceAll(".", ", ");
  return start! + 1 < end ? `${start} to ${end - 1}` : `${start}`;
}

/** The edits with one added, or without it if it is there. */
export const toggled = (edits: readonly string[], edit: string) => (edits.includes(edit) ? edits.filter((one) => one !== edit) : [...edits, edit]);

/**
 * The edits of a text that stay when `next` is traced: all but those that the page `opened` with. These were chosen for
 * one text, and not by the reader, who would take what they do to another text for the model's own answer.
 */
export const keptEdits = (edits: readonly string[], text: string, next: string, opened: TraceRequest | undefined) =>
  edits.filter((edit) => next === text || text !== opened?.text || !opened.edits?.includes(edit));

/** The edits of a step, or of one of its heads, as they were applied. */
export const editsOf = (trace: Manifest, id: string, head?: number) =>
  trace.edited?.applied.filter((one) => one.step === id && (head === undefined || !/head:\d+(;|$)/.test(one.slice) || `${one.slice};`.includes(`head:${head};`))) ?? [];

/** The mask of one head of an attention: that of its layer without the keys that edits block. The same object if none are. */
export function maskOfHead(trace: Manifest, weights: string, head: number, mask: Grid | null): Grid | null {
  const scores = trace.nodes.find((one) => one.id === weights.replace(/weights$/, "scores"));
  const blocked = trace.edited?.applied.filter(({ step, kind }) => kind === "blocked" && step === scores?.id) ?? [];
  const [, rows, cols] = scores?.axes.map((axis) => axis.size) ?? [];
  if (!scores || !blocked.length || scores.attrs.difference || !rows || !cols) return mask;
  const free = fill(rows, cols, (row, col) => Number(mayAttend(mask, row, col)));
  const data = Uint8Array.from(free.data);
  for (const { slice } of blocked) {
    for (const at of sliceOffsets(scores.axes.map((axis) => axis.size), scores.axes.map((axis) => axis.name), slice)) {
      if (Math.floor(at / (rows * cols)) === head) data[at % (rows * cols)] = 0;
    }
  }
  return { rows, cols, data };
}
