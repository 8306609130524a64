/** Selection of one of several options, of a head, or of a position. */
import type { VNode } from "preact";
import { route, setParams } from "../state/page";
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

function Fold({ name, count, near, item }: { name: string; count: number; near: readonly number[]; item: (index: number) => VNode }) {
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
  /** The selected tokens, around which a long text is not folded. */
  selected?: readonly number[];
  onChoose?: (index: number) => void;
  /** A tint per token, on a signed or sequential scale of `limit` (largest magnitude, if absent). */
  weights?: ArrayLike<number>;
  scale?: "signed" | "sequential";
  limit?: number;
  marks?: (string | null)[];
  label?: string;
  /** In the document and in the address, by default that of the stream. */
  name?: string;
}

/** The tokens of a stream; of a long one its ends and what is around the selected tokens. */
export function Tokens(props: TokensProps) {
  const { stream, selected = [], onChoose, weights, scale = "signed", marks, label, name = stream.name } = props;
  const limit = props.limit ?? Math.max(0, ...Array.from(weights ?? [], Math.abs));
  const colours = useValue(palette);
  const chip = (index: number) => {
    const kinds = (["special", "unknown", "padding"] as const).filter((kind) => stream[kind][index]);
    const weight = weights?.[index];
    const Chip = onChoose ? "button" : "span";
    return (
      <li key={index}>
        <Chip
          class={["token", ...kinds.map((kind) => `token-${kind}`)].join(" ")} data-token={index}
          style={weight === undefined ? undefined : { backgroundColor: css(shade(weight, limit, scale, colours)) }}
          {...(onChoose && { type: "button", "aria-pressed": selected.includes(index), onClick: () => onChoose(index) })}
        >
          <bdi>{visible(stream.pieces[index])}</bdi>
          {marks?.[index] && <small>{marks[index]}</small>}
        </Chip>
      </li>
    );
  };
  return (
    <ol class="tokens" data-stream={name} aria-label={label ?? `Tokens of the ${stream.name}`}>
      <Fold name={name} count={stream.pieces.length} near={selected} item={chip} />
    </ol>
  );
}

/** Selects a prediction in the address; what was selected within another is forgotten. */
export const choosePrediction = ({ predictions }: Manifest, index: number) => setParams({ position: predictions[index]?.position ?? 0, foil: null, erased: null, cell: null });

/** The generated tokens, coloured by probability, to select a prediction. */
export function OutputTokens({ manifest, index, label }: { manifest: Manifest; index: number; label: string }) {
  const { predictions } = manifest;
  const stream = outputStream(manifest);
  // What is predicted at the end is not an input of the model, so the stream lacks it.
  const pieces = isMasked(manifest) ? stream.pieces : [...stream.pieces, predictions.at(-1)?.actual?.piece ?? "…"];
  const probabilities = new Array<number>(pieces.length).fill(0);
  for (const { actual, position: at } of predictions) if (actual) probabilities[predictedPosition(manifest, at)] = Math.exp(actual.log_prob);
  return (
    <Tokens
      name="output" stream={{ ...stream, pieces }} selected={[predictedPosition(manifest, predictions[index]?.position)]} label={label} scale="sequential" limit={3} weights={probabilities}
      onChoose={(token) => choosePrediction(manifest, Math.max(0, predictions.findIndex((one) => predictedPosition(manifest, one.position) === token)))}
    />
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
export const HeadPicker = ({ heads, head }: { heads: number; head: number }) => (
  <p class="row">Head <Choices name="head" label="Head" options={Array.from({ length: heads }, (_, h) => [`${h}`, `${h}`])} chosen={`${head}`} onChoose={(next) => setParams({ head: next })} /></p>
);
