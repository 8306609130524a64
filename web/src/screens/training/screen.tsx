/** The Training screen: a run while it trains, from its log and its snapshots, and afterwards as a replay. */
import { useEffect } from "preact/hooks";
import { source } from "../../state/page";
import { useValue } from "../../state/signals";
import { capital } from "../../tensors/format";
import { Controls, StateLine } from "./Controls";
import { Curves } from "./Curves";
import { Probes } from "./Probes";
import { failure, follow, now as received } from "./store";

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
