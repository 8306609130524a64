/**
 * The tour: a card beside the page. Each step asks for a prediction, then for something to do on the page, which it
 * waits for, then says what there is to compare with. The focus moves to the card with each; Escape ends the tour.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  base, edited, edits, go, isChanged, learn, paramsFromRequest, route, type Screen, selection, setEdits, setParams, source, trace as ask, work,
} from "../state/page";
import { useScreenKeys } from "../state/keys";
import { useResource } from "../state/resource";
import { openTour } from "../state/settings";
import { computed, useValue } from "../state/signals";
import { capital, number, percent, visible } from "../tensors/format";
import { at, type Grid, toGrid } from "../tensors/tensor";
import {
  forcedPrefix, hasSource, isClassifier, isEmbedder, isGiven, isMasked, outputStream, requestWithPrefix, rowTexts, targetIndex,
} from "../trace/generation";
import { type AttentionGroup, attentionGroups } from "../trace/heads";
import { filterAll, filterTop, NEUTRAL, samplingOf, samplingText } from "../trace/sampling";
import { erasedPositions, keyOf, nameOf, type Word, wordsOf } from "../trace/words";
import type { AttributeRequest, Manifest, Prediction, Sweep, SweepRow, WhatIf } from "../types";
import { Terms } from "../views/Terms";

/** A head kept from attending to one key, and what follows. */
interface BlockedKey {
  /** Id of the attention weights. */
  step: string;
  head: number;
  key: number;
  effect: SweepRow;
}

/** All keys of a sweep whose step satisfies `of`: first those that change a prediction, the largest fall of the log-probability first. */
export function strongestKeys({ rows }: Sweep, of: (step: string) => boolean): BlockedKey[] {
  const all = rows.filter(({ name }) => of(`${name}.weights`)).map((effect): BlockedKey => {
    const [head, key] = effect.edits[0]!.match(/(?<=head:|key:)\d+/g)!.map(Number);
    return { step: `${effect.name}.weights`, head: head!, key: key!, effect };
  });
  const changes = ({ effect }: BlockedKey) => Number(effect.n_changed > 0);
  return all.sort((a, b) => changes(b) - changes(a) || a.effect.value_after - b.effect.value_after);
}

const largest = (all: readonly number[], of: (i: number) => number) => all.reduce((best, one) => (best < 0 || of(one) > of(best) ? one : best), -1);

/** The column with the largest weight of a row. */
export const largestColumn = (grid: Grid, row: number) => largest([...Array(grid.cols).keys()], (col) => at(grid, row, col));

/** The row that attends most to a column. */
export const largestRow = (grid: Grid, col: number, rows: readonly number[]) => largest(rows, (row) => at(grid, row, col));

/** The index of the prediction whose next token is least probable, of those that `may` be looked at; -1: there is none. */
export function leastCertain(predictions: readonly Prediction[], may: (prediction: Prediction) => boolean): number {
  const asked = [...predictions.keys()].filter((i) => predictions[i]!.actual && may(predictions[i]!));
  return largest(asked, (i) => -predictions[i]!.actual!.log_prob);
}

/** `right` and up to `count - 1` others of `all`, evenly spread, in ascending order. */
export function optionsOf(right: number, all: readonly number[], count = 4): number[] {
  const others = all.filter((one) => one !== right);
  const wanted = Math.min(count - 1, others.length);
  const spread = Array.from({ length: wanted }, (_, i) => others[Math.floor(((i + 0.5) * others.length) / wanted)]!);
  return [...new Set([right, ...spread])].sort((a, b) => a - b);
}

/** The names of some tokens, with their number where the text has the token more than once. */
export function tokenNames(pieces: readonly string[], indices: readonly number[]): string[] {
  return indices.map((i) => visible(pieces[i]) + (pieces.filter((one) => one === pieces[i]).length > 1 ? ` (token ${i})` : ""));
}

