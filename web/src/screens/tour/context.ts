/** What the steps of the tour are made from: the trace, its weights and sweeps, each fetched once, and the page. */
import { paramsFromRequest, type Screen } from "../../state/address";
import { go, isChanged, source } from "../../state/page";
import { type Grid, toGrid } from "../../tensors/grid";
import { attentionGroups, type AttentionGroup } from "../../trace/heads";
import { isClassifier, isEmbedder, isMasked } from "../../trace/generation";
import type { KeysSweep, Manifest } from "../../types";

export interface TourStep {
  title: string;
  /** What to predict. */
  question: string;
  options: string[];
  /** What to do, and the control to do it with, a CSS selector. */
  todo: string;
  control: string;
  /** Opens the screen as the task begins. */
  open: () => void;
  /** Does the task. */
  doIt: () => void;
  /** Whether the task is done, and the page shows what follows. */
  done: () => boolean;
  /** What the reader finds, with the page's own numbers. */
  result: () => Result | Promise<Result>;
}

export interface Result {
  /** Index of the option that holds. */
  right: number;
  words: string;
  /** What to compare with, and where it is: a CSS selector. */
  compare: string;
  at: string;
}

export interface Context {
  trace: Manifest;
  groups: AttentionGroup[];
  classifier: boolean;
  masked: boolean;
  /** Edits can be made: not in a saved page, nor of a text for which they are refused. */
  edits: boolean;
  /** The effect of each key blocked alone; null where edits cannot be made. */
  keys: () => Promise<KeysSweep | null>;
  /** The weights of one head. */
  head: (weights: string, head: number) => Promise<Grid>;
  /** Opens a screen without edits, forced tokens and masked words, and with these parameters. */
  open: (screen: Screen, params: Record<string, string | number | null>) => void;
}

const PARAMS = ["show", "view", "why", "method", "class", "foil", "erased", "sampling", "heat", "position", "beam", "cell", "hide", "sort", "head", "node", "layer", "arithmetic", "numbers", "param"];

export function contextOf(trace: Manifest): Context {
  let keys: Promise<KeysSweep | null> | undefined;
  const edits = source.live && !isEmbedder(trace) && !trace.refused.edits;
  const clean = Object.fromEntries(PARAMS.map((name) => [name, null]));
  // A saved page holds the traces that it holds: its address names no text.
  const request = source.live ? paramsFromRequest(trace.request) : { show: source.stored.some(isChanged) ? "before" : null };
  return {
    trace, groups: attentionGroups(trace), classifier: isClassifier(trace), masked: isMasked(trace), edits,
    keys: () => (keys ??= edits ? source.sweep({ trace: trace.id, kind: "keys" }).catch(() => null) : Promise.resolve(null)),
    head: async (weights, head) => toGrid(await source.tensor(trace.id, weights, `head:${head}`)),
    open: (screen, params) => go(screen, { ...clean, ...request, ...params }),
  };
}
