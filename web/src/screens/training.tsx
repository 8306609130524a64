/** The Training screen: a run while it trains, from its log and its snapshots, and afterwards as a replay. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem } from "../sources/source";
import { useScreenKeys } from "../state/keys";
import { probeTexts, route, runFacts, setParams, source, start } from "../state/page";
import { useResource } from "../state/resource";
import { type ErrorMessage, signal, toErrorMessage, useValue } from "../state/signals";
import { capital, checkpointName, count, number, percent } from "../tensors/format";
import { toTensor } from "../tensors/tensor";
import type { ControlRequest, ProbeAnswer, StepMetrics, TrainingNow } from "../types";
import { Track } from "../views/Bars";
import { Chart, duration, type Line, nearestIndex, pointsOf } from "../views/Chart";
import { Choices } from "../views/Choices";
import { Matrix } from "../views/Matrix";
import { Form, Section, Select } from "../views/Parts";

/** What is drawn, from the beginning of the log. */
export interface History {
  generation: number;
  curve: TrainingNow["curve"];
  validations: StepMetrics[];
  updates: StepMetrics[];
}

/** More points than this are asked for again, thinned. */
export const MOST_POINTS = 4000;

export const nothing = (generation = 0): History => ({
  generation, curve: { step: [], seconds: [], loss: [], lr: [], grad_norm: [] }, validations: [], updates: [],
});

/** The history with what came after it; null: it must be asked for from the beginning, as the log is another or too long. */
export function extended(history: History, now: TrainingNow): History | null {
  const last = history.curve.step.at(-1) ?? 0;
  if (last && now.generation !== history.generation) return null;
  if (history.curve.step.length + now.curve.step.length > MOST_POINTS && last) return null;
  const curve = Object.fromEntries(
    (Object.keys(history.curve) as (keyof TrainingNow["curve"])[]).map((name) => [name, [...history.curve[name], ...now.curve[name]]]));
  return {
    generation: now.generation,
    curve: curve as unknown as TrainingNow["curve"],
    validations: [...history.validations, ...now.validations],
    updates: [...history.updates, ...now.updates],
  };
}

/** Milliseconds between two questions while the training runs, and where nothing moves or nobody looks. */
const LIVE = 1000, QUIET = 5000;
const MAX_PROBES = 8;

const newest = signal<TrainingNow | null>(null);
const history = signal<History>(nothing());
/** Why the last question was not answered. */
const failure = signal<ErrorMessage | null>(null);
/** The position of the reading line on the horizontal axis; null: at the newest step. */
const cursor = signal<number | null>(null);
/** Why the run has no texts to begin with. */
const missing = signal<string | null>(null);

/** Ends the pause between two questions. */
let wake = () => {};

/** Asks for what is new, from the beginning where the log is another one or too long. */
async function ask() {
  try {
    const after = history.value.curve.step.at(-1) ?? 0;
    let received = await source.ask("training", { after });
    let next = extended(history.value, received);
    if (!next) {
      received = await source.ask("training", { after: 0 });
      next = extended(nothing(), received)!;
    }
    history.value = next;
    newest.value = received;
    failure.value = null;
    if (source.live && !runFacts.value && received.snapshots.length) await start(); // the first weights are there
  } catch (error) {
    failure.value = toErrorMessage(error);
  }
}

/** Asks again and again, until the function that it returns is called. */
function follow(): () => void {
  let alive = true;
  const seen = () => document.hidden || wake();
  document.addEventListener("visibilitychange", seen);
  void (async () => {
    while (alive) {
      await ask();
      if (!source.live) return;
      const goes = !failure.value && ["running", "paused", "waiting"].includes(newest.value?.state ?? "");
      await new Promise<void>((then) => {
        wake = then;
        setTimeout(then, goes && !document.hidden ? LIVE : QUIET);
      });
    }
  })();
  return () => {
    alive = false;
    document.removeEventListener("visibilitychange", seen);
  };
}

/** Asks the training for something. */
async function control(action: ControlRequest["action"]) {
  try {
    await source.ask("control", { action });
    failure.value = null;
  } catch (error) {
    failure.value = toErrorMessage(error);
  }
  setTimeout(() => wake(), 100); // a step may take less
}

