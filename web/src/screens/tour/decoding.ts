/** Steps of the tour on the Decode screen: temperature, forced tokens, and how certain the model is. */
import { base, route, setParams, source, trace as ask } from "../../state/page";
import { filterAll, filterTop, NEUTRAL, type SamplingParams } from "../../tensors/filters";
import { percent, visible } from "../../tensors/format";
import { softmax } from "../../tensors/walk";
import { forcedPrefix, hasSource, isGiven, outputStream, predictedPosition, requestWithPrefix } from "../../trace/generation";
import type { Manifest, Prediction } from "../../types";
import { commonPrefix, leastCertain, optionsOf, tokenNames, twice } from "./choose";
import type { Context, TourStep } from "./context";

const generated = ({ trace }: Context) => leastCertain(trace.predictions, ({ position }) => !isGiven(trace, position ?? 0));

/** What the Decode screen begins with. */
function samplingOf(trace: Manifest): SamplingParams {
  const { settings: { temperature, top_k, top_p, min_p }, kind } = trace.decode;
  return !hasSource(trace) || kind === "sample" ? { temperature, topK: top_k, topP: top_p, minP: min_p } : NEUTRAL;
}

const inAddress = ({ temperature, topK, topP, minP }: SamplingParams) => [temperature, topK, topP, minP].join(",");

/** The probability for sampling of the token that follows. */
async function probabilityAt(trace: Manifest, index: number, sampling: SamplingParams): Promise<number> {
  const { top, logsumexp, actual } = trace.predictions[index]!;
  const { suppressed } = trace.generation;
  const logits = trace.nodes.some(({ id }) => id === "logits") && await source.tensor(trace.id, "logits", `token:${index}`).catch(() => null);
  const size = trace.model.vocab_size;
  const { bars } = logits ? filterAll(Array.from(logits.data), sampling, suppressed, size) : filterTop(top, logsumexp, size, sampling, suppressed, size);
  return bars.find(({ id }) => id === actual!.id)?.after ?? 0;
}

/** What becomes of one probability at twice the temperature? */
export async function temperature(context: Context): Promise<TourStep | null> {
  const { trace, classifier, masked } = context;
  const index = classifier ? -1 : generated(context);
  if (classifier || masked || index < 0) return null;
  const { position, actual } = trace.predictions[index]!;
  const own = samplingOf(trace);
  const hot = { ...own, temperature: twice(own.temperature) };
  const token = visible(actual!.piece);
  return {
    title: "Twice the temperature",
    question: `Sampling draws the next token by its probability. The temperature divides the logits first; here it is ${own.temperature}. At ${hot.temperature}, the probability to draw “${token}” becomes …`,
    options: ["smaller", "the same", "larger"],
    todo: `Move the temperature to ${hot.temperature}.`,
    control: "[data-role=slider-temperature]",
    open: () => context.open("decode", { position }),
    doIt: () => setParams({ sampling: inAddress(hot) }),
    done: () => Number(route.value.params.sampling?.split(",")[0] ?? 0) >= hot.temperature,
    result: async () => {
      const sampling = { ...hot, temperature: Number(route.value.params.sampling?.split(",")[0] ?? hot.temperature) };
      const [before, after] = [await probabilityAt(trace, index, own), await probabilityAt(trace, index, sampling)];
      return {
        right: Math.abs(before - after) < 5e-4 ? 1 : after < before ? 0 : 2,
        words: `The probability to draw “${token}” is ${percent(after)} instead of ${percent(before)}. A higher temperature brings the probabilities closer together: likely tokens lose, unlikely ones gain.`,
        compare: "Compare the thin lines, at temperature 1, with the bars.",
        at: '.bars, [aria-label="Next tokens"]',
      };
    },
  };
}

const meanProbability = ({ predictions }: Manifest, from: number) => {
  const all = predictions.filter(({ actual, position }) => actual && (position ?? 0) + 1 >= from).map(({ actual }) => Math.exp(actual!.log_prob));
  return all.reduce((sum, p) => sum + p, 0) / Math.max(1, all.length);
};

