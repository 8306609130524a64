/** The curves of a training against steps or seconds, and the values at the position that is read. */
import { useState } from "preact/hooks";
import { route, setParams } from "../../state/page";
import { useScreenKeys } from "../../state/keys";
import { useValue } from "../../state/signals";
import { count, number, percent } from "../../tensors/format";
import type { TrainingNow, UpdatePoint } from "../../types";
import { Choices } from "../../views/Choices";
import { duration, nearestIndex, pointsOf } from "../../tensors/scale";
import { Chart, type Line } from "../../views/Chart";
import { cursor, history } from "./store";

type By = "step" | "seconds";
const BY: [By, string][] = [["step", "Steps"], ["seconds", "Seconds"]];

export function Curves({ now }: { now: TrainingNow }) {
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
  const scores = (name: string) => pointsOf(validAt, validations.map((one) => one.scores[name]));
  const validLoss = scores("loss");
  const shared = { xs, by, cursor };
  const losses = [...curve.loss, ...validations.map((one) => one.scores.loss ?? null)].filter((one): one is number => one !== null && one > 0);
  const wide = losses.length > 0 && Math.max(...losses) > 20 * Math.min(...losses);
  const lines = (points: Line["points"], name: string): Line[] => [{ name, points }];
  return (
    <section>
      <div class="attention-bar"><Choices name="by" label="Horizontal axis" options={BY} chosen={by} onChoose={(next) => setParams({ by: next })} /></div>
      <output class="chart-read" data-role="reading">{xs.length ? reading(index) : "Nothing is logged yet."}</output>
      <div class="charts">
        <Chart
          name="loss" title={validLoss.length ? "Loss, and of validation (dots)" : "Loss"} log={wide} {...shared}
          lines={[...lines(pointsOf(xs, curve.loss, wide), "loss"), { name: "validation loss", points: pointsOf(validAt, validations.map((one) => one.scores.loss), wide), dots: true, kind: "second" }]}
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
      valid ? `validation ${Object.entries(valid.scores).map(([name, score]) => `${words(name)} ${number(score)}`).join(", ")} at step ${count(valid.step)}` : "",
    ].filter(Boolean).join(" · ");
  }
}

/** ‖Δw‖ / ‖w‖ of each matrix: all of them faint, and one that is chosen. */
function Updates({ updates, at, xs, by }: { updates: readonly UpdatePoint[]; at: (number | null)[]; xs: number[]; by: By }) {
  const [chosen, setChosen] = useState("");
  const names = [...new Set(updates.flatMap(({ ratios }) => Object.keys(ratios)))];
  const one = names.includes(chosen) ? chosen : names[0] ?? "";
  const lines = names.map((name): Line => ({ name, points: pointsOf(at, updates.map(({ ratios }) => ratios[name]), true), kind: name === one ? "main" : "faint" }));
  lines.sort((a, b) => Number(a.kind === "main") - Number(b.kind === "main")); // the chosen one on top
  return (
    <div>
      <Chart name="updates" title="Update ÷ weight, ‖Δw‖ / ‖w‖, of each matrix" log lines={lines} xs={xs} by={by} cursor={cursor} />
      {names.length > 0 && (
        <label class="small">
          Matrix <select data-role="matrix" value={one} onChange={(event) => setChosen(event.currentTarget.value)}>
            {names.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
      )}
      {names.length > 0 && <p class="note">Most sound trainings have 0.0003 to 0.02 where the learning rate is high; much more is unstable, much less learns slowly. {clippedText(updates)}</p>}
    </div>
  );
}

/** The share is of the steps since the update before. */
function clippedText(updates: readonly UpdatePoint[]): string {
  const last = updates.at(-1);
  if (last?.clipped == null) return "";
  const n = last.step - (updates.at(-2)?.step ?? 0);
  return n > 1 ? `Of the ${count(n)} steps up to step ${count(last.step)}, the gradients of ${percent(last.clipped)} were clipped.` : "";
}
const words = (name: string) => name.replaceAll("_", " ");