/** Twice a temperature, within the range of the page's slider and on one of its marks; that of greedy decoding counts as 1/2. */
export const twice = (temperature: number) => Math.min(3, Math.round(40 * (temperature || 0.5)) / 20);

type Params = Record<string, string | number | null>;

interface TourStep {
  title: string;
  /** What to predict, and what to choose from. */
  question: string;
  options: string[];
  /** What to do, and the control to do it with, a CSS selector. */
  todo: string;
  control: string;
  /** Where the task is. */
  screen: Screen;
  params: Params;
  /** Does the task; or the parameters of the address that do it. */
  task: Params | (() => void);
  /** Whether it is done; by default whether the address has the parameters of the task. */
  done?: () => boolean;
  found: () => Found | Promise<Found>;
}

/** Which option holds; what the page shows, with its own numbers; what to compare it with, and where that is. */
interface Found {
  right: number;
  words: string;
  compare: string;
  at: string;
}

interface Context {
  trace: Manifest;
  classifier: boolean;
  masked: boolean;
  groups: AttentionGroup[];
  /** The effect of each key blocked alone; null where no edits can be made. */
  sweep: Sweep | null;
  looked: Looked | null;
  weighed: Weighed | null;
}

type Make = (context: Context) => TourStep | "" | false | null | undefined;

/** A row of a head, and the key to look at. */
interface Looked {
  group: AttentionGroup;
  step: string;
  head: number;
  row: number;
  grid: Grid;
  blocked: BlockedKey | null;
}

/** The words of a text with their scores, largest first. */
interface Weighed {
  request: AttributeRequest;
  words: Word[];
  quantity: string;
  target: { id: number; piece: string; log_prob: number };
  position: number | null;
}

/** With edits the key whose blocking changes most and to which its row attends most; else the largest weight of the last layer. */
async function look(trace: Manifest, groups: AttentionGroup[], sweep: Sweep | null): Promise<Looked | null> {
  const group = groups.at(-1);
  if (!group) return null;
  const { padding, special } = trace.streams.find((one) => one.name === group.queries)!;
  const all = [...padding.keys()].filter((i) => !padding[i]), words = all.filter((i) => !special[i]);
  const rows = words.length > 1 ? words : all;
  const gridOf = async (step: string, head: number) => toGrid(await source.tensor(trace.id, step, `head:${head}`));
  const strongest = sweep ? strongestKeys(sweep, (step) => group.layers.some(({ weights }) => weights === step)).slice(0, 12) : [];
  const found: Looked[] = [];
  for (const blocked of strongest) {
    const { step, head, key, effect } = blocked, grid = await gridOf(step, head);
    const row = effect.position ?? largestRow(grid, key, rows.filter((one) => one !== key));
    if (row >= 0) found.push({ group, step, head, row, grid, blocked });
    if (row >= 0 && largestColumn(grid, row) === key) return found.at(-1)!;
  }
  const step = group.layers.at(-1)!.weights;
  const row = trace.decode.masked?.[0] ?? rows[Math.floor(rows.length / 2)];
  return found[0] ?? (row === undefined ? null : { group, step, head: 0, row, grid: await gridOf(step, 0), blocked: null });
}

async function weigh(trace: Manifest): Promise<Weighed | null> {
  const position = trace.decode.masked?.[0], whole = isClassifier(trace);
  const index = whole ? 0 : targetIndex(trace, position?.toString()), prediction = trace.predictions[index];
  if (!prediction || (isMasked(trace) && position === undefined)) return null;
  const request: AttributeRequest = { trace: trace.id, method: "erase", ...(!whole && { prediction: index }) };
  const { scores, word_texts, quantity, target } = await source.ask("attribute", request);
  const upTo = whole || isMasked(trace) ? null : (prediction.position ?? 0) + 1;
  const words = trace.streams
    .flatMap((stream) => wordsOf(stream, scores[stream.name], stream.name === "source" ? null : upTo, word_texts[stream.name]))
    .filter((word) => !word.later && word.text).sort((a, b) => Math.abs(b.score) - Math.abs(a.score));
  return words.length > 1 && words[0]!.score ? { request, words, quantity, target, position: prediction.position } : null;
}

