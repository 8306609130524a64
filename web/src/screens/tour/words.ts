/** Steps of the tour on the Why screen: words that are masked. */
import { route, setParams, source } from "../../state/page";
import { number, percent, visible } from "../../tensors/format";
import type { AttributeRequest, Attribution, Erased } from "../../types";
import { targetIndex } from "../../trace/generation";
import { erasedPositions, keyOf, nameOf, type Word, wordsOf } from "../../trace/words";
import { optionsOf } from "./choose";
import type { Context, TourStep } from "./context";

interface Weighed {
  request: AttributeRequest;
  found: Attribution;
  words: Word[];
  /** Indices of the words, the largest score in size first. */
  order: number[];
  /** Parameters of the address that select the prediction. */
  params: Record<string, number | null>;
}

const weighed = new WeakMap<Context, Promise<Weighed | null>>();

function weigh(context: Context): Promise<Weighed | null> {
  if (!weighed.has(context)) weighed.set(context, weighWords(context).catch(() => null)); // a saved page may lack them
  return weighed.get(context)!;
}

async function weighWords({ trace, classifier, masked }: Context): Promise<Weighed | null> {
  const position = masked ? trace.generation.masked?.[0] : undefined;
  if (masked && position === undefined) return null;
  const index = classifier ? 0 : targetIndex(trace, position?.toString());
  const prediction = trace.predictions[index];
  if (!prediction) return null;
  const request: AttributeRequest = { trace: trace.id, method: "erase", ...(!classifier && { prediction: index }) };
  const found = await source.attribute(request);
  const upTo = classifier || masked ? null : (prediction.position ?? 0) + 1;
  const words = trace.streams
    .flatMap((stream) => wordsOf(stream, found.scores[stream.name], stream.name === "source" ? null : upTo, found.word_texts[stream.name]))
    .filter((word) => !word.later && word.text);
  const order = [...words.keys()].sort((a, b) => Math.abs(words[b]!.score) - Math.abs(words[a]!.score));
  return words.length > 1 && words[order[0]!]!.score !== 0 ? { request, found, words, order, params: { position: prediction.position } } : null;
}

const erase = async ({ request: { method: _, ...request }, words }: Weighed, masked: readonly Word[]): Promise<Erased> =>
  source.erase({ ...request, erase: erasedPositions(words, new Set(masked.map(keyOf))) });

const control = ({ stream, index }: Word) => `[data-word="${index}"][data-of="${stream}"]`;
const isErased = (word: Word) => (route.value.params.erased ?? "").split(",").includes(keyOf(word));

/** Which word decides? */
export async function maskWord(context: Context): Promise<TourStep | null> {
  const all = await weigh(context);
  if (!all) return null;
  const { words, order, found: { target }, params } = all;
  const word = words[order[0]!]!;
  const options = optionsOf(order[0]!, [...words.keys()]);
  const { classifier, masked, trace } = context;
  const what = visible(target.piece);
  return {
    title: classifier ? "Which word decides?" : "Which word does it depend on?",
    question: `${classifier || masked ? "The model gives" : "Of the tokens it wrote, the model was least certain of"} “${what}”: ${percent(Math.exp(target.log_prob))}. Which of these words, masked, changes it most?`,
    options: options.map((i) => nameOf(words[i]!, words)),
    todo: `Mask “${word.text}”: select it in the text.`,
    control: control(word),
    open: () => context.open("why", params),
    doIt: () => setParams({ erased: keyOf(word) }),
    done: () => isErased(word),
    result: async () => {
      const { prediction, original, value } = await erase(all, [word]);
      const after = [...prediction.top, prediction.actual].find((one) => one?.id === target.id);
      const first = prediction.top[0];
      return {
        right: options.indexOf(order[0]!),
        words: after
          ? `Without “${word.text}” the probability of “${what}” goes from ${percent(Math.exp(target.log_prob))} to ${percent(Math.exp(after.log_prob))}${first && first.id !== trace.predictions[all.request.prediction ?? 0]?.top[0]?.id ? `, and the most probable is “${visible(first.piece)}”` : ""}.`
          : `Without “${word.text}” the quantity goes from ${number(original)} to ${number(value)}.`,
        compare: "Compare “Strongest words”: each bar is what masking that word alone changes. Where no single word changes much, several words say the same.",
        at: "[data-role=probability]",
      };
    },
  };
}

/** Do two words act independently? */
export async function maskTwo(context: Context): Promise<TourStep | null> {
  const all = source.live ? await weigh(context) : null;
  if (!all || all.words.length < 3) return null;
  const { words } = all;
  const [first, second] = [...words].sort((a, b) => b.score - a.score);
  if (!first || !second || second.score <= 0) return null; // a sum of opposite signs says little
  return {
    title: "Two words together",
    question: `Masking lowers the ${all.found.quantity}. “${first.text}” masked alone costs ${number(first.score)}, “${second.text}” alone ${number(second.score)}. Both masked: what do they cost together?`,
    options: ["Less than the sum", "About the sum", "More than the sum"],
    todo: `“${first.text}” is masked. Mask “${second.text}” too.`,
    control: control(second),
    open: () => context.open("why", { ...all.params, erased: keyOf(first) }),
    doIt: () => setParams({ erased: `${keyOf(first)},${keyOf(second)}` }),
    done: () => isErased(first) && isErased(second),
    result: async () => {
      const { original, value } = await erase(all, [first, second]);
      const [cost, sum] = [original - value, first.score + second.score];
      return {
        right: Math.abs(cost - sum) <= 0.1 * sum ? 1 : cost < sum ? 0 : 2,
        words: `Together they cost ${number(cost)}; the sum is ${number(sum)}.`,
        compare: "Compare the note under the probability, which has both values. Where words stand in for each other, no single score shows it.",
        at: ".probability",
      };
    },
  };
}
