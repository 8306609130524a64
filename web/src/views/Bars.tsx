/** Horizontal bars with a label and a number. A bar can be a button. */
import type { ComponentProps } from "preact";
import { percent, visible } from "../tensors/format";

export interface Bar {
  key: string | number;
  label: string;
  /** From 0 to 1, or up to `limit` to either side of zero. */
  value: number;
  /** The number as text, by default a percentage. */
  text?: string;
  /** A second number, or a remark. */
  note?: string;
  /** A thin second bar under the first (before a filter, another model). */
  before?: number;
  faded?: boolean;
  struck?: boolean;
  strong?: boolean;
  /** Attributes of the row, which is a button if it has onClick. */
  attributes?: ComponentProps<"button"> & Record<`data-${string}`, string | number>;
}

interface BarsProps {
  bars: Bar[];
  limit?: number;
  label: string;
  /** Bars grow to either side of the middle. */
  signs?: boolean;
  onChoose?: (key: string | number) => void;
}

export function Bars({ bars, limit = 1, label, signs, onChoose }: BarsProps) {
  const width = (value: number) => ({ width: `${Math.max(0, Math.min(1, Math.abs(value) / limit)) * (signs ? 50 : 100)}%` });
  return (
    <ol class={signs ? "bars bars-signed" : "bars"} aria-label={label}>
      {bars.map((bar) => {
        const attributes = onChoose ? { onClick: () => onChoose(bar.key) } : bar.attributes;
        const Row = attributes?.onClick ? "button" : "div";
        const kinds = (["faded", "struck", "strong"] as const).filter((kind) => bar[kind]);
        return (
          <li key={bar.key} data-key={bar.key} data-value={bar.value}>
            <Row type={Row === "button" ? Row : undefined} {...(attributes as object)} class={["bar", ...kinds.map((kind) => `bar-${kind}`)].join(" ")}>
              <bdi class="bar-label">{visible(bar.label)}</bdi>
              <span class={signs ? "bar-track term-signed" : "bar-track"} aria-hidden="true">
                <span class={bar.value < 0 ? "bar-fill minus" : "bar-fill plus"} style={width(bar.value)} />
                {bar.before !== undefined && <span class="bar-before" style={width(bar.before)} />}
              </span>
              <span class="bar-number">{bar.text ?? percent(bar.value)}</span>
              {bar.note !== undefined && <span class="bar-note">{bar.note}</span>}
            </Row>
          </li>
        );
      })}
    </ol>
  );
}

/** A bar in a table, of a share of the largest; with `signs` to either side of the middle. */
export const Track = ({ share, signs }: { share: number; signs: boolean }) => (
  <span class={signs ? "bar-track term-signed" : "bar-track"} aria-hidden="true">
    <span class={share < 0 ? "bar-fill minus" : "bar-fill plus"} style={{ width: `${Math.min(1, Math.abs(share)) * (signs ? 50 : 100)}%` }} />
  </span>
);
