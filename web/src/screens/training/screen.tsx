/** The Training screen: a run while it trains, from its log and its snapshots, and afterwards as a replay. */
import { useEffect, useState } from "preact/hooks";
import { base, runFacts, source } from "../../state/page";
import { toErrorMessage, useValue } from "../../state/signals";
import sheet from "../../styles/training.css";
import { adopt } from "../../views/Terms";
import { Controls, StateLine } from "./Controls";
import { Curves } from "./Curves";
import { Probes } from "./Probes";
import { failure, follow, now as told, texts } from "./store";

export function TrainingScreen() {
  adopt(sheet);
  useEffect(follow, []);
  const now = useValue(told);
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
          <ul>{now.findings.map(({ matter, remedy }) => <li key={matter}>{matter}{remedy && <span class="note"> – {remedy}</span>}</li>)}</ul>
        </section>
      )}
      <section>
        <h2>The model at each snapshot</h2>
        <Probes now={now} />
      </section>
      {source.save && <SaveReplay />}
    </div>
  );
}

/** Offers the curves and the answers as one file. */
function SaveReplay() {
  const trace = useValue(base);
  const [said, setSaid] = useState("");
  if (!trace) return null;
  const save = async () => {
    setSaid("Asking each snapshot, for up to 10 seconds …");
    try {
      const { page, dropped } = await source.save!({ request: trace.request, other: null, view: "#/training", training: texts.value ?? [] });
      const url = URL.createObjectURL(new Blob([page], { type: "text/html" }));
      const name = `${runFacts.value!.model.run.replace(/[^\p{L}\p{N}_-]+/gu, "-") || "run"}-replay.html`;
      Object.assign(document.createElement("a"), { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      setSaid([`${name} was given to the browser's downloads.`, ...dropped].join(" "));
    } catch (error) {
      setSaid(toErrorMessage(error).message);
    }
  };
  return (
    <p>
      <button type="button" class="quiet" data-role="save-replay" onClick={() => void save()}>Save a replay</button>
      <span class="note" role="status">{said}</span>
    </p>
  );
}
