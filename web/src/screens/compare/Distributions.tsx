/** The likeliest answers of two traces side by side, with how far each moved. */
import { setParams } from "../../state/page";
import { percent, visible } from "../../tensors/format";
import { decides, stepIndex } from "../../trace/writing";
import type { Manifest, Prediction } from "../../types";
import { Bars } from "../../views/Bars";
import { beside, floor, pairRows } from "./pair";

const MOST = 8;

export function Distributions({ a, b, position }: { a: Manifest; b: Manifest; position: string | undefined }) {
  const classes = decides(a);
  const { from, to, at, other } = beside(a, b, stepIndex(a, position));
  const [pa, pb] = [a.predictions[at], b.predictions[other]];
  const rows = pairRows(pa, pb, MOST);
  const side = (of: Prediction | undefined, name: "a" | "b") => rows.map((row) => {
    const value = row[name];
    return {
      key: row.id, label: row.piece, value: value ?? 0, strong: of?.top[0]?.id === row.id,
      text: value !== null ? percent(value) : `≤ ${percent(floor(of)).replace("<", "")}`,
      note: name === "b" ? points((row.b ?? floor(pb)) - (row.a ?? floor(pa))) : undefined,
    };
  });
  return (
    <section>
      <h2>{classes ? "Probabilities" : "What each says comes next"}</h2>
      {!classes && to > from && (
        <label class="slider">
          {at === other ? `Position ${at + 1}` : `Position ${at + 1} of A, ${other + 1} of B`}
          <input type="range" min={from} max={to} value={at} onInput={(event) => setParams({ position: a.predictions[Number(event.currentTarget.value)]!.position })} />
        </label>
      )}
      <div class="compare-sides">
        <div>
          <h3>A{!classes && <> after <bdi class="quoted">{after(a, pa)}</bdi></>}</h3>
          <Bars label="A" bars={side(pa, "a")} />
        </div>
        <div>
          <h3>B{!classes && <> after <bdi class="quoted">{after(b, pb)}</bdi></>}<span class="note">, and B − A</span></h3>
          <Bars label="B" bars={side(pb, "b")} />
        </div>
      </div>
    </section>
  );
}

/** The last few tokens up to the position that is predicted from. */
function after(manifest: Manifest, prediction: Prediction | undefined): string {
  const at = prediction?.position ?? 0;
  return visible(manifest.streams.at(-1)!.pieces.slice(Math.max(0, at - 3), at + 1).join(""));
}

/** In percentage points: of an answer that is not listed the most it can have stands for it. */
const points = (change: number) =>
  Math.abs(change) < 0.0005 ? "0" : `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)} pts`;
