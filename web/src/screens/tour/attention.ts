/** Steps of the tour on the Attention and Step screens: what a row attends to, that key blocked, the sum of a row. */
import { edited, edits, route, selection, setEdits, setParams } from "../../state/page";
import { percent, visible } from "../../tensors/format";
import { at, type Grid } from "../../tensors/grid";
import { rowTexts } from "../../trace/generation";
import type { AttentionGroup } from "../../trace/heads";
import type { WhatIf } from "../../types";
import { type BlockedKey, largestColumn, largestRow, optionsOf, strongestKeys, tokenNames } from "./choose";
import type { Context, TourStep } from "./context";

/** A row of a head, and the key to look at. */
interface Looked {
  group: AttentionGroup;
  step: string;
  head: number;
  row: number;
  key: number;
  grid: Grid;
  blocked: BlockedKey | null;
}

const looked = new WeakMap<Context, Promise<Looked | null>>();

/** The head, row and key that two steps are about, chosen once. */
function look(context: Context): Promise<Looked | null> {
  if (!looked.has(context)) looked.set(context, choose(context));
  return looked.get(context)!;
}

const rowsOf = ({ trace }: Context, group: AttentionGroup) => {
  const { padding, special } = trace.streams.find((one) => one.name === group.queries)!;
  const all = [...padding.keys()].filter((i) => !padding[i]);
  const words = all.filter((i) => !special[i]);
  return words.length > 1 ? words : all;
};

/** With edits the key whose blocking changes most and to which its row attends most; else the largest weight of the last layer. */
async function choose(context: Context): Promise<Looked | null> {
  const { trace, groups } = context;
  const group = groups.at(-1);
  const last = group?.layers.at(-1);
  if (!group || !last) return null;
  const sweep = await context.keys();
  const strongest = sweep ? strongestKeys(sweep, (step) => group.layers.some(({ weights }) => weights === step)).slice(0, 12) : [];
  let first: Looked | null = null;
  for (const blocked of strongest) {
    const { step, head, key, effect } = blocked;
    const grid = await context.head(step, head);
    const row = effect.position ?? largestRow(grid, key, rowsOf(context, group).filter((one) => one !== key));
    if (row < 0) continue;
    const found = { group, step, head, row, key, grid, blocked };
    first ??= found;
    if (largestColumn(grid, row) === key) return found;
  }
  if (first) return first;
  const grid = await context.head(last.weights, 0);
  const rows = rowsOf(context, group);
  const row = trace.generation.masked?.[0] ?? rows[Math.floor(rows.length / 2)];
  return row === undefined ? null : { group, step: last.weights, head: 0, row, key: largestColumn(grid, row), grid, blocked: null };
}

const placeOf = ({ group, step, head }: Looked) =>
  `${group.title.toLowerCase()}, layer ${group.layers.findIndex(({ weights }) => weights === step)}, head ${head}`;

/** Which token does a row attend to? */
export async function attend(context: Context): Promise<TourStep | null> {
  const found = await look(context);
  if (!found) return null;
  const { group, step, head, row, grid } = found;
  const { trace } = context;
  const keys = trace.streams.find((one) => one.name === group.keys)!.pieces;
  const best = largestColumn(grid, row);
  const may = [...keys.keys()].filter((key) => group.kind !== "causal" || key <= row);
  if (may.length < 2) return null;
  const options = optionsOf(best, may);
  const name = rowTexts(trace, group.queries)[row]!;
  const written = group.kind !== "self" && name.split(" → ")[1];
  return {
    title: written ? "Where does this token come from?" : "Which token does it attend to?",
    question: written
      ? `While it computes “${written}” (row ${row}), the model attends to ${group.kind === "cross" ? "the source tokens" : "the tokens so far"}: each gets a weight. In ${placeOf(found)}, which gets the largest?`
      : `In ${placeOf(found)}, every token attends to all tokens: each gets a weight. Which gets the largest from “${name}” (token ${row})?`,
    options: tokenNames(keys, options),
    todo: `Select “${name}”, row ${row}, in the left column of the lines.`,
    control: `.arcs-query li:nth-child(${row + 1}) button`,
    open: () => context.open("attention", { node: step, head }),
    doIt: () => setParams({ cell: `${row},${best}` }),
    done: () => route.value.screen === "attention" && selection.value.row === row,
    result: () => ({
      right: options.indexOf(best),
      words: `“${name}” attends most to ${tokenNames(keys, [best])[0]}: ${percent(at(grid, row, best))} of its weight. With equal weights each token would get ${percent(1 / may.length)}.`,
      compare: "Compare the lines: the thicker, the larger the weight. A large weight shows where a head reads, not yet that the answer depends on it.",
      at: ".arcs",
    }),
  };
}

