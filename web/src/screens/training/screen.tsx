/** The Training screen: a run while it trains, from its log and its snapshots, and afterwards as a replay. */
import { useEffect, useRef, useState } from "preact/hooks";
import { source } from "../../state/page";
import { useValue } from "../../state/signals";
import { capital, count, number } from "../../tensors/format";
import { duration } from "../../tensors/scale";
import type { ControlRequest, TrainingNow } from "../../types";
import { Curves } from "./Curves";
import { Probes } from "./Probes";
import { control, failure, follow, history, now as received } from "./store";

export function TrainingScreen() {
  useEffect(follow, []);
  const now = useValue(received);
  const lost = useValue(failure);
  if (!now) return <p class="waiting">{lost ? [lost.message, lost.hint].filter(Boolean).join(": ") : "Reading the log …"}</p>;
  return (
    <div class="training" data-role="training">
      <h1 class="visually-hidden">Training</h1>
      <StateLine now={now} live={source.live} />
      <Controls now={now} />
      <Curves now={now} />
      {now.findings.length > 0 && (
        <section data-role="findings">
          <h2>What the doctor says of the log</h2>
          <ul>{now.findings.map(({ matter, remedy, grade }) => <li key={matter} data-grade={grade}><b class="training-grade">{grade.toUpperCase()}</b> {capital(matter)}.{remedy && <span class="note"> {capital(remedy)}.</span>}</li>)}</ul>
        </section>
      )}
      <section>
        <h2>The model at each snapshot</h2>
        <Probes now={now} />
      </section>
      {source.save && <p class="note">“Share” saves the curves and these answers as one file.</p>}
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

export function StateLine({ now, live }: { now: TrainingNow; live: boolean }) {
  const lost = useValue(failure);
  return (
    <>
      <p class="training-state">
        <b data-role="training-state" data-state={now.state}>{capital(STATES[now.state])}</b> <span data-role="training-step" data-step={now.step}>{position(now)}</span>
      </p>
      {now.state === "stopped" && <p class="note">Go on with it in a terminal: <code>glassformer train --resume {now.run}</code></p>}
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

export function Controls({ now }: { now: TrainingNow }) {
  const [sure, setSure] = useState(false);
  if (!now.control) return now.refused ? <p class="note" data-role="no-control">{now.refused}</p> : null;
  const paused = now.state === "paused";
  const button = (action: ControlRequest["action"], words: string, disabled = false) => (
    <button type="button" data-control={action} disabled={disabled} onClick={() => void control(action)}>{words}</button>
  );
  return (
    <div class="training-controls" role="group" aria-label="Control of the training">
      {button("pause", "Pause", paused)}
      {button("step", "Step", !paused)}
      {button("go_on", "Go on", !paused)}
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
