/** The written text, one chip a token, to choose the step that wrote it; the stronger a chip, the more probable it was. */
import { useEffect, useRef } from "preact/hooks";
import { Tokens } from "../components/Tokens";
import type { Manifest } from "../types";
import { written } from "./forcing";

interface Props {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  label: string;
  onStep: (index: number) => void;
}

export function WrittenTokens({ manifest, index, label, onStep }: Props) {
  const { predictions, window } = manifest;
  const stream = written(manifest);
  // The end that was written last is no input of the model, and so is not among the stream's tokens.
  const end = predictions.at(-1)?.actual;
  const pieces = end && !window ? [...stream.pieces, end.piece] : stream.pieces;
  const box = useRef<HTMLDivElement>(null);
  const position = predictions[index]?.position ?? 0;
  useEffect(() => {
    const chip = box.current?.querySelector<HTMLElement>("[aria-pressed=true]");
    if (chip && box.current) box.current.scrollTop = chip.offsetTop - box.current.offsetTop - 60;
  }, [position, manifest.id]);
  const probabilities = new Array<number>(pieces.length).fill(0);
  for (const { actual, position: at } of predictions) if (actual) probabilities[(at ?? 0) + 1] = Math.exp(actual.log_prob);
  return (
    <div class="written" ref={box}>
      <Tokens
        stream={{ ...stream, pieces }} window={window} chosen={position + 1} label={label} scale="sequential" limit={3}
        weights={probabilities.slice(window?.[0] ?? 0)}
        onChoose={(token) => onStep(Math.max(0, predictions.findIndex((one) => (one.position ?? 0) + 1 === token)))}
      />
    </div>
  );
}
