/** Horizontal bars with a label and a number. A bar can be a button. */
import type { ComponentChildren, ComponentProps } from "preact";
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

const width = (share: number, signs: boolean) => ({ width: `${Math.min(1, Math.abs(share)) * (signs ? 50 : 100)}%` });

/** With `signs` the bars grow to either side of the middle. */
export function Bars({ bars, limit = 1, label, signs = false, onChoose }: { bars: Bar[]; limit?: number; label: string; signs?: boolean; onChoose?: (key: string | number) => void }) {
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
              <Track share={bar.value / limit} signs={signs}>{bar.before !== undefined && <span class="bar-before" style={width(bar.before / limit, signs)} />}</Track>
              <span class="bar-number">{bar.text ?? percent(bar.value)}</span>
              {bar.note !== undefined && <span class="bar-note">{bar.note}</span>}
            </Row>
          </li>
        );
      })}
    </ol>
  );
}

/** A bar of a share of the largest; with `signs` to either side of the middle. */
export const Track = ({ share, signs = false, children }: { share: number; signs?: boolean; children?: ComponentChildren }) => (
  <span class={signs ? "bar-track term-signed" : "bar-track"} aria-hidden="true"><span class={share < 0 ? "bar-fill minus" : "bar-fill plus"} style={width(share, signs)} />{children}</span>
);