/** What does a language model write at twice the temperature? */
export async function writeHot(context: Context): Promise<TourStep | null> {
  const { trace, classifier, masked } = context;
  if (classifier || masked || hasSource(trace) || !source.live || generated(context) < 0) return null;
  const own = samplingOf(trace);
  const hot = { ...own, temperature: twice(own.temperature) };
  const { n_given, ids } = outputStream(trace);
  const isHot = (manifest: Manifest | null) => manifest?.decode.settings.temperature === hot.temperature && manifest.request.text === trace.request.text;
  return {
    title: "Twice the temperature",
    question: `The text was sampled at temperature ${own.temperature}. With the same seed, what does the model write at ${hot.temperature}?`,
    options: ["The same text", "The same beginning, then other tokens", "Another text from its first token"],
    todo: "The temperature is set. Press “Sample again”.",
    control: "[data-role=write-again]",
    open: () => context.open("decode", { sampling: inAddress(hot) }),
    doIt: () => {
      const request = requestWithPrefix(trace, []);
      ask({ ...request, decode: { ...request.decode, sample: true, temperature: hot.temperature, top_k: hot.topK, top_p: hot.topP, min_p: hot.minP } });
    },
    done: () => isHot(base.value),
    result: () => {
      const now = base.value!;
      const [before, after] = [ids.slice(n_given), outputStream(now).ids.slice(n_given)];
      const same = commonPrefix(before, after);
      return {
        right: same === before.length && same === after.length ? 0 : same > 0 ? 1 : 2,
        words: `${same} of ${before.length} tokens are the same at the beginning. The mean probability of a written token goes from ${percent(meanProbability(trace, n_given))} to ${percent(meanProbability(now, n_given))}.`,
        compare: "Compare the colours of the tokens: paler ones are less probable.",
        at: ".written",
      };
    },
  };
}

/** Does a classifier decide otherwise at twice the temperature? */
export async function heat({ trace, classifier, ...context }: Context): Promise<TourStep | null> {
  if (!classifier) return null;
  const top = trace.predictions[0]!.top;
  const best = top[0]!;
  return {
    title: "Twice the temperature",
    question: `The model gives “${visible(best.piece)}” ${percent(Math.exp(best.log_prob))}. Dividing all logits by 2 (a temperature of 2), what changes?`,
    options: ["Nothing", "The same class, less certain", "Another class"],
    todo: "Move the temperature to 2.",
    control: "[data-role=slider-temperature]",
    open: () => context.open("decode", {}),
    doIt: () => setParams({ heat: 2 }),
    done: () => Number(route.value.params.heat ?? 1) >= 2,
    result: () => {
      const p = softmax(top.map(({ logit }) => logit), Number(route.value.params.heat ?? 2))[0]!;
      return {
        right: 1,
        words: `“${visible(best.piece)}” now has ${percent(p)}. The largest logit stays the largest, so the class stays; only the probabilities come closer together.`,
        compare: "Compare the thin line, at temperature 1, with the bar.",
        at: '[data-role=probability]',
      };
    },
  };
}

/** The most probable token that is not written at a prediction and can be forced there. */
function alternative({ trace }: Context, { top, actual }: Prediction) {
  const { eos, unk, pad, bos, mask } = trace.model.special_ids;
  const not = new Set([actual!.id, eos, unk, pad, bos, mask, ...trace.generation.suppressed]);
  return top.slice(0, 10).find(({ id }) => !not.has(id));
}

/** A text that may be long, cut. */
export const short = (text: string) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

