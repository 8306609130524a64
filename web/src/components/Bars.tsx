/** Horizontal bars with a label and a number, for probabilities and the like; a bar can be a button. */
import { percent, visible } from "../format";

export interface Bar {
  key: string | number;
  label: string;
  /** From 0 to 1, or up to `limit`. */
  value: number;
  /** As written beside the bar; a percentage when absent. */
  text?: string;
  /** A thin second bar under the first (before a filter, another model). */
  before?: number;
  faded?: boolean;
  strong?: boolean;
}

export interface BarsProps {
  bars: Bar[];
  limit?: number;
  label: string;
  onChoose?: (key: string | number) => void;
}

export function Bars({ bars, limit = 1, label, onChoose }: BarsProps) {
  const width = (value: number) => ({ width: `${Math.max(0, Math.min(1, value / limit)) * 100}%` });
  return (
    <ol class="bars" aria-label={label}>
      {bars.map((bar) => {
        const inside = (
          <>
            <bdi class="bar-label">{visible(bar.label)}</bdi>
            <span class="bar-track" aria-hidden="true">
              <span class="bar-fill" style={width(bar.value)} />
              {bar.before !== undefined && <span class="bar-before" style={width(bar.before)} />}
            </span>
            <span class="bar-number">{bar.text ?? percent(bar.value)}</span>
          </>
        );
        const names = `bar${bar.faded ? " bar-faded" : ""}${bar.strong ? " bar-strong" : ""}`;
        return (
          <li key={bar.key} data-key={bar.key} data-value={bar.value}>
            {onChoose
              ? <button type="button" class={names} onClick={() => onChoose(bar.key)}>{inside}</button>
              : <div class={names}>{inside}</div>}
          </li>
        );
      })}
    </ol>
  );
}
