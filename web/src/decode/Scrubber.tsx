/**
 * The text as it was written, one chip a token, with a slider below: both move through the steps. The height of
 * the small bar in a chip is the probability its token had.
 */
import { useEffect, useRef } from "preact/hooks";
import type { Manifest } from "../types";
import { written } from "./forcing";
import { label, percent } from "./numbers";
import { Piece } from "./Piece";

interface Props {
  manifest: Manifest;
  /** Index into `predictions`. */
  index: number;
  onStep: (index: number) => void;
}

export function Scrubber({ manifest, index, onStep }: Props) {
  const { predictions } = manifest;
  const stream = written(manifest);
  const line = useRef<HTMLOListElement>(null);
  const first = predictions[0]?.position ?? 0;
  useEffect(() => {
    const chip = line.current?.querySelector<HTMLElement>("[aria-current=step]");
    if (chip && line.current) line.current.scrollTop = chip.offsetTop - line.current.offsetTop - 60;
  }, [index, manifest.id]);
  const current = predictions[index];
  const step = (delta: number): void => onStep(Math.max(0, Math.min(predictions.length - 1, index + delta)));
  return (
    <section class="scrubber" aria-label="Steps">
      <ol class="written" ref={line} data-stream={stream.name}>
        <li>
          <span class="token token-start" data-token={first}><Piece piece={stream.pieces[first] ?? ""} /></span>
        </li>
        {predictions.map((prediction, i) => {
          const { actual, position } = prediction;
          const p = actual ? Math.exp(actual.log_prob) : 0;
          const given = (position ?? 0) + 1 < stream.n_given;
          return (
            <li key={i}>
              <button
                type="button" class="token step-token" data-token={(position ?? 0) + 1} data-given={given}
                aria-current={i === index ? "step" : undefined} tabIndex={-1}
                title={actual ? `step ${i + 1}: ${percent(p)}${given ? ", given" : ""}` : "what would come next"}
                onClick={() => onStep(i)}
              >
                {actual ? <Piece piece={actual.piece} /> : "…"}
                <span class="token-bar" style={{ width: `${100 * p}%` }} />
              </button>
            </li>
          );
        })}
      </ol>
      <div class="slider">
        <button type="button" class="plain-button" aria-label="Step before" disabled={index === 0} onClick={() => step(-1)}>←</button>
        <input
          type="range" min={0} max={predictions.length - 1} step={1} value={index} data-role="step" aria-label="Step"
          aria-valuetext={`step ${index + 1} of ${predictions.length}: ${current?.actual ? label(current.actual.piece) : "what would come next"}`}
          onInput={(event) => onStep(Number(event.currentTarget.value))}
        />
        <button type="button" class="plain-button" aria-label="Step after" disabled={index === predictions.length - 1} onClick={() => step(1)}>→</button>
        <span class="slider-count">step {index + 1} of {predictions.length}</span>
        <span class="slider-count slider-key">The line under a token is the probability it had.</span>
      </div>
    </section>
  );
}