const probability = (one: { log_prob: number }) => percent(Math.exp(one.log_prob));
const layerOf = ({ layers }: AttentionGroup, step: string) => layers.find(({ weights }) => weights === step)?.layer;

const attend: Make = ({ trace, looked }) => {
  if (!looked) return null;
  const { group, step, head, row, grid } = looked, best = largestColumn(grid, row);
  const keys = trace.streams.find((one) => one.name === group.keys)!.pieces;
  const may = [...keys.keys()].filter((key) => group.kind !== "causal" || key <= row), options = optionsOf(best, may);
  const name = rowTexts(trace, group.queries)[row]!, written = group.kind !== "self" && name.split(" → ")[1];
  const place = `${group.title.toLowerCase()}, layer ${layerOf(group, step)}, head ${head}`;
  return may.length > 1 && {
    title: written ? "Where does this token come from?" : "Which token does it attend to?",
    question: written
      ? `While it computes “${written}” (row ${row}), the model attends to ${group.kind === "cross" ? "the source tokens" : "the tokens so far"}: each gets a weight. In ${place}, which gets the largest?`
      : `In ${place}, every token attends to all tokens: each gets a weight. Which gets the largest from “${name}” (token ${row})?`,
    options: tokenNames(keys, options),
    todo: `Select row ${row}, “${name}”, in the heat map or with the arrow keys in the table of its numbers.`,
    control: "[data-view=figure] td[tabindex='0']",
    screen: "attention", params: { node: step, head }, task: { cell: `${row},${best}` }, done: () => selection.value.row === row,
    found: () => ({
      right: options.indexOf(best), at: ".attention-reading",
      words: `“${name}” attends most to ${tokenNames(keys, [best])[0]}: ${percent(at(grid, row, best))} of its weight. With equal weights each token would get ${percent(1 / may.length)}.`,
      compare: "Compare the bars, the largest weights of the row. A large weight shows where a head reads, not yet that the answer depends on it.",
    }),
  };
};

/** What changes when a head may not attend to a key? */
function blocking({ trace, classifier, masked, groups }: Context, { step, head, key, effect }: BlockedKey, row: number, title: string, begins: string): TourStep {
  const group = groups.find(({ layers }) => layers.some(({ weights }) => weights === step))!, edit = effect.edits[0]!;
  const [name] = tokenNames(trace.streams.find((one) => one.name === group.keys)!.pieces, [key]);
  return {
    title,
    question: `${begins} Head ${head} of layer ${layerOf(group, step)} may no longer attend to ${name}: the key is blocked, its weight becomes 0. ${classifier ? "What does the model predict?" : "How many predictions change?"}`,
    options: classifier ? ["The same class, hardly less certain", "The same class, less certain", "Another class"] : ["None", "One", "Several"],
    todo: `Press “Block the key ${name}”.`,
    control: '.edit-tools button[title="Key b"]',
    screen: "attention", params: { node: step, head, cell: `${row},${key}` },
    task: () => setEdits([edit]), done: () => edits.value.includes(edit) && edited.value?.edited != null,
    found: () => ({
      ...changes(edited.value!.edited!, classifier, masked), at: "[data-role=effect]",
      compare: "Compare the line above the pictures, before and after. Where hardly anything changes, other heads and tokens carry the same information.",
    }),
  };
}