/** What changes when a head may not attend to a key? */
function blockStep(context: Context, { step, head, key, effect }: BlockedKey, row: number | null, title: string, begins: string): TourStep {
  const { trace, classifier } = context;
  const group = context.groups.find(({ layers }) => layers.some(({ weights }) => weights === step))!;
  const name = tokenNames(trace.streams.find((one) => one.name === group.keys)!.pieces, [key])[0]!;
  const [edit = ""] = effect.edits;
  const layer = group.layers.findIndex(({ weights }) => weights === step);
  return {
    title,
    question: `${begins} Head ${head} of layer ${layer} may no longer attend to ${name}: the key is blocked, its weight becomes 0. ${classifier ? "What does the model predict?" : "How many predictions change?"}`,
    options: classifier ? ["The same class, hardly less certain", "The same class, less certain", "Another class"] : ["None", "One", "Several"],
    todo: `Press “Block the key ${name}”.`,
    control: '.edit-tools button[title="Key b"]',
    open: () => context.open("attention", { node: step, head, cell: `${row ?? key},${key}` }),
    doIt: () => setEdits([edit]),
    done: () => edits.value.includes(edit) && edited.value?.edited != null,
    result: () => ({ ...changes(edited.value!.edited!, context), at: "[data-role=effect]" }),
  };
}

function changes({ answer_before, answer_after, effects }: WhatIf, { classifier, masked }: Context) {
  const differ = effects.filter((one) => one.before !== one.after);
  const p = (nats: number) => percent(Math.exp(nats));
  if (classifier) {
    const { before, after, log_prob_before, log_prob_after } = effects[0]!;
    const falls = Math.exp(log_prob_before) - Math.exp(log_prob_after);
    return {
      right: before !== after ? 2 : falls > 0.05 ? 1 : 0,
      words: `The probability of ${before} goes from ${p(log_prob_before)} to ${p(log_prob_after)}${before !== after ? `: the model now predicts ${after}` : ""}.`,
      compare: "Compare the line above the pictures, before and after. If one key hardly matters, other heads and tokens carry the same information.",
    };
  }
  const most = [...(differ.length ? differ : effects)].sort((a, b) => a.log_prob_after - a.log_prob_before - (b.log_prob_after - b.log_prob_before))[0]!;
  const answer = answer_after !== null && answer_after !== answer_before ? `“${answer_before}” becomes “${answer_after}”. ` : "";
  // The table compares predictions after the same tokens; in the new answer, later ones follow from other tokens.
  const given = masked ? "" : "After the tokens of the first answer, ";
  return {
    right: Math.min(2, differ.length),
    words: `${answer}${given}${differ.length} of ${effects.length} predictions ${differ.length === 1 ? "differs" : "differ"}. The probability of “${visible(most.target)}” goes from ${p(most.log_prob_before)} to ${p(most.log_prob_after)}.`,
    compare: differ.length ? "Compare the line above the pictures, before and after. What changes when a key is blocked depended on it."
      : "Compare the line above the pictures, before and after. Where no prediction differs, other heads or tokens carry the same information.",
  };
}

/** The key of the step before, blocked. */
export async function block(context: Context): Promise<TourStep | null> {
  const found = await look(context);
  if (!found?.blocked) return null;
  return blockStep(context, found.blocked, found.row, "Block it", "You saw where this head reads. Does the answer depend on it?");
}

/** The key of the encoder that decides most. */
export async function blockEncoder(context: Context): Promise<TourStep | null> {
  const sweep = await context.keys();
  const strongest = sweep && strongestKeys(sweep, (step) => step.startsWith("encoder."))[0];
  return strongest ? blockStep(context, strongest, null, "An earlier decision", "Before anything is written, the encoder has read the source: its heads decide what the tokens mean.") : null;
}

/** What do the weights of a row sum to? */
export async function rowSum(context: Context): Promise<TourStep | null> {
  const found = await look(context);
  if (!found) return null;
  const { group, step, head, row, grid } = found;
  const best = largestColumn(grid, row);
  const weights = Array.from({ length: grid.cols }, (_, col) => at(grid, row, col));
  const name = rowTexts(context.trace, group.queries)[row]!;
  return {
    title: "What do the weights sum to?",
    question: `The scores of a row can be any numbers. Softmax turns them into weights. What do the ${grid.cols} weights of the row “${name}” sum to?`,
    options: ["1", `${grid.cols}, one per token`, "It depends on the text"],
    todo: "Show the arithmetic of the selected cell.",
    control: "[data-role=show-arithmetic]",
    open: () => context.open("step", { node: step, head, cell: `${row},${best}` }),
    doIt: () => setParams({ arithmetic: 1 }),
    done: () => route.value.params.arithmetic === "1",
    result: () => ({
      right: 0,
      words: `The weights sum to ${weights.reduce((sum, weight) => sum + weight, 0).toFixed(3)}; the largest is ${at(grid, row, best).toFixed(3)}. A weight can only grow if others shrink.`,
      compare: "Compare the last row of the table, the sum of weights, and the check that your browser made of the whole step.",
      at: "[data-role=arithmetic]",
    }),
  };
}