/** What follows if another token is written? */
export async function force(context: Context): Promise<TourStep | null> {
  const { trace, classifier, masked } = context;
  if (classifier || masked || !source.live || trace.decode.kind === "given") return null;
  const { eos } = trace.model.special_ids;
  const { n_fixed } = trace.generation;
  const half = (n_fixed + outputStream(trace).ids.length) / 2;
  const among = (end: number) => leastCertain(trace.predictions, ({ position, ...one }) => !isGiven(trace, position ?? 0) && (position ?? 0) + 1 >= n_fixed
    && (position ?? 0) < end && one.actual!.id !== eos && alternative(context, { position, ...one }) !== undefined);
  const early = among(half); // so that many tokens follow
  const index = early < 0 ? among(Infinity) : early;
  if (index < 0) return null;
  const prediction = trace.predictions[index]!;
  const other = alternative(context, prediction)!;
  const position = prediction.position ?? 0;
  const prefix = forcedPrefix(trace, position, other.id);
  const [was, token] = [visible(prediction.actual!.piece), visible(other.piece)];
  const rest = outputStream(trace).ids.slice(position + 2);
  return {
    title: "Another token",
    question: `${early < 0 ? "The" : "In the first half of its answer the"} model was least certain at “${was}”: ${percent(Math.exp(prediction.actual!.log_prob))}, against ${percent(Math.exp(other.log_prob))} for “${token}”. Forced to write “${token}” there, how does it continue?`,
    options: ["With the same tokens as before", "With other tokens"],
    todo: `Select the bar of “${token}”, which forces it.`,
    control: `[data-role=force][data-candidate="${other.id}"]`,
    open: () => context.open("decode", { position, sampling: hasSource(trace) ? null : inAddress(samplingOf(trace)) }),
    doIt: () => {
      ask(requestWithPrefix(trace, prefix));
      setParams({ position: position + 1 });
    },
    done: () => base.value?.request.prefix?.join() === prefix.join(),
    result: () => {
      const now = base.value!;
      const after = outputStream(now).ids.slice(position + 2);
      const same = after.join() === rest.join();
      const kept = rest.filter((id, i) => after[i] === id).length;
      return {
        right: same ? 0 : 1,
        words: `It now answers “${short(now.answer.headline)}”; before it was “${short(trace.answer.headline)}”. ${rest.length === 1 ? `The token after it is ${same ? "as before" : "another one"}` : `Of the ${rest.length} tokens after it, ${kept} are as before`}. Each token is an input of the later steps, so one other token can change all that follow.`,
        compare: "Compare the answer at the top, and the colours of the tokens.",
        at: "[data-role=answer]",
      };
    },
  };
}

/** Of which token is the model least certain? */
export async function certainty(context: Context): Promise<TourStep | null> {
  const { trace, classifier, masked } = context;
  const index = classifier || masked ? -1 : generated(context);
  if (index < 0) return null;
  const all = trace.predictions.flatMap(({ actual, position }, i) => (actual && !isGiven(trace, position ?? 0) ? [i] : []));
  if (all.length < 3) return null;
  const options = optionsOf(index, all);
  const pieces = trace.predictions.map(({ actual }) => actual?.piece ?? "");
  const { position, actual } = trace.predictions[index]!;
  const elsewhere = trace.predictions[all.find((i) => i !== index)!]!.position;
  const mean = all.reduce((sum, i) => sum + Math.exp(trace.predictions[i]!.actual!.log_prob), 0) / all.length;
  const [name] = tokenNames(pieces, [index]);
  return {
    title: "Where is it least certain?",
    question: "Each written token had a probability. Which of these had the smallest?",
    options: tokenNames(pieces, options),
    todo: `Select the token “${name}” of the output.`,
    control: `main .written [data-token="${predictedPosition(trace, position)}"]`,
    open: () => context.open("decode", { position: elsewhere }),
    doIt: () => setParams({ position }),
    done: () => route.value.params.position === String(position),
    result: () => ({
      right: options.indexOf(index),
      words: `“${name}” had ${percent(Math.exp(actual!.log_prob))}; the mean of all ${all.length} is ${percent(mean)}.`,
      compare: "Compare the bars: the tokens that the model could have written instead.",
      at: '[aria-label="Next tokens"]',
    }),
  };
}

/** How certain is a masked model of what it fills in? */
export async function fillIn(context: Context): Promise<TourStep | null> {
  const { trace } = context;
  const at = trace.generation.masked?.[0];
  const prediction = trace.predictions.find(({ position }) => position === at);
  if (at === undefined || !prediction) return null;
  const [first, second] = prediction.top;
  const p = Math.exp(first!.log_prob);
  const elsewhere = trace.predictions.find(({ position }) => position !== at)?.position ?? null;
  return {
    title: "How certain is it?",
    question: `At [MASK] (token ${at}) the model gives every token of its vocabulary a probability. How probable is its first choice?`,
    options: ["Below 20%", "20% to 80%", "Above 80%"],
    todo: "Select this [MASK] in the text.",
    control: `main .written [data-token="${at}"]`,
    open: () => context.open("decode", { position: elsewhere }),
    doIt: () => setParams({ position: at }),
    done: () => route.value.params.position === String(at),
    result: () => ({
      right: p < 0.2 ? 0 : p <= 0.8 ? 1 : 2,
      words: `“${visible(first!.piece)}” has ${percent(p)}, the second choice “${visible(second?.piece)}” ${percent(Math.exp(second?.log_prob ?? -Infinity))}.`,
      compare: "Compare the bars: all of the tokens it considers.",
      at: '[aria-label="Most probable tokens"]',
    }),
  };
}