/** Loads the texts to begin with, once. */
async function loadTexts() {
  if (probeTexts.value) return;
  try {
    const found = await source.ask("probes");
    [probeTexts.value, missing.value] = [probeTexts.value ?? found.texts, found.missing];
  } catch (error) {
    missing.value = toErrorMessage(error).message;
  }
}

/** Answers by text and snapshot; those of checkpoints that the run has since removed stay. */
const known = new Map<string, Promise<ProbeAnswer>>();

function answerOf(text: string, checkpoint: string): Promise<ProbeAnswer> {
  const key = keyOf(text, checkpoint);
  const found = known.get(key) ?? source.ask("probe", { text, checkpoint });
  known.set(key, found);
  found.catch(() => known.delete(key));
  return found;
}

type By = "step" | "seconds";
const BY: [By, string][] = [["step", "Steps"], ["seconds", "Seconds"]];

function Curves({ now }: { now: TrainingNow }) {
  const { curve, validations, updates } = useValue(history);
  const by: By = useValue(route, ({ params }) => params.by) === "seconds" ? "seconds" : "step";
  const xs = curve[by].map((value) => value ?? 0);
  const at = useValue(cursor);
  const index = at === null ? xs.length - 1 : nearestIndex(xs, at);
  useScreenKeys((event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !xs.length || (event.target as Element).matches("input")) return false;
    const stride = event.shiftKey ? Math.max(1, Math.round(xs.length / 20)) : 1;
    cursor.value = xs[Math.max(0, Math.min(xs.length - 1, index + by * stride))]!;
    return true;
  });
  const validAt = validations.map((one) => one[by]);
  const updatesAt = updates.map((one) => one[by]);
  const scores = (name: string) => pointsOf(validAt, validations.map((one) => one.valid![name]));
  const validLoss = scores("loss");
  const shared = { xs, by, cursor };
  const losses = [...curve.loss, ...validations.map((one) => one.valid!.loss ?? null)].filter((one): one is number => one !== null && one > 0);
  const wide = losses.length > 0 && Math.max(...losses) > 20 * Math.min(...losses);
  const lines = (points: Line["points"], name: string): Line[] => [{ name, points }];
  return (
    <section>
      <div class="row"><Choices name="by" label="Horizontal axis" options={BY} chosen={by} onChoose={(next) => setParams({ by: next })} /></div>
      <output class="chart-read" data-role="reading">{xs.length ? reading(index) : "Nothing is logged yet."}</output>
      <div class="charts">
        <Chart
          name="loss" title={validLoss.length ? "Loss, and of validation (dots)" : "Loss"} log={wide} {...shared}
          lines={[...lines(pointsOf(xs, curve.loss, wide), "loss"), { name: "validation loss", points: pointsOf(validAt, validations.map((one) => one.valid!.loss), wide), dots: true, kind: "second" }]}
        />
        {now.metric !== "loss" && (
          <Chart name="score" title={`Validation: ${words(now.metric)}, ${now.higher_is_better ? "higher" : "lower"} is better`} {...shared}
            lines={[{ name: words(now.metric), points: scores(now.metric), dots: true }]} />
        )}
        <Chart name="grad_norm" title="Gradient norm, before clipping" log lines={lines(pointsOf(xs, curve.grad_norm, true), "gradient norm")} {...shared} />
        <Chart name="lr" title="Learning rate" zero lines={lines(pointsOf(xs, curve.lr), "learning rate")} {...shared} />
        <Updates updates={updates} at={updatesAt} {...shared} />
        <Chart
          name="clipped" title="Share of steps clipped, and of time spent making batches (dashed)" zero {...shared}
          lines={[...lines(pointsOf(updatesAt, updates.map((one) => one.clipped)), "clipped"), { name: "making batches", points: pointsOf(updatesAt, updates.map((one) => one.wait)), kind: "second" }]}
        />
      </div>
    </section>
  );

  function reading(i: number): string {
    const value = (name: "loss" | "lr" | "grad_norm") => (curve[name][i] === null ? "not finite" : number(curve[name][i]!));
    const valid = validations.filter((one) => one.step <= curve.step[i]!).at(-1);
    const seconds = curve.seconds[i];
    return [
      `Step ${count(curve.step[i]!)}`, seconds === null ? "" : duration(seconds!), `loss ${value("loss")}`, `learning rate ${value("lr")}`,
      `gradient norm ${value("grad_norm")}`,
      valid ? `validation ${Object.entries(valid.valid!).map(([name, score]) => `${words(name)} ${number(score)}`).join(", ")} at step ${count(valid.step)}` : "",
    ].filter(Boolean).join(" · ");
  }
}

