/**
 * A row of tokens. Pointing at one highlights it in all views (`hoveredToken`). `weights` colours them, `marks` adds a
 * small text below each.
 */
import { useEffect, useRef } from "preact/hooks";
import { hoveredToken } from "../state/page";
import { useValue } from "../state/signals";
import { palette } from "../state/theme";
import { css, shade } from "../tensors/colour";
import { visible } from "../tensors/format";
import { isMasked, outputStream, predictedPosition } from "../trace/generation";
import type { Manifest, Stream } from "../types";
import { Fold } from "./Fold";

export interface TokensProps {
  stream: Stream;
  chosen?: number | null;
  onChoose?: (index: number) => void;
  /** A tint per token, on a signed or sequential scale of `limit` (largest magnitude, if absent). */
  weights?: ArrayLike<number>;
  scale?: "signed" | "sequential";
  limit?: number;
  marks?: (string | null)[];
  label?: string;
  /** Folds a long text, but for its ends and what is around these tokens. */
  near?: readonly number[];
}

export function Tokens(props: TokensProps) {
  const { stream, chosen = null, onChoose, weights, scale = "signed", marks, label, near } = props;
  const limit = props.limit ?? Math.max(0, ...Array.from(weights ?? [], Math.abs));
  const hovered = useValue(hoveredToken, (at) => (at?.stream === stream.name ? at.index : null));
  const colours = useValue(palette);
  const chip = (index: number) => {
    const lit = hovered === index;
    const names = ["token"];
    if (stream.special[index]) names.push("token-special");
    if (stream.unknown[index]) names.push("token-unknown");
    if (stream.padding[index]) names.push("token-padding");
    if (index < stream.n_given) names.push("token-given");
    if (lit) names.push("token-lit");
    const weight = weights?.[index];
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
        {marks?.[index] && <small>{marks[index]}</small>}
      </>
    );
    return (
      <li key={index}>
        {onChoose ? (
          <button
            type="button" {...attributes} aria-pressed={chosen === index || !!near?.includes(index)} onClick={() => onChoose(index)}
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
      {near ? <Fold name={stream.name} count={stream.pieces.length} near={near} item={chip} /> : stream.pieces.map((_, index) => chip(index))}
    </ol>
  );
}

interface OutputTokensProps {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  label: string;
  onStep: (index: number) => void;
}

/** The generated tokens, coloured by probability, to select a step. */
export function OutputTokens({ manifest, index, label, onStep }: OutputTokensProps) {
  const { predictions } = manifest;
  const stream = outputStream(manifest);
  // A generated end token is not an input of the model, so the stream lacks it.
  const end = predictions.at(-1)?.actual;
  const pieces = end && !isMasked(manifest) ? [...stream.pieces, end.piece] : stream.pieces;
  const box = useRef<HTMLDivElement>(null);
  const position = predictions[index]?.position ?? 0;
  useEffect(() => {
    const chip = box.current?.querySelector<HTMLElement>("[aria-pressed=true]");
    if (chip && box.current) box.current.scrollTop = chip.offsetTop - box.current.offsetTop - 60;
  }, [position, manifest.id]);
  const probabilities = new Array<number>(pieces.length).fill(0);
  for (const { actual, position: at } of predictions) if (actual) probabilities[predictedPosition(manifest, at)] = Math.exp(actual.log_prob);
  return (
    <div class="written" ref={box}>
      <Tokens
        stream={{ ...stream, pieces }} chosen={predictedPosition(manifest, position)} label={label} scale="sequential" limit={3}
        weights={probabilities}
        onChoose={(token) => onStep(Math.max(0, predictions.findIndex((one) => predictedPosition(manifest, one.position) === token)))}
      />
    </div>
  );
}