function changes({ answer_before, answer_after, effects }: WhatIf, classifier: boolean, masked: boolean) {
  const differ = effects.filter((one) => one.before !== one.after), fall = (i: number) => effects[i]!.log_prob_after - effects[i]!.log_prob_before;
  const most = classifier ? effects[0]! : (differ.length ? differ : effects)[0]!;
  const goes = `The probability of “${visible(most.target)}” goes from ${percent(Math.exp(most.log_prob_before))} to ${percent(Math.exp(most.log_prob_after))}`;
  if (classifier) return { right: differ.length ? 2 : Math.exp(most.log_prob_before) * (1 - Math.exp(fall(0))) > 0.05 ? 1 : 0, words: `${goes}${differ.length ? `: the model now predicts ${most.after}` : ""}.` };
  const answer = answer_after !== null && answer_after !== answer_before ? `“${answer_before}” becomes “${answer_after}”. ` : "";
  const given = masked ? "" : "After the tokens of the first answer, "; // in the new answer later ones follow from other tokens
  return { right: Math.min(2, differ.length), words: `${answer}${given}${differ.length} of ${effects.length} predictions ${differ.length === 1 ? "differs" : "differ"}. ${goes}.` };
}

const block: Make = (context) => context.looked?.blocked
  && blocking(context, context.looked.blocked, context.looked.row, "Block it", "You saw where this head reads. Does the answer depend on it?");

const blockEncoder: Make = (context) => {
  const strongest = context.sweep && strongestKeys(context.sweep, (step) => step.startsWith("encoder."))[0];
  return strongest && blocking(context, strongest, strongest.key, "An earlier decision", "Before anything is written, the encoder has read the source: its heads decide what the tokens mean.");
};

const temperature: Make = ({ trace, classifier, masked }) => {
  const index = classifier ? 0 : leastCertain(trace.predictions, ({ position }) => !isGiven(trace, position ?? 0));
  const prediction = trace.predictions[index];
  if (masked || !prediction) return null;
  const own = classifier ? NEUTRAL : samplingOf(trace), token = classifier ? prediction.top[0]! : prediction.actual!, hot = twice(own.temperature);
  const task: Params = classifier ? { heat: hot } : { sampling: samplingText({ ...own, temperature: hot }) };
  const now = () => Number((classifier ? route.value.params.heat : route.value.params.sampling?.split(",")[0]) ?? 0);
  const drawn = async (t: number) => {
    const { suppressed } = trace.decode, size = trace.model.vocab_size, sampling = { ...own, temperature: t };
    const all = classifier ? prediction.top.map(({ logit }) => logit)
      : trace.nodes.some(({ id }) => id === "logits") && Array.from((await source.tensor(trace.id, "logits", `token:${index}`)).data);
    const { bars } = all ? filterAll(all, sampling, suppressed, size) : filterTop(prediction.top, prediction.logsumexp, size, sampling, suppressed, size);
    return bars.find(({ id }) => id === (classifier ? 0 : token.id))?.after ?? 0;
  };
  return {
    title: "Twice the temperature",
    question: `The temperature divides the logits before they become probabilities; here it is ${own.temperature}. At ${hot}, the probability of “${visible(token.piece)}” becomes …`,
    options: ["smaller", "the same", "larger"],
    todo: `Move the temperature to ${hot}.`,
    control: "[data-role=slider-temperature]",
    screen: "decode", params: { position: classifier ? null : prediction.position }, task, done: () => now() >= hot,
    found: async () => {
      const [before, after] = [await drawn(own.temperature), await drawn(now())];
      return {
        right: Math.abs(before - after) < 5e-4 ? 1 : after < before ? 0 : 2, at: '.bars, [aria-label="Next tokens"]',
        words: `The probability of “${visible(token.piece)}” is ${percent(after)} instead of ${percent(before)}. A higher temperature brings the probabilities closer together: likely ones lose, unlikely ones gain.`,
        compare: "Compare the thin lines, at temperature 1, with the bars.",
      };
    },
  };
};

const short = (text: string) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

