/** What to learn and how: the answer, the optimizer and the learning rate; and the buttons that take steps. */
import { useState } from "preact/hooks";
import { busy, learn, learnSteps, reportError, runFacts, source, trace as ask } from "../../state/page";
import { useValue } from "../../state/signals";
import { hasSource, isClassifier, isEmbedder, isMasked } from "../../trace/generation";
import type { LearnDefaults, Manifest, TraceRequest } from "../../types";

const MOST_STEPS = 100;
/** A loss below this counts as learned, even where the answer is not the most probable. */
const LEARNED = 0.1;
const OPTIMIZERS = { adamw: "AdamW", adam: "Adam", sgd: "SGD", muon: "Muon" };
/** Powers of ten that the slider covers. */
const [LEAST, MOST, STEP] = [-6, 1, 0.05];

type How = Pick<TraceRequest, "answer" | "lr" | "optimizer" | "learn_steps">;

export function LearnForm({ trace }: { trace: Manifest }) {
  const defaults = useValue(runFacts)!.learn;
  const steps = useValue(learnSteps);
  const waits = useValue(busy) !== null;
  const [looking, setLooking] = useState(false);
  const [said, setSaid] = useState("");
  const { request } = trace;
  const names = isClassifier(trace) ? trace.model.label_names : null;
  const [answer, setAnswer] = useState(request.answer ?? (names?.find((name) => name !== trace.answer.headline) ?? ""));
  const [optimizer, setOptimizer] = useState<string>(request.optimizer ?? defaults.optimizer);
  const [lr, setLr] = useState<number>(request.lr ?? defaults.lr);
  const how: How = {
    answer, ...(optimizer === defaults.optimizer ? {} : { optimizer }), ...(lr === defaults.lr ? {} : { lr }),
  };
  const same = request.answer === answer && (request.optimizer ?? defaults.optimizer) === optimizer && (request.lr ?? defaults.lr) === lr;
  const from = same ? steps : 0;
  const ready = answer.trim() !== "" && !waits && !looking;
  const take = (by: number) => {
    setSaid("");
    learn({ ...how, learn_steps: Math.min(MOST_STEPS, from + by) });
  };
  /** All steps are taken at once; which of them is the first after which the answer is learned follows from their losses. */
  const until = async () => {
    setLooking(true);
    setSaid("");
    try {
      const { text, checkpoint, member } = request;
      const far = await source.trace({ ...rest(request), text, ...(checkpoint && { checkpoint }), ...(member && { member }), ...how, learn_steps: MOST_STEPS });
      const { steps: taken, loss, right } = far.learning!.learned!;
      const low = far.learning!.target === null ? LEARNED : 0;
      const states = [...taken.map((one) => one.right || one.loss < low), right || loss < low];
      const first = states.indexOf(true);
      setSaid(first === 0 ? "The model gives this answer already." : first < 0 ? `After ${MOST_STEPS} steps it is not yet learned.` : `Learned after ${first} step${first > 1 ? "s" : ""}.`);
      learn({ ...how, learn_steps: first < 0 ? MOST_STEPS : first });
    } catch (error) {
      reportError(error);
    } finally {
      setLooking(false);
    }
  };
  return (
    <form class="learn-form" aria-label="Learn" onSubmit={(event) => {
      event.preventDefault();
      if (ready) take(0);
    }}>
      <AnswerField trace={trace} names={names} answer={answer} onChange={setAnswer} />
      <Examples defaults={defaults} />
      <label>
        Optimizer{" "}
        <select data-role="optimizer" value={optimizer} onChange={({ currentTarget }) => setOptimizer(currentTarget.value)}>
          {Object.entries(OPTIMIZERS).map(([value, words]) => <option key={value} value={value}>{words}{value === defaults.optimizer ? ", as the run" : ""}</option>)}
        </select>
      </label>
      <label class="learn-rate">
        <span>Learning rate <output>{plain(lr)}</output>{lr === defaults.lr && <span class="note"> as the run</span>}</span>
        <input
          type="range" data-role="lr" min={LEAST} max={MOST} step={STEP} value={Math.log10(lr)} aria-valuetext={plain(lr)}
          onInput={({ currentTarget }) => setLr(rateOf(Number(currentTarget.value)))}
        />
        {lr !== defaults.lr && <button type="button" class="quiet" onClick={() => setLr(defaults.lr)}>That of the run</button>}
      </label>
      {optimizer === "muon" && <p class="note" data-role="matrix-lr">Muon moves the matrices of the layers, with the rate {plain((defaults.matrix_lr * lr) / defaults.lr)}. AdamW moves all else, embeddings, biases and norms, with {plain(lr)}.</p>}
      <div class="learn-buttons">
        <button type="button" data-role="one-step" disabled={!ready || from >= MOST_STEPS} onClick={() => take(1)}>Take the step</button>
        <button type="button" data-role="ten-steps" disabled={!ready || from >= MOST_STEPS} onClick={() => take(10)}>Ten steps</button>
        <button type="button" data-role="until" disabled={!ready} onClick={() => void until()}>Until it is learned</button>
        <button type="submit" class="quiet" data-role="loss" disabled={!ready || same}>Show its loss</button>
        <button type="button" class="quiet" data-role="put-back" disabled={waits || !steps} onClick={() => {
          setSaid("");
          learn({ ...how, learn_steps: 0 });
        }}>Undo the steps</button>
      </div>
      <p class="note" role="status" data-role="said">{looking ? "Taking up to 100 steps …" : said}</p>
    </form>
  );
}

/** A request without what is learned. */
function rest({ answer: _, learn_steps: __, lr: ___, optimizer: ____, edits: _____, other_text: ______, ...request }: TraceRequest): TraceRequest {
  return request;
}

/** Two digits, so that the address is short. */
const rateOf = (power: number) => Number((10 ** power).toPrecision(2));
const plain = (lr: number) => {
  const rounded = Number(lr.toPrecision(4));
  return rounded < 0.001 ? rounded.toExponential().replace("-", "−") : String(rounded);
};

interface FieldProps {
  trace: Manifest;
  names: readonly string[] | null;
  answer: string;
  onChange: (answer: string) => void;
}

/** A class from the list, else a text. */
function AnswerField({ trace, names, answer, onChange }: FieldProps) {
  const words = names ? "Right class" : isEmbedder(trace) ? "Right number" : hasSource(trace) ? "Right translation" : isMasked(trace) ? "Words at [MASK]" : "Words that should follow";
  return (
    <label class="learn-answer">
      {words}{" "}
      {names
        ? <select data-role="learn-answer" value={answer} onChange={({ currentTarget }) => onChange(currentTarget.value)}>{names.map((name) => <option key={name} value={name}>{name}</option>)}</select>
        : <input data-role="learn-answer" value={answer} spellcheck={false} autocomplete="off" dir="auto" onInput={({ currentTarget }) => onChange(currentTarget.value)} />}
    </label>
  );
}

/** Texts that the run was evaluated on, with their right answers. */
const Examples = ({ defaults: { examples } }: { defaults: LearnDefaults }) => (examples.length > 0 ? (
  <label>
    <span class="visually-hidden">A text with its right answer</span>
    <select data-role="learn-example" value="" onChange={({ currentTarget }) => {
      const one = examples[Number(currentTarget.value)];
      if (one) ask(one);
    }}>
      <option value="">Take one from the evaluation …</option>
      {examples.map(({ text, answer }, i) => <option key={i} value={i}>{`${text.length > 40 ? `${text.slice(0, 40)}…` : text} → ${answer.length > 24 ? `${answer.slice(0, 24)}…` : answer}`}</option>)}
    </select>
  </label>
) : null);
