/**
 * Tokens in reading order, coloured by what each adds to a logit: hue and underline for the sign, intensity for the
 * size, and the same numbers as a table.
 */
import { useState } from "preact/hooks";
import type { Stream } from "../types";
import type { Contributions } from "./pooling";
import { label, signed } from "./numbers";

export function TokenShares({ stream, parts }: { stream: Stream; parts: Contributions }) {
  const [at, setAt] = useState<number | null>(null);
  const scale = Math.max(1e-12, ...parts.tokens.map(Math.abs));
  const order = parts.tokens.map((_, t) => t).filter((t) => !stream.padding[t]).sort((a, b) => Math.abs(parts.tokens[b]!) - Math.abs(parts.tokens[a]!));
  return (
    <>
      <p class="word-text shares" data-stream={stream.name}>
        {stream.pieces.map((piece, t) => {
          const value = parts.tokens[t]!;
          const share = value / scale;
          return (
            <span key={t}>
              <span
                class="word share" data-token={t} data-sign={Math.abs(share) < 0.02 ? "none" : share > 0 ? "for" : "against"}
                data-special={stream.special[t]} data-current={at === t} title={`${label(piece)} ${signed(value, 4)}`}
                style={{ "--strength": `${Math.round(100 * Math.abs(share) ** 0.75)}%` }}
                onMouseEnter={() => setAt(t)} onMouseLeave={() => setAt(null)}
              >
                {label(piece)}
                {at === t && <span class="word-score">{signed(value, 3)}</span>}
              </span>{" "}
            </span>
          );
        })}
      </p>
      <details class="as-table">
        <summary>The numbers, largest first</summary>
        <div class="scroll-x scroll-y">
          <table>
            <thead><tr><th scope="col">Position</th><th scope="col">Token</th><th scope="col">Adds</th></tr></thead>
            <tbody>
              {order.map((t) => (
                <tr key={t}><td>{t + 1}</td><th scope="row">{label(stream.pieces[t]!)}</th><td>{signed(parts.tokens[t]!, 4)}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}