const force: Make = ({ trace, classifier, masked }) => {
  if (classifier || masked || !source.live || trace.decode.kind === "given") return null;
  const { eos, unk, pad, bos, mask } = trace.model.special_ids, { n_fixed, suppressed } = trace.decode, { ids } = outputStream(trace);
  const others = new Set([eos, unk, pad, bos, mask, ...suppressed]);
  const alternative = (index: number) => trace.predictions[index]!.top.slice(0, 10).find(({ id }) => id !== trace.predictions[index]!.actual!.id && !others.has(id));
  const among = (end: number) => leastCertain(trace.predictions, (one) => {
    const at = one.position ?? 0;
    return !isGiven(trace, at) && at + 1 >= n_fixed && at < end && one.actual!.id !== eos && alternative(trace.predictions.indexOf(one)) !== undefined;
  });
  const early = among((n_fixed + ids.length) / 2), index = early < 0 ? among(Infinity) : early; // so that many tokens follow
  if (index < 0) return null;
  const { position: at, actual } = trace.predictions[index]!, position = at ?? 0, other = alternative(index)!;
  const prefix = forcedPrefix(trace, position, other.id), rest = ids.slice(position + 2);

  return {
    title: "Another token",
    question: `${early < 0 ? "The" : "In the first half of its answer the"} model was least certain at “${visible(actual!.piece)}”: ${probability(actual!)}, against ${probability(other)} for “${visible(other.piece)}”. Forced to write that there, how does it continue?`,
    options: ["With the same tokens as before", "With other tokens"],
    todo: `Select the bar of “${visible(other.piece)}”, which forces it.`,
    control: `[data-role=force][data-candidate="${other.id}"]`,
    screen: "decode", params: { position, sampling: hasSource(trace) ? null : samplingText(samplingOf(trace)) },
    task: () => {
      ask(requestWithPrefix(trace, prefix));
      setParams({ position: position + 1 });
    },
    done: () => base.value?.request.prefix?.join() === prefix.join(),
    found: () => {
      const now = base.value!, after = outputStream(now).ids.slice(position + 2), same = after.join() === rest.join();
      return {
        right: Number(!same), at: "[data-role=answer]",
        words: `It now answers “${short(now.answer.headline)}”; before it was “${short(trace.answer.headline)}”. Of the ${rest.length} tokens after it, ${rest.filter((id, i) => after[i] === id).length} are as before. Each token is an input of the later steps, so one other token can change all that follow.`,
        compare: "Compare the answer at the top, and the colours of the tokens.",
      };
    },
  };
};

const fillIn: Make = ({ trace }) => {
  const at = trace.decode.masked?.[0], prediction = trace.predictions.find(({ position }) => position === at);
  if (at === undefined || !prediction) return null;
  const [first, second] = prediction.top, p = Math.exp(first!.log_prob);
  return {
    title: "How certain is it?",
    question: `At [MASK] (token ${at}) the model gives every token of its vocabulary a probability. How probable is its first choice?`,
    options: ["Below 20%", "20% to 80%", "Above 80%"],
    todo: "Select this [MASK] in the text.",
    control: `main [data-token="${at}"]`,
    screen: "decode", params: { position: trace.predictions.find(({ position }) => position !== at)?.position ?? null }, task: { position: at },
    found: () => ({
      right: p < 0.2 ? 0 : p <= 0.8 ? 1 : 2, at: '[aria-label="Next tokens"]',
      words: `“${visible(first!.piece)}” has ${percent(p)}, the second choice “${visible(second?.piece)}” ${percent(Math.exp(second?.log_prob ?? -Infinity))}.`,
      compare: "Compare the bars: all of the tokens it considers.",
    }),
  };
};