/** ‖Δw‖ / ‖w‖ of each matrix: all of them faint, and one that is chosen. */
function Updates({ updates, at, xs, by }: { updates: readonly StepMetrics[]; at: (number | null)[]; xs: number[]; by: By }) {
  const [chosen, setChosen] = useState("");
  const names = [...new Set(updates.flatMap(({ update_ratios }) => Object.keys(update_ratios!)))];
  const one = names.includes(chosen) ? chosen : names[0] ?? "";
  const lines = names.map((name): Line => ({ name, points: pointsOf(at, updates.map(({ update_ratios }) => update_ratios![name]), true), kind: name === one ? "main" : "faint" }));
  lines.sort((a, b) => Number(a.kind === "main") - Number(b.kind === "main")); // the chosen one on top
  return (
    <div>
      <Chart name="updates" title="Update ÷ weight, ‖Δw‖ / ‖w‖, of each matrix" log lines={lines} xs={xs} by={by} cursor={cursor} />
      {names.length > 0 && (
        <Select label="Matrix" value={one} onChoose={setChosen} options={names.map((name) => [name, name])} attributes={{ "data-role": "matrix" }} />
      )}
      {names.length > 0 && <p class="note">Most sound trainings have 0.0003 to 0.02 where the learning rate is high; much more is unstable, much less learns slowly. {clippedText(updates)}</p>}
    </div>
  );
}

/** The share is of the steps since the update before. */
function clippedText(updates: readonly StepMetrics[]): string {
  const last = updates.at(-1);
  if (last?.clipped == null) return "";
  const n = last.step - (updates.at(-2)?.step ?? 0);
  return n > 1 ? `Of the ${count(n)} steps up to step ${count(last.step)}, the gradients of ${percent(last.clipped)} were clipped.` : "";
}
const words = (name: string) => name.replaceAll("_", " ");

/** Milliseconds that a snapshot is shown for while all are played. */
const PLAYED = 700;

/** What a snapshot answered, or why it did not. */
type Answered = ProbeAnswer | { error: string; lost: boolean };
type Answers = Map<string, Answered>;
const keyOf = (text: string, name: string) => `${name}\n${text}`;

/** The snapshots that can answer, the finished model last. */
function snapshotsOf(now: TrainingNow) {
  const model = now.has_model ? [{ name: "model", step: now.step }] : [];
  return [...now.snapshots, ...model].map(({ name, step }) => ({ name, step: step ?? 0, title: checkpointName(name, step) }));
}

/** Answers of all snapshots, those of the one that is shown first; one question at a time, since one thread answers. */
function useAnswers(asked: readonly string[], names: readonly string[], shown: string | undefined): Answers {
  const order = [...(shown ? [shown] : []), ...names.filter((name) => name !== shown)];
  const { value } = useResource<Answers>(JSON.stringify([asked, order]), async (soFar) => {
    let answers: Answers = new Map();
    for (const name of order) {
      for (const text of asked) {
        const found = await answerOf(text, name).catch((error: unknown): Answered => ({ error: toErrorMessage(error).message, lost: error instanceof Problem && error.status === 0 }));
        answers = new Map(answers).set(keyOf(text, name), found);
        if (!soFar(answers) || ("lost" in found && found.lost && source.live)) return answers; // the server has ended
      }
    }
    return answers;
  }, { within: "answers" });
  return value ?? new Map();
}

