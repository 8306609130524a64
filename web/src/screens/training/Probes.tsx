/** Texts that the model answers at each snapshot, with a slider over the snapshots. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { Problem } from "../../sources/source";
import { useScreenKeys } from "../../state/keys";
import { probeTexts, source } from "../../state/page";
import { toErrorMessage, useValue } from "../../state/signals";
import { count, percent } from "../../tensors/format";
import { toTensor } from "../../tensors/tensor";
import type { ProbeAnswer, TrainingNow } from "../../types";
import { Matrix } from "../../views/Matrix";
import { answerOf, loadTexts, MAX_PROBES, missing } from "./store";

/** Milliseconds that a snapshot is shown for while all are played. */
const PLAYED = 700;

/** What a snapshot answered, or why it did not. */
type Answered = ProbeAnswer | { error: string };
type Answers = Map<string, Answered>;
const keyOf = (text: string, name: string) => `${name}\n${text}`;

/** The snapshots that can answer, the finished model last. */
function snapshotsOf(now: TrainingNow) {
  const steps = now.snapshots.map(({ name, step }) => ({ name, title: step === 0 ? "before training" : `step ${count(step ?? 0)}` }));
  return now.has_model ? [...steps, { name: "model", title: "the finished model" }] : steps;
}

/** Answers of all snapshots, those of the one that is shown first; one question at a time, since one thread answers. */
function useAnswers(asked: readonly string[], names: readonly string[], shown: string | undefined): Answers {
  const [answers, setAnswers] = useState<Answers>(() => new Map());
  const order = [...(shown ? [shown] : []), ...names.filter((name) => name !== shown)];
  const key = JSON.stringify([asked, order]);
  useEffect(() => {
    let alive = true;
    void (async () => {
      for (const name of order) {
        for (const text of asked) {
          let lost = false;
          const found: Answered = await answerOf(text, name).catch((error) => {
            lost = error instanceof Problem && error.status === 0;
            return { error: toErrorMessage(error).message };
          });
          if (!alive) return;
          setAnswers((before) => (before.get(keyOf(text, name)) === found ? before : new Map(before).set(keyOf(text, name), found)));
          if (lost && source.live) return; // the server has ended
        }
      }
    })();
    return () => void (alive = false);
  }, [key]);
  return answers;
}

export function Probes({ now }: { now: TrainingNow }) {
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
      <div class="probes-bar">
        <button type="button" data-role="play" disabled={snapshots.length < 2} onClick={play}>{playing ? "Stop playing" : "Play"}</button>
        <label class="slider">
          Snapshot: {title}
          <input
            type="range" data-role="snapshot" max={snapshots.length - 1} value={at} aria-valuetext={title}
            onInput={(event) => { setPlaying(false); setChosen(snapshots[Number(event.currentTarget.value)]!.name); }}
          />
        </label>
      </div>
      {asked.length > 0 && <p class="note">Bar and line: the probability of the answer, of a continuation the geometric mean over its tokens; the line at each snapshot, from 0 to 100%.</p>}
      {why && <p class="note" data-role="no-texts">{why}</p>}
      <ul class="probes">
        {asked.map((text) => <Probe key={text} text={text} snapshots={snapshots} at={at} answers={answers} />)}
      </ul>
      {source.live && asked.length < MAX_PROBES && <Add asked={asked} />}
    </>
  );
}

interface ProbeProps {
  text: string;
  snapshots: { name: string; title: string }[];
  at: number;
  answers: Answers;
}

function Probe({ text, snapshots, at, answers }: ProbeProps) {
  const [open, setOpen] = useState(false);
  const { name } = snapshots[at]!;
  const answer = answers.get(keyOf(text, name));
  const shares = snapshots.map((one) => {
    const found = answers.get(keyOf(text, one.name));
    return found && "probability" in found ? found.per_token ?? found.probability : null;
  });
  const share = shares[at] ?? null;
  const perToken = answer && "per_token" in answer && answer.per_token !== null;
  const remove = () => (probeTexts.value = probeTexts.value!.filter((one) => one !== text));
  return (
    <li class="probe" data-probe={text} data-snapshot={answer ? name : undefined} aria-busy={!answer}>
      <p class="probe-text" dir="auto">{text}{source.live && <button type="button" class="quiet" aria-label={`Remove ${text}`} onClick={remove}>Remove</button>}</p>
      {!answer && <p class="note">Asking …</p>}
      {answer && "error" in answer && <p class="note note-bad">{answer.error}</p>}
      {answer && "headline" in answer && (
        <>
          <p class="probe-answer" dir="auto" data-role="probe-answer">{answer.headline} <span class="note">{answer.detail}</span></p>
          {share !== null && (
            <p class="probe-share">
              <span class="bar-track"><span class="bar-fill" style={{ width: `${100 * share}%` }} /></span>
              <span class="bar-number">{percent(share)}{perToken && <small> a token</small>}</span>
              <Spark shares={shares} at={at} />
            </p>
          )}
          {answer.map
            ? (
              <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
                <summary class="small">Attention, last layer, mean of its heads</summary>
                {open && <HeadsMap answer={answer} />}
              </details>
            )
            : <p class="note">The text is too long for an attention map here; the screen Attention has it.</p>}
        </>
      )}
    </li>
  );
}

function HeadsMap({ answer }: { answer: ProbeAnswer }) {
  const { step, rows, columns, weights } = answer.map!;
  const value = useMemo(() => toTensor("f32", [rows.length, columns.length], Float32Array.from(weights.flat()).buffer), [answer]);
  return (
    <Matrix
      node={step} value={value} rowLabels={rows} colLabels={columns} rowName="token" colName="key" numbers="toggle" scale="sequential" limit={1}
      label="Attention weights, mean of the heads"
    />
  );
}

/** The probability at each snapshot, on a scale from 0 to 1. */
function Spark({ shares, at }: { shares: (number | null)[]; at: number }) {
  const x = (i: number) => 4 + (i / Math.max(1, shares.length - 1)) * 112;
  const y = (share: number) => 24 - 20 * share;
  const points = shares.flatMap((share, i) => (share === null ? [] : [`${x(i).toFixed(1)} ${y(share).toFixed(1)}`]));
  const now = shares[at];
  return (
    <svg class="spark" viewBox="0 0 120 28" role="img" aria-label={`Probability at ${points.length} of ${shares.length} snapshots`}>
      <path d="M4 24H116" class="axis" />
      {points.length > 0 && <path d={`M${points.join("L")}`} />}
      {now != null && <circle cx={x(at)} cy={y(now)} r={4} />}
    </svg>
  );
}

function Add({ asked }: { asked: readonly string[] }) {
  const [text, setText] = useState("");
  const add = (event: Event) => {
    event.preventDefault();
    const typed = text.trim();
    if (typed && !asked.includes(typed)) probeTexts.value = [...asked, typed];
    setText("");
  };
  return (
    <form class="probe-add" onSubmit={add}>
      <label>Another text, up to {MAX_PROBES} in all <input type="text" data-role="probe-text" maxLength={1000} dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      <button type="submit" data-role="add-probe" disabled={!text.trim()}>Add</button>
    </form>
  );
}