const maskWord: Make = ({ weighed, classifier, masked }) => {
  if (!weighed) return null;
  const { words: ranked, target, position } = weighed, word = ranked[0]!, what = visible(target.piece);
  const words = [...ranked].sort((a, b) => a.tokens[0]! - b.tokens[0]!), best = words.indexOf(word), options = optionsOf(best, [...words.keys()]);
  return {
    title: classifier ? "Which word decides?" : "Which word does it depend on?",
    question: `${classifier || masked ? "The model gives" : "Of the tokens it wrote, the model was least certain of"} “${what}”: ${probability(target)}. Which of these words, masked, changes it most?`,
    options: options.map((i) => nameOf(words[i]!, words)),
    todo: `Mask “${word.text}”: select it in the text.`,
    control: `[data-word="${word.index}"][data-of="${word.stream}"]`,
    screen: "why", params: { position }, task: { erased: keyOf(word) },
    found: async () => {
      const { method: _, ...request } = weighed.request;
      const { prediction, original, value } = await source.ask("erase", { ...request, erase: erasedPositions(ranked, new Set([keyOf(word)])) });
      const after = [...prediction.top, prediction.actual].find((one) => one?.id === target.id);
      return {
        right: options.indexOf(best), at: "[data-role=probability]",
        words: after ? `Without “${word.text}” the probability of “${what}” goes from ${probability(target)} to ${probability(after)}.`
          : `Without “${word.text}” the quantity goes from ${number(original)} to ${number(value)}.`,
        compare: "Compare “Strongest words”: each bar is what masking that word alone changes. Where no single word changes much, several words say the same.",
      };
    },
  };
};

/** A classifier learns its second class, any other model its own answer, if that can be written: an unknown token has no text. */
const oneStep: Make = ({ trace, classifier, masked }) => {
  const { unk, eos } = trace.model.special_ids;
  const whole = !outputStream(trace).ids.includes(unk) && (!hasSource(trace) || trace.predictions.at(-1)?.actual?.id === eos);
  const answer = classifier ? trace.predictions[0]!.top[1]?.piece : whole && trace.answer.headline;
  return source.live && !masked && !trace.refused.learn && answer && {
    title: "One step of learning",
    question: `Suppose ${classifier ? `“${answer}” were the right class` : `its answer “${short(answer)}” is right`}. The loss says how improbable the model finds it. After one step of the optimizer on this text alone, the loss is …`,
    options: ["less than half as large", "smaller, but not by half", "no smaller"],
    todo: "Press “Take the step”.",
    control: "[data-role=one-step]",
    screen: "learn", params: { answer, lr: null, optimizer: null },
    task: () => learn({ answer, learn_steps: 1 }), done: () => edited.value?.learning?.learned != null,
    found: () => {
      const { loss } = base.value!.learning!, { loss: after, right } = edited.value!.learning!.learned!;
      return {
        right: after < loss / 2 ? 0 : after < loss ? 1 : 2, at: "[data-role=mean-after]",
        words: `The loss goes from ${number(loss)} to ${number(after)}.${classifier ? ` “${answer}” is ${right ? "now" : "not yet"} the most probable class.` : ""}`,
        compare: "Compare the update of one number, further below, which your browser recomputed. “Undo the steps” takes it back; the files of the run never change.",
      };
    },
  };
};

/** Without the last, on Learn. */
const N_STEPS = 5;

/** In order of preference. */
const PLANS = {
  translator: [attend, block, blockEncoder, force, temperature, maskWord],
  classifier: [maskWord, attend, block, temperature],
  generator: [temperature, attend, block, maskWord, force],
  embedder: [attend],
  masked: [fillIn, attend, block, maskWord],
};

