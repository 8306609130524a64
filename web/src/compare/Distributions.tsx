/** The likeliest answers of two traces side by side, with how far each moved. */

import { percent, visible } from "../format";
import { setParams } from "../state";
import type { Manifest, Prediction } from "../types";
import { floor, pairRows, type PairRow } from "./pair";

const MOST = 8;

export function Distributions({ a, b, position }: { a: Manifest; b: Manifest; position: number | null }) {
  const classes = a.model.task === "classify";
  const shared = Math.min(a.predictions.length, b.predictions.length);
  const at = classes ? 0 : Math.min(position ?? firstPosition(a, shared), shared - 1);
  const [pa, pb] = [a.predictions[at], b.predictions[at]];
  return (
    <section>
      <h2>{classes ? "Probabilities" : "What each says comes next"}</h2>
      {!classes && shared > 1 && (
        <div class="compare-position">
          <label>
            Position {at + 1} of {shared}
            <input type="range" min={0} max={shared - 1} value={at} onInput={(event) => setParams({ position: event.currentTarget.value })} />
          </label>
          <p class="note">After A <bdi class="quoted">{after(a, pa)}</bdi>, after B <bdi class="quoted">{after(b, pb)}</bdi></p>
        </div>
      )}
      <div class="compare-scroll">
        <table class="compare-table">
          <thead><tr><th scope="col">{classes ? "Class" : "Token"}</th><th scope="col" colSpan={2}>A</th><th scope="col" colSpan={2}>B</th><th scope="col">B − A</th></tr></thead>
          <tbody>
            {pairRows(pa, pb, MOST).map((row) => <Row key={row.id} row={row} a={pa} b={pb} />)}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** Where the model begins to write. */
function firstPosition(a: Manifest, shared: number): number {
  const given = Math.max(0, (a.streams[a.streams.length - 1]?.n_given ?? 1) - 1);
  return Math.min(given, shared - 1);
}

/** The last few tokens up to the position that is predicted from. */
function after(manifest: Manifest, prediction: Prediction | undefined): string {
  const stream = manifest.streams[manifest.streams.length - 1];
  const at = prediction?.position ?? 0;
  const pieces = stream?.pieces.slice(Math.max(0, at - 5), at + 1) ?? [];
  return visible(pieces.join(" ").length > 60 ? pieces.slice(-3).join("") : pieces.join(""));
}

function Row({ row, a, b }: { row: PairRow; a: Prediction | undefined; b: Prediction | undefined }) {
  // Less than can be seen counts as nothing; otherwise a missing side leaves the change unknown.
  const [pa, pb] = [row.a ?? unlisted(a), row.b ?? unlisted(b)];
  const change = pa === null || pb === null ? null : 100 * (pb - pa);
  const points = change === null ? "" : `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)} pts`;
  return (
    <tr>
      <th scope="row"><bdi>{visible(row.piece)}</bdi></th>
      <Side value={row.a} least={floor(a)} best={a?.top[0]?.id === row.id} />
      <Side value={row.b} least={floor(b)} best={b?.top[0]?.id === row.id} />
      <td class="compare-change" data-value={change ?? ""}>{change !== null && Math.abs(change) < 0.05 ? "0" : points}</td>
    </tr>
  );
}

function unlisted(prediction: Prediction | undefined): number | null {
  return floor(prediction) < 0.0005 ? 0 : null;
}

function Side({ value, least, best }: { value: number | null; least: number; best: boolean }) {
  return (
    <>
      <td class={best ? "compare-number compare-best" : "compare-number"} data-value={value ?? ""}>{value !== null ? percent(value) : least < 0.0005 ? "<0.1%" : `≤ ${percent(least)}`}</td>
      <td class="compare-bar" aria-hidden="true"><span style={{ width: `${100 * (value ?? 0)}%` }} /></td>
    </>
  );
}
