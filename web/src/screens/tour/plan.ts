/** The steps of the tour for a model: those for its kind, and others where a step cannot be shown. */
import { source } from "../../state/page";
import { capital } from "../../tensors/format";
import { isEmbedder } from "../../trace/generation";
import type { Manifest } from "../../types";
import { attend, block, blockEncoder, rowSum } from "./attention";
import { type Context, contextOf, type TourStep } from "./context";
import { certainty, fillIn, force, heat, temperature, writeHot } from "./decoding";
import { oneStep } from "./learning";
import { maskTwo, maskWord } from "./words";

type Make = (context: Context) => Promise<TourStep | null>;

/** Without the last, on Learn. */
const N_STEPS = 5;

/** In order: where edits can be made, of which those that a text does not allow are left out; and where none can. */
const PLANS: Record<"translator" | "classifier" | "generator" | "masked" | "embedder", [edits: Make[], none: Make[]]> = {
  translator: [[attend, block, blockEncoder, force, temperature], [attend, certainty, maskWord, force, temperature, rowSum]],
  classifier: [[maskWord, maskTwo, attend, block, heat], [maskWord, maskTwo, attend, rowSum, heat]],
  generator: [[writeHot, attend, block, maskWord, force], [certainty, attend, maskWord, force, temperature, rowSum]],
  embedder: [[attend, rowSum], [attend, rowSum]],
  masked: [[fillIn, attend, block, maskWord, rowSum], [fillIn, attend, maskWord, rowSum]],
};

export interface Plan {
  steps: TourStep[];
  /** What the tour cannot show, a sentence each. */
  limits: string[];
}

export async function planOf(trace: Manifest): Promise<Plan> {
  const context = contextOf(trace);
  const kind = isEmbedder(trace) ? "embedder" : context.masked ? "masked" : context.classifier ? "classifier" : trace.streams.length > 1 ? "translator" : "generator";
  const [wanted, instead] = PLANS[kind];
  const makes = context.edits ? new Set([...wanted, ...instead]) : instead;
  const make = (one: Make) => one(context).catch(() => null); // of what a saved page lacks there is no step
  const steps: TourStep[] = [];
  for (const one of makes) {
    const step = steps.length < N_STEPS && await make(one);
    if (step) steps.push(step);
  }
  const last = await make(oneStep);
  if (last) steps.push(last);
  return { steps, limits: limitsOf(context) };
}

function limitsOf({ trace, edits, masked }: Context): string[] {
  const { together } = trace;
  const limits = [
    !source.live && "This is a saved page, which cannot run the model: in place of blocked keys and forced tokens there are steps with the numbers that it holds.",
    source.live && !edits && !isEmbedder(trace) && `${capital(trace.refused.edits!)}: in place of blocked keys there are other steps.`,
    together && `This is an ensemble of ${together.size} models. The tour shows member ${together.member}: what you change changes the answer of this member, not that of all together.`,
    isEmbedder(trace) && "This model gives one vector or number and predicts nothing else, so there are no steps about answers, masked words or blocked keys.",
    masked && "This model fills in [MASK] and writes no text, so there is no step about forced tokens or temperature.",
    masked && !trace.generation.masked!.length && "This text has no [MASK]; with one the tour has more steps.",
  ];
  return limits.filter((one) => one !== false && one !== null);
}