/** The steps, and what the tour cannot show, a sentence each. */
async function planOf(trace: Manifest): Promise<{ steps: TourStep[]; limits: string[] }> {
  const [classifier, masked, bare] = [isClassifier(trace), isMasked(trace), isEmbedder(trace)], groups = attentionGroups(trace);
  const editable = source.live && !bare && !trace.refused.edits;
  // Of what a saved page lacks there is no step.
  const sweep = editable ? await (source.ask("sweep", { trace: trace.id, kind: "keys" }) as Promise<Sweep>).catch(() => null) : null;
  const looked = await look(trace, groups, sweep).catch(() => null), weighed = bare ? null : await weigh(trace).catch(() => null);
  const context = { trace, classifier, masked, groups, sweep, looked, weighed };
  const kind = bare ? "embedder" : masked ? "masked" : classifier ? "classifier" : hasSource(trace) ? "translator" : "generator";
  const made = (all: readonly Make[]) => all.map((make) => make(context)).filter((step): step is TourStep => Boolean(step));
  const limits = [
    !source.live && "This is a saved page, which cannot run the model: in place of blocked keys and forced tokens there are steps with the numbers that it holds.",
    source.live && !editable && !bare && `${capital(trace.refused.edits!)}: in place of blocked keys there are other steps.`,
    trace.together && `This is an ensemble of ${trace.model.n_members} models. The tour shows member ${trace.request.member ?? 0}: what you change changes the answer of this member, not that of all together.`,
    bare && "This model gives one vector or number and predicts nothing else, so there are no steps about answers, masked words or blocked keys.",
    masked && "This model fills in [MASK] and writes no text, so there is no step about forced tokens or temperature.",
    masked && !trace.decode.masked!.length && "This text has no [MASK]; with one the tour has more steps.",
  ];
  return { steps: [...made(PLANS[kind]).slice(0, N_STEPS), ...made([oneStep])], limits: limits.filter((one) => one !== false && one !== null) };
}

export function Tour() {
  const now = useValue(base);
  const [begun, begin] = useState<Manifest | null>(now);
  const [index, setIndex] = useState(0);
  const first = begun ?? now;
  useEffect(() => begin(first), [first]);
  const { value: plan, error } = useResource(first && `tour/${first.id}`, () => planOf(first!));
  useScreenKeys(({ key }) => {
    if (key !== "Escape" || document.querySelector(":popover-open")) return false; // it closes a definition alone
    end();
    return true;
  });
  const again = () => {
    begin(now);
    setIndex(0);
  };
  const doing = useValue(work), step = plan?.steps[index], isLast = index + 1 === plan?.steps.length;
  const limits = index === 0 && plan?.limits.map((one) => <p key={one} class="note" data-role="tour-limit">{one}</p>);
  return (
    <aside class="tour" aria-label="Tour" onKeyDown={(event) => event.key !== "Escape" && event.stopPropagation()}>
      {now && first && now.request.text !== first.request.text ? <Card title="You traced another text"><p><button type="button" onClick={again}>Begin the tour with it</button></p></Card>
        : !step ? <Card title="The tour"><p>{plan ? "There is nothing to show of this text." : error?.message ?? `Choosing what to show …${doing ? ` ${percent(doing.share)}` : ""}`}</p>{limits}</Card>
        : <Play key={`${first!.id}/${index}`} {...{ step, limits, isLast }} trace={first!} place={`Tour, ${index + 1} of ${plan!.steps.length}`} onNext={() => (isLast ? end() : setIndex(index + 1))} />}
    </aside>
  );
}

function end() {
  openTour(null);
  document.getElementById("main")?.focus();
}

const PARAMS = ["show", "view", "why", "method", "class", "foil", "erased", "sampling", "heat", "position", "cell", "sort", "head", "node", "layer", "arithmetic", "numbers", "param"];

/** Opens the screen of a step without edits, forced tokens and masked words. */
function open({ screen, params }: TourStep, { request }: Manifest) {
  // A saved page holds the traces that it holds: its address names no text.
  const text = source.live ? paramsFromRequest(request) : { show: source.stored.some(isChanged) ? "before" : null };
  go(screen, { ...Object.fromEntries(PARAMS.map((name) => [name, null])), ...text, ...params });
}

