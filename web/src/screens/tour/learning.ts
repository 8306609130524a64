/** The step of the tour on the Learn screen: how far one step of the optimizer brings an answer. */
import { base, edited, learn, source } from "../../state/page";
import { number } from "../../tensors/format";
import { hasSource, outputStream } from "../../trace/generation";
import type { Manifest } from "../../types";
import type { Context, TourStep } from "./context";
import { short } from "./decoding";

/** Whether an answer can be learned as it is: an unknown token has no text, and a translation that was cut off may be too long. */
function isLearnable(trace: Manifest): boolean {
  const { unk, eos } = trace.model.special_ids;
  return !outputStream(trace).ids.includes(unk) && (!hasSource(trace) || trace.predictions.at(-1)?.actual?.id === eos);
}

/** What becomes of the loss? A classifier learns its second class, any other model its own answer. */
export async function oneStep(context: Context): Promise<TourStep | null> {
  const { trace, classifier, masked } = context;
  if (!source.live || masked || trace.refused.learn) return null;
  const answer = classifier ? trace.predictions[0]!.top[1]?.piece : isLearnable(trace) && trace.answer.headline;
  if (!answer) return null;
  return {
    title: "One step of learning",
    question: `Suppose ${classifier ? `“${answer}” were the right class` : `its answer “${short(answer)}” is right`}. The loss says how improbable the model finds it. After one step of the optimizer on this text alone, the loss is …`,
    options: ["less than half as large", "smaller, but not by half", "no smaller"],
    todo: "Press “Take the step”.",
    control: "[data-role=one-step]",
    open: () => context.open("learn", { answer, lr: null, optimizer: null }),
    doIt: () => learn({ answer, learn_steps: 1 }),
    done: () => edited.value?.learning?.learned != null,
    result: () => {
      const { loss } = base.value!.learning!;
      const { loss: after, right } = edited.value!.learning!.learned!;
      return {
        right: after < loss / 2 ? 0 : after < loss ? 1 : 2,
        words: `The loss goes from ${number(loss)} to ${number(after)}.${classifier ? ` “${answer}” is ${right ? "now" : "not yet"} the most probable class.` : ""}`,
        compare: "Compare the update of one number, further below, which your browser recomputed. “Put it back” undoes the step; the files of the run never change.",
        at: "[data-role=mean-after]",
      };
    },
  };
}