function Probes({ now }: { now: TrainingNow }) {
  const asked = useValue(probeTexts) ?? [];
  const why = useValue(missing);
  const snapshots = snapshotsOf(now);
  const [chosen, setChosen] = useState<string | null>(null);
  const [playing, setPlaying] = useState(false);
  const found = snapshots.findIndex(({ name }) => name === chosen);
  const at = found < 0 ? snapshots.length - 1 : found; // the newest, until one is chosen
  const answers = useAnswers(asked, snapshots.map(({ name }) => name), snapshots[at]?.name);
  const ready = snapshots.length > 0;
  useEffect(() => {
    if (ready) void loadTexts();
  }, [ready]);
  useEffect(() => {
    if (!playing) return;
    const timer = setTimeout(() => {
      if (at + 1 < snapshots.length) setChosen(snapshots[at + 1]!.name);
      if (at + 2 >= snapshots.length) setPlaying(false);
    }, PLAYED);
    return () => clearTimeout(timer);
  }, [playing, at]);
  const play = () => {
    if (!playing && at === snapshots.length - 1) setChosen(snapshots[0]!.name);
    setPlaying(!playing);
  };
  useScreenKeys((event) => {
    if (event.key !== " " || snapshots.length < 2 || (event.target as Element).matches("button, summary")) return false;
    play();
    return true;
  });
  if (!ready) return <p class="note">No weights are saved yet. With <code>--snapshots</code>, which <code>--watch</code> turns on, they are kept at steps 0, 16, 32, 64 and so on.</p>;
  const { title } = snapshots[at]!;
  return (
    <>
      <div class="row">
        <button type="button" data-role="play" disabled={snapshots.length < 2} onClick={play}>{playing ? "Stop playing" : "Play"}</button>
        <label class="row">
          Snapshot: {title}
          <input
            type="range" data-role="snapshot" max={snapshots.length - 1} value={at} aria-valuetext={title}
            onInput={(event) => { setPlaying(false); setChosen(snapshots[Number(event.currentTarget.value)]!.name); }}
          />
        </label>
      </div>
      {asked.length > 0 && <p class="note">Bar and line: the probability of the answer, of a continuation the geometric mean over its tokens.</p>}
      {why && <p class="note" data-role="no-texts">{why}</p>}
      <ul class="probes">
        {asked.map((text) => <Probe key={text} text={text} snapshots={snapshots} at={at} answers={answers} />)}
      </ul>
      {source.live && asked.length < MAX_PROBES && <Add asked={asked} />}
    </>
  );
}

function Probe({ text, snapshots, at, answers }: { text: string; snapshots: ReturnType<typeof snapshotsOf>; at: number; answers: Answers }) {
  const [open, setOpen] = useState(false);
  const { name } = snapshots[at]!, steps = snapshots.map((one) => one.step);
  const answer = answers.get(keyOf(text, name));
  const shares = snapshots.map((one) => {
    const found = answers.get(keyOf(text, one.name));
    return found && "probability" in found ? found.per_token ?? found.probability : null;
  });
  const share = shares[at] ?? null;
  const map = answer && "map" in answer ? answer.map : null;
  const value = useMemo(() => map && toTensor("f32", [map.rows.length, map.columns.length], Float32Array.from(map.weights.flat()).buffer), [map]);
  const perToken = answer && "per_token" in answer && answer.per_token !== null;
  const remove = () => (probeTexts.value = probeTexts.value!.filter((one) => one !== text));
  return (
    <li class="probe" data-probe={text} data-snapshot={answer ? name : undefined} aria-busy={!answer}>
      <p class="note" dir="auto">{text}{source.live && <button type="button" class="quiet" aria-label={`Remove ${text}`} onClick={remove}>Remove</button>}</p>
      {!answer && <p class="note">Asking …</p>}
      {answer && "error" in answer && <p class="note note-bad">{answer.error}</p>}
      {answer && "headline" in answer && (
        <>
          <p class="probe-answer" dir="auto" data-role="probe-answer">{answer.headline} <span class="note">{answer.detail}</span></p>
          {share !== null && (
            <p class="probe-share">
              <Track share={share} />
              <span class="bar-number">{percent(share)}{perToken && <small> a token</small>}</span>
            </p>
          )}
          <Chart name="probability" title="Probability at each snapshot" zero by="step" xs={steps} lines={[{ name: "probability", points: pointsOf(steps, shares), dots: true }]} />
          {answer.map
            ? (
              <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
                <summary class="small">Attention, last layer, mean of its heads</summary>
                {open && <Matrix
                  node={answer.map.step} value={value} rowLabels={answer.map.rows} colLabels={answer.map.columns} rowName="token" colName="key" numbers="toggle"
                  scale="sequential" limit={1} label="Attention weights, mean of the heads"
                />}
              </details>
            )
            : <p class="note">The text is too long for an attention map here; the screen Attention has it.</p>}
        </>
      )}
    </li>
  );
}