/** The content of the card. Its heading takes the focus when it appears. */
function Card({ place = "", title, children }: { place?: string; title: string; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  return (
    <>
      <div class="tour-top"><span>{place}</span><button type="button" class="quiet" data-role="end-tour" title="Escape" onClick={end}>End the tour</button></div>
      <h2 ref={heading} tabIndex={-1} aria-describedby="tour-body">{title}</h2>
      <div id="tour-body">{children}</div>
    </>
  );
}

const state = computed([route, base, edited], () => [route.value, base.value, edited.value]);

const isDone = ({ screen, task, done }: TourStep) =>
  route.value.screen === screen && (done?.() ?? Object.entries(task).every(([name, value]) => route.value.params[name] === String(value)));

interface Playing {
  step: TourStep;
  trace: Manifest;
  place: string;
  limits: ComponentChildren;
  isLast: boolean;
  onNext: () => void;
}

/** Asks for a prediction, waits for the reader to do something with the page, or does it, and says what there is to find. */
function Play({ step, trace, place, limits, isLast, onNext }: Playing) {
  const [guess, setGuess] = useState<number | null>(null);
  const [seen, setSeen] = useState(false);
  const done = useValue(state, () => guess !== null && isDone(step));
  useEffect(() => { if (done) setSeen(true); }, [done]);
  const { value: found, error } = useResource(seen ? "found" : null, async () => step.found());
  useMarked(seen ? found?.at : guess === null ? undefined : step.control);
  const { title, question, options, todo, control, task } = step, expected = options[guess!];
  if (guess === null) {
    return (
      <Card key="ask" place={place} title={title}>
        {limits}
        <p><Terms>{question}</Terms></p>
        <div class="row tour-options" role="group" aria-label="What do you expect?">
          {[...options, "I do not know"].map((option, i) => (
            <button key={i} type="button" data-option={i} onClick={() => { open(step, trace); setGuess(i); }}><bdi>{option}</bdi></button>
          ))}
        </div>
      </Card>
    );
  }
  if (!seen) {
    return (
      <Card key="do" place={place} title="Try it">
        <p>{expected && <>You expect: <b><bdi>{expected}</bdi></b>. </>}<Terms>{todo}</Terms></p>
        <div class="row">
          <button type="button" data-role="do-it" onClick={() => (typeof task === "function" ? task() : setParams(task))}>Do it for me</button>
          <button type="button" class="quiet" data-role="to-control" onClick={() => document.querySelector<HTMLElement>(control)?.focus()}>Go to the control</button>
        </div>
      </Card>
    );
  }
  return (found ?? error) && (
    <Card key="see" place={place} title={!found || !expected ? "What you see" : found.right === guess ? "As you expected" : "Not as you expected"}>
      {found && found.right !== guess && <p>It is: <b><bdi>{options[found.right]}</bdi></b>.</p>}
      <p data-role="found"><Terms>{found?.words ?? error!.message}</Terms></p>
      {found && <p class="note"><Terms after={found.words}>{found.compare}</Terms></p>}
      {isLast && <p class="note">That was the tour. “Keys” opens it again{source.live ? ", also for a text of your own" : ""}.</p>}
      <button type="button" data-role="tour-next" onClick={onNext}>{isLast ? "Finish" : "Next step"}</button>
    </Card>
  );
}

/** Marks the element that a selector finds, as soon as it is there, and scrolls to it once. */
function useMarked(selector: string | undefined) {
  useEffect(() => {
    if (!selector) return;
    let marked: Element | null = null;
    const unmark = () => marked?.removeAttribute("data-tour");
    const mark = () => {
      const found = document.querySelector(selector);
      if (found === marked) return;
      unmark();
      found?.setAttribute("data-tour", "control"); // first, since its style says how far from the edge to scroll to
      if (found && !marked) found.scrollIntoView({ block: isLow(found) ? "start" : "nearest" });
      marked = found;
    };
    mark();
    const observer = new MutationObserver(mark);
    observer.observe(document.body, { childList: true, subtree: true });
    return () => {
      observer.disconnect();
      unmark();
    };
  }, [selector]);
}

/** Whether an element is outside the window, or so far down that the card may cover it. */
const isLow = (element: Element) => {
  const { top, bottom } = element.getBoundingClientRect();
  return top < 0 || bottom > innerHeight / 2;
};
