/**
 * Settings the whole text is written again with: beam size and length penalty, or the sampling knobs and a seed.
 */
import { useState } from "preact/hooks";
import type { DecodeSettings, Manifest, TraceRequest } from "../types";
import { requestWith } from "./forcing";
import type { Knobs } from "./filters";

interface Props {
  manifest: Manifest;
  knobs: Knobs;
  busy: boolean;
  onTrace: (request: TraceRequest) => void;
}

export function WriteAgain({ manifest, knobs, busy, onTrace }: Props) {
  const { settings, prefix } = manifest.decode;
  const translate = manifest.model.task === "translate";
  const [sample, setSample] = useState(!translate || settings.sample);
  const [beam, setBeam] = useState(settings.beam_size);
  const [penalty, setPenalty] = useState(settings.length_penalty);
  const [seed, setSeed] = useState(settings.decode_seed);

  const write = (): void => {
    const decode: Partial<DecodeSettings> = sample
      ? { sample: true, temperature: knobs.temperature, top_k: knobs.topK, top_p: knobs.topP, min_p: knobs.minP, decode_seed: seed }
      : { sample: false, beam_size: beam, length_penalty: penalty };
    const request = requestWith(manifest, []);
    onTrace({ ...request, decode: { ...request.decode, ...decode } });
  };

  return (
    <form class="write-again" onSubmit={(event) => { event.preventDefault(); write(); }}>
      {translate && (
        <span class="choice" role="group" aria-label="How to write">
          <label><input type="radio" name="how" checked={!sample} onChange={() => setSample(false)} /> Beam search</label>
          <label><input type="radio" name="how" checked={sample} onChange={() => setSample(true)} /> Sampling</label>
        </span>
      )}
      {sample ? (
        <label class="number">Seed <input type="number" min={0} step={1} value={seed} onInput={(e) => setSeed(Math.max(0, Math.trunc(Number(e.currentTarget.value))))} /></label>
      ) : (
        <>
          <label class="number">Beam <input type="number" min={1} max={10} step={1} value={beam} onInput={(e) => setBeam(Math.max(1, Math.trunc(Number(e.currentTarget.value))))} /></label>
          <label class="number">Length penalty <input type="number" min={0} max={3} step={0.1} value={penalty} onInput={(e) => setPenalty(Number(e.currentTarget.value))} /></label>
        </>
      )}
      <button type="submit" class="plain-button" data-role="write-again" disabled={busy}>
        {sample ? "Write again with these" : "Search again"}
      </button>
      {prefix.length > 0 && (
        <button type="button" class="link" data-role="unforce" disabled={busy} onClick={() => onTrace(requestWith(manifest, []))}>
          Let the model choose from the start
        </button>
      )}
    </form>
  );
}
