/** Edits of a forward pass as text, "encoder.0.self.context[head:2]=0", and in words. */
import { nodeLocation, visible } from "../tensors/format";
import type { Manifest } from "../types";
import { streamOf } from "./stepData";
import { title } from "./steps";

const EDIT = /^([\w.*]+?)(?:\[([^\]]*)\])?(=[^=]*|\*[^*]+)$/;

/** The text of an edit: a step, a part of it by axis names, and what becomes of it. */
export const editText = (step: string, slice: string, change: string) => `${step}${slice && `[${slice}]`}${change}`;

/** The edits that switch off a head, a block of a layer, or a layer. */
export const headOff = (weights: string, head: number) => editText(weights.replace(/weights$/, "context"), `head:${head}`, "=0");
export const blockOff = (out: string) => editText(out, "", "=0");
export const layerOff = (stack: string, layer: number) => `${stack}.${layer}.state=skip`;

const AXES: Record<string, string> = { token: "token", key: "key", feature: "feature", hidden: "feature", vocab: "vocabulary" };

/** An edit in words: "Encoder layer 1, self-attention, head 4: set to 0". Indices count from 1 here, as in the titles. */
export function describeEdit(edit: string, trace: Manifest): string {
  const [, step = "", slice = "", change = ""] = EDIT.exec(edit) ?? [];
  const skipped = /^(encoder|decoder)\.(\d+)\.state$/.exec(step);
  if (skipped && change === "=skip") return `${capital(skipped[1]!)} layer ${Number(skipped[2]) + 1}: skipped`;
  const node = trace.nodes.find((one) => one.id === step);
  if (!node) return edit;
  const blocked = change === "=blocked";
  const parts = slice.split(";").filter(Boolean).map((part) => {
    const [name = "", at = ""] = part.split(":");
    const axis = node.axes.find((one) => one.name === name);
    const token = /^\d+$/.test(at) && axis?.stream && streamOf(trace, axis.stream)?.pieces[Number(at)];
    const numbers = at.replace(/\d+/g, (n) => String(Number(n) + 1));
    return `${name === "token" && blocked ? "query" : AXES[name] ?? name} ${token ? `${visible(token)} (${numbers})` : numbers}`;
  });
  const off = change === "=0" && /^(context|out)(:|$)/.test(node.site);
  const what = off || blocked ? "" : title(node);
  const did = off ? "switched off" : blocked ? "blocked" : change === "=B" ? "from the second text" : change === "=mean" ? "set to its mean over reference texts"
    : change === "=skip" ? "skipped" : change[0] === "*" ? `times ${change.slice(1)}` : `set to ${change.slice(1)}`;
  return `${[nodeLocation(node), what, ...parts].filter(Boolean).join(", ")}: ${did}`;
}

const capital = (text: string) => text[0]!.toUpperCase() + text.slice(1);

/** The edits with one added, or without it if it is there. */
export const toggled = (edits: readonly string[], edit: string) => (edits.includes(edit) ? edits.filter((one) => one !== edit) : [...edits, edit]);

/** The edits of a step, or of one of its heads, as they were applied. */
export const editsOf = (trace: Manifest, id: string, head?: number) =>
  trace.edited?.applied.filter((one) => one.step === id && (head === undefined || !/head:\d+(;|$)/.test(one.slice) || `${one.slice};`.includes(`head:${head};`))) ?? [];
