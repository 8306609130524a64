/** Selection of one of several options, of a head, or of a position. */
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { hoveredToken, route, setParams } from "../state/page";
import { palette } from "../state/settings";
import { useValue } from "../state/signals";
import { visible } from "../tensors/format";
import { css, shade } from "../tensors/heat";
import { isMasked, outputStream, predictedPosition } from "../trace/generation";
import type { Manifest, Stream } from "../types";

/** Lists up to LONG are whole. Of longer ones are shown ENDS at each end, and BESIDE on each side of a selected token. */
export const [LONG, ENDS, BESIDE] = [64, 16, 4];

/** The ranges of a list, each without its end, and whether it is folded. */
function partsOf(count: number, near: readonly number[]): [from: number, to: number, folds: boolean][] {
  const shown = (i: number) => count <= LONG || i < ENDS || i >= count - ENDS || near.some((at) => Math.abs(at - i) <= BESIDE);
  const out: [number, number, boolean][] = [];
  for (let from = 0, to = 0; from < count; from = to) {
    while (to < count && shown(to) === shown(from)) to++;
    out.push([from, to, !shown(from) && to - from > BESIDE]);
  }
  return out;
}

/** The tokens of a long stream that the address selects: the row and the column of its cell, and its position. */
export function selectedTokens({ nodes, streams }: Pick<Manifest, "nodes" | "streams">, { name, pieces }: Stream, { node, cell, position }: Record<string, string | undefined>): number[] {
  const [row, col] = cell?.split(",") ?? [];
  // Without a node the cell is one of the last attention.
  const axes = (nodes.find((one) => one.id === node) ?? nodes.filter((one) => one.site === "weights").at(-1))?.axes ?? [];
  const own = [
    axes.at(-2)?.stream === name && row, axes.at(-1)?.stream === name && col, outputStream({ streams }).name === name && position,
  ];
  return pieces.length > LONG ? own.flatMap((one) => (one ? [Number(one)] : [])) : [];
}

export function Fold({ name, count, near, item }: { name: string; count: number; near: readonly number[]; item: (index: number) => VNode }) {
  const opened = useValue(route, ({ params }) => params.unfold ?? "").split(".").filter(Boolean);
  const open = opened.includes(name);
  const toggle = () => setParams({ unfold: (open ? opened.filter((one) => one !== name) : [...opened, name]).join(".") || null });
  return (
    <>
      {partsOf(count, near).flatMap(([from, to, folds]) => [
        folds && <li key={`fold${from}`} class="fold"><button type="button" class="quiet" aria-expanded={open} onClick={toggle}>{open ? "Fold" : "…"} {to - from} tokens</button></li>,
        ...(open || !folds ? Array.from({ length: to - from }, (_, i) => item(from + i)) : []),
      ])}
    </>
  );
}

interface TokensProps {
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

/** Selects a prediction in the address; what was selected within another is forgotten. */
export const choosePrediction = ({ predictions }: Manifest, index: number) => setParams({ position: predictions[index]?.position ?? 0, beam: null, foil: null, erased: null, cell: null });

/** The generated tokens, coloured by probability, to select a prediction. */
export function OutputTokens({ manifest, index, label }: { manifest: Manifest; index: number; label: string }) {
  const { predictions } = manifest;
  const stream = outputStream(manifest);
  // What is predicted at the end is not an input of the model, so the stream lacks it.
  const pieces = isMasked(manifest) ? stream.pieces : [...stream.pieces, predictions.at(-1)?.actual?.piece ?? "…"];
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
        stream={{ ...stream, pieces }} chosen={predictedPosition(manifest, position)} label={label} scale="sequential" limit={3} weights={probabilities}
        onChoose={(token) => choosePrediction(manifest, Math.max(0, predictions.findIndex((one) => predictedPosition(manifest, one.position) === token)))}
      />
    </div>
  );
}

interface ChoicesProps<T extends string> {
  name: string;
  label: string;
  options: readonly (readonly [value: T, words: string])[];
  chosen: T | null;
  onChoose: (value: T) => void;
}

/** A row of buttons, each with its value as `data-NAME`. */
export function Choices<T extends string>({ name, label, options, chosen, onChoose }: ChoicesProps<T>) {
  return (
    <span class="choices" role="group" aria-label={label}>
      {options.map(([value, words]) => (
        <button key={value} type="button" class="quiet" {...{ [`data-${name}`]: value }} aria-pressed={value === chosen} onClick={() => onChoose(value)}>
          {words}
        </button>
      ))}
    </span>
  );
}

/** Selects the head in the address. */
export function HeadPicker({ heads, head }: { heads: number; head: number }) {
  return (
    <div class="heads" role="group" aria-label="Head">
      <span class="small">Head</span>
      {Array.from({ length: heads }, (_, h) => (
        <button key={h} type="button" class="quiet" aria-pressed={h === head} onClick={() => setParams({ head: h })}>{h}</button>
      ))}
    </div>
  );
}