function Add({ asked }: { asked: readonly string[] }) {
  const [text, setText] = useState("");
  const add = () => {
    const typed = text.trim();
    if (typed && !asked.includes(typed)) probeTexts.value = [...asked, typed];
    setText("");
  };
  return (
    <Form class="row" send={add}>
      <label>Another text, up to {MAX_PROBES} in all <input type="text" data-role="probe-text" maxLength={1000} dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      <button type="submit" data-role="add-probe" disabled={!text.trim()}>Add</button>
    </Form>
  );
}

export function TrainingScreen() {
  useEffect(follow, []);
  const now = useValue(newest);
  const lost = useValue(failure);
  if (!now) return <p class="waiting">{lost ? [lost.message, lost.hint].filter(Boolean).join(": ") : "Reading the log …"}</p>;
  return (
    <div class="training" data-role="training">
      <h1 class="visually-hidden">Training</h1>
      <StateLine now={now} live={source.live} />
      <Controls now={now} />
      <Curves now={now} />
      {now.findings.length > 0 && (
        <Section title="What the doctor says of the log" data-role="findings">
          <ul>{now.findings.map(({ matter, remedy, grade }) => <li key={matter} data-grade={grade}><b class="training-grade">{grade.toUpperCase()}</b> {capital(matter)}.{remedy && <span class="note"> {capital(remedy)}.</span>}</li>)}</ul>
        </Section>
      )}
      <Section title="The model at each snapshot"><Probes now={now} /></Section>
      {source.live && <p class="note">“Share” saves the curves and these answers as one file.</p>}
    </div>
  );
}

const STATES: Record<TrainingNow["state"], string> = {
  waiting: "waiting for the first step", running: "running", paused: "paused", finished: "finished", stopped: "stopped",
  gone: "gone: there is no such folder any more",
};
/** Milliseconds between two announcements of progress. */
const SAID_EVERY = 30_000;

/** "Step 1,200 of 3,000, 2 min 5 s". */
function position({ step, steps, seconds }: TrainingNow): string {
  if (!step) return "";
  return `Step ${count(step)}${steps ? ` of ${count(steps)}` : ""}${seconds === null ? "" : `, ${duration(seconds)}`}`;
}

function StateLine({ now, live }: { now: TrainingNow; live: boolean }) {
  const lost = useValue(failure);
  return (
    <>
      <p class="training-state">
        <b data-role="training-state" data-state={now.state}>{capital(STATES[now.state])}</b> <span data-role="training-step" data-step={now.step}>{position(now)}</span>
      </p>
      {now.state === "stopped" && <p class="note">Resume it in a terminal: <code>glassformer train --resume {now.run}</code></p>}
      {lost && <p class="note note-bad" data-role="training-lost">{lost.message}. {lost.hint}</p>}
      {live && <Announcement now={now} lost={lost?.message ?? ""} />}
    </>
  );
}

/** Speaks at a change of state, and otherwise at most every 30 seconds. */
function Announcement({ now, lost }: { now: TrainingNow; lost: string }) {
  const { curve } = useValue(history);
  const [said, setSaid] = useState("");
  const last = useRef({ state: "", when: 0 });
  useEffect(() => {
    const state = lost || now.state, when = performance.now();
    if (state === last.current.state && when - last.current.when < SAID_EVERY) return;
    last.current = { state, when };
    const loss = curve.loss.at(-1);
    setSaid(lost || [`Training ${STATES[now.state]}`, position(now), loss == null ? "" : `loss ${number(loss)}`].filter(Boolean).join(". "));
  }, [now, lost]);
  return <p class="visually-hidden" role="status" aria-live="polite" data-role="training-said">{said}</p>;
}

function Controls({ now }: { now: TrainingNow }) {
  const [sure, setSure] = useState(false);
  if (!now.control) return now.refused ? <p class="note" data-role="no-control">{now.refused}</p> : null;
  const paused = now.state === "paused";
  const button = (action: ControlRequest["action"], words: string, disabled = false) => (
    <button type="button" data-control={action} disabled={disabled} onClick={() => void control(action)}>{words}</button>
  );
  return (
    <div class="row" role="group" aria-label="Control of the training">
      {button("pause", "Pause", paused)}
      {button("step", "Step", !paused)}
      {button("continue", "Continue", !paused)}
      {sure
        ? (
          <>
            {button("stop", "Save and stop")}
            <button type="button" class="quiet" onClick={() => setSure(false)}>Keep training</button>
          </>
        )
        : <button type="button" data-control="ask-stop" onClick={() => setSure(true)}>Stop …</button>}
    </div>
  );
}
