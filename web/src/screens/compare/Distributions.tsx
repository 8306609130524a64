/** The most probable predictions of two traces, and the change from A to B. */
import { setParams } from "../../state/page";
import { percent, visible } from "../../tensors/format";
import { isClassifier, isMasked, predictionIndex } from "../../trace/generation";
import type { Manifest, Prediction } from "../../types";
import { Bars } from "../../views/Bars";
import { alignedPositions, smallestProbability, pairRows } from "./pair";

const MAX_ROWS = 8;

export function Distributions({ a, b, position }: { a: Manifest; b: Manifest; position: string | undefined }) {
  const classes = isClassifier(a);
  const { from, to, at, other } = alignedPositions(a, b, predictionIndex(a, position));
  const [pa, pb] = [a.predictions[at], b.predictions[other]];
  const rows = pairRows(pa, pb, MAX_ROWS);
  const side = (of: Prediction | undefined, name: "a" | "b") => rows.map((row) => {
    const value = row[name];
    return {
      key: row.id, label: row.piece, value: value ?? 0, strong: of?.top[0]?.id === row.id,
      text: value !== null ? percent(value) : `≤ ${percent(smallestProbability(of)).replace("<", "")}`,
      note: name === "b" ? points((row.b ?? smallestProbability(pb)) - (row.a ?? smallestProbability(pa))) : undefined,
    };
  });
  return (
    <section>
      <h2>{classes ? "Probabilities" : isMasked(a) ? "Token probabilities" : "Next-token probabilities"}</h2>
      {!classes && to > from && (
        <label class="slider">
          {at === other ? `Position ${at}` : `Position ${at} of A, ${other} of B`}
          <input type="range" min={from} max={to} value={at} aria-valuetext={`${at}`} onInput={(event) => setParams({ position: a.predictions[Number(event.currentTarget.value)]!.position })} />
        </label>
      )}
      <div class="compare-sides">
        <div>
          <h3>A{!classes && <> {isMasked(a) ? "at" : "after"}  <bdi class="quoted">{after(a, pa)}</bdi></>}</h3>
          <Bars label="A" bars={side(pa, "a")} />
        </div>
        <div>
          <h3>B{!classes && <> {isMasked(b) ? "at" : "after"} <bdi class="quoted">{after(b, pb)}</bdi></>}<span class="note">, and B − A</span></h3>
          <Bars label="B" bars={side(pb, "b")} />
        </div>
      </div>
    </section>
  );
}

/** The last few tokens up to the position of the prediction. */
function after(manifest: Manifest, prediction: Prediction | undefined): string {
  const at = prediction?.position ?? 0;
  return visible(manifest.streams.at(-1)!.pieces.slice(Math.max(0, at - 3), at + 1).join(""));
}

/** A difference in percentage points; for an unlisted token from its upper bound. */
const points = (change: number) =>
  Math.abs(change) < 0.0005 ? "0" : `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)} pp`;
