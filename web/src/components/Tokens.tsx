/**
 * A row of tokens as quiet chips. Pointing at one lights it up everywhere (`hoveredToken`); choosing is the
 * caller's affair. `weights` tints them, `marks` adds a small text under each.
 */
import { visible } from "../format";
import { useLocal } from "../signals";
import { hoveredToken } from "../state";
import { css, palette, shade } from "../theme";
import type { Stream } from "../types";

export interface TokensProps {
  stream: Stream;
  /** Only these positions [start, end). */
  window?: [number, number] | null;
  chosen?: number | null;
  onChoose?: (index: number) => void;
  /** A tint per token, on a signed or sequential scale of `limit` (largest magnitude, if absent). */
  weights?: ArrayLike<number>;
  scale?: "signed" | "sequential";
  limit?: number;
  marks?: (string | null)[];
  label?: string;
}

export function Tokens(props: TokensProps) {
  const { stream, chosen = null, onChoose, weights, scale = "signed", marks, label } = props;
  const [start, end] = props.window ?? [0, stream.pieces.length];
  const limit = props.limit ?? Math.max(0, ...Array.from(weights ?? [], Math.abs));
  const hovered = useLocal(hoveredToken, (at) => (at?.stream === stream.name ? at.index : null));
  const colours = palette.value;
  const chip = (index: number) => {
    const lit = hovered === index;
    const names = ["token"];
    if (stream.special[index]) names.push("token-special");
    if (stream.unknown[index]) names.push("token-unknown");
    if (stream.padding[index]) names.push("token-padding");
    if (index < stream.n_given) names.push("token-given");
    if (lit) names.push("token-lit");
    const weight = weights?.[index - start];
    const attributes = {
      class: names.join(" "),
      "data-token": index,
      style: weight === undefined ? undefined : { backgroundColor: css(shade(weight, limit, scale, colours)) },
      onMouseEnter: () => (hoveredToken.value = { stream: stream.name, index }),
      onMouseLeave: () => (hoveredToken.value = null),
    };
    const content = (
      <>
        <bdi>{visible(stream.pieces[index])}</bdi>
        {marks?.[index - start] && <small>{marks[index - start]}</small>}
      </>
    );
    return (
      <li key={index}>
        {onChoose ? (
          <button
            type="button" {...attributes} aria-pressed={chosen === index} onClick={() => onChoose(index)}
            onFocus={attributes.onMouseEnter} onBlur={attributes.onMouseLeave}
          >
            {content}
          </button>
        ) : (
          <span {...attributes}>{content}</span>
        )}
      </li>
    );
  };
  return (
    <ol class="tokens" data-stream={stream.name} aria-label={label ?? `Tokens of the ${stream.name}`}>
      {Array.from({ length: end - start }, (_, i) => chip(start + i))}
    </ol>
  );
}
