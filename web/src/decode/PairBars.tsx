/**
 * Bars of the most probable next tokens: the model's own probability, and what is left to draw from after the
 * temperature and the filters. Each is a button that writes that token instead.
 */
import type { Bar, Filtered, Range } from "./filters";
import { label, percent, percentRange } from "./numbers";
import { Piece } from "./Piece";

interface Props {
  filtered: Filtered;
  pieces: ReadonlyMap<number, string>;
  /** The token that in fact follows. */
  actual: number | null;
  /** Whether before and after differ at all. */
  neutral: boolean;
  /** Why no token can be forced here, or null. */
  locked: string | null;
  /** The end cannot be forced: the search itself ends every hypothesis. */
  eos: number;
  onForce: (id: number) => void;
}

export function PairBars({ filtered, pieces, actual, neutral, locked, eos, onForce }: Props) {
  const { bars, rest } = filtered;
  const most = Math.max(rest.before, rest.after[1], ...bars.map((bar) => Math.max(bar.before, bar.after[1])), 1e-9);
  const width = (p: number): string => `${(100 * p) / most}%`;
  return (
    <ol class="pair-bars" data-neutral={neutral}>
      {bars.map((bar) => {
        const piece = label(pieces.get(bar.id) ?? `#${bar.id}`);
        const forced = locked === null && bar.dropped !== "never written" && bar.id !== actual && bar.id !== eos;
        return (
          <li key={bar.id} class="pair-bar" data-kept={bar.kept === null ? "unknown" : bar.kept} data-actual={bar.id === actual}>
            <button
              type="button" class="pair-pick" data-role="force" data-candidate={bar.id} disabled={!forced}
              title={locked ?? (bar.id === actual ? "this token was written" : `write “${piece}” here instead and go on`)}
              aria-label={described(bar, piece, bar.id === actual, neutral)} onClick={() => onForce(bar.id)}
            >
              <span class="pair-piece"><Piece piece={pieces.get(bar.id) ?? `#${bar.id}`} /></span>
              <span class="pair-track">
                <span class="pair-before" style={{ width: width(bar.before) }} />
                {!neutral && <After range={bar.after} width={width} />}
              </span>
              <span class="pair-number">{percent(bar.before)}</span>
              {!neutral && (
                <span class="pair-number pair-number-after">{bar.dropped ? bar.dropped : percentRange(bar.after)}</span>
              )}
            </button>
          </li>
        );
      })}
      {rest.n > 0 && (
        <li class="pair-bar pair-rest">
          <span class="pair-pick">
            <span class="pair-piece">{rest.n.toLocaleString("en")} others</span>
            <span class="pair-track">
              <span class="pair-before" style={{ width: width(rest.before) }} />
              {!neutral && <After range={rest.after} width={width} />}
            </span>
            <span class="pair-number">{percent(rest.before)}</span>
            {!neutral && <span class="pair-number pair-number-after">{percentRange(rest.after)}</span>}
          </span>
        </li>
      )}
    </ol>
  );
}

/** Full up to the lower bound, pale from there to the upper one. */
export function After({ range: [low, high], width }: { range: Range; width: (p: number) => string }) {
  const sure = high > 0 ? `${(100 * low) / high}%` : "100%";
  return (
    <span class="pair-after" data-none={high === 0} style={{ width: width(high) }}>
      <span style={{ width: sure }} />
    </span>
  );
}

function described(bar: Bar, piece: string, actual: boolean, neutral: boolean): string {
  const after = neutral ? "" : bar.dropped ? `, dropped: ${bar.dropped}` : `, ${percentRange(bar.after)} after`;
  return `${piece}, ${percent(bar.before)}${after}${actual ? ", written" : ""}`;
}
