/**
 * One head through the checkpoints of a run, oldest first: a picture of each, the head's measures as lines, and a
 * slider to walk along them. Each checkpoint is traced once on the same tokens, and its picture is kept.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { headOf, type Grid } from "../attention/grid";
import { HeadThumb, thumbHeight } from "../attention/HeadThumb";
import { countedRows, labelsOf } from "../attention/labels";
import { measure, MEASURES, type Measure } from "../attention/measures";
import { fetchLayer, type LayerValues } from "../attention/useWeights";
import { viewOf, type View } from "../attention/view";
import { source } from "../state";
import type { Manifest, RunFacts } from "../types";
import { Lines, type Line } from "./Lines";
import { checkpointName, heldRequest } from "./pair";

export interface FilmStripProps {
  manifest: Manifest;
  view: View;
  checkpoints: RunFacts["checkpoints"];
  chosen: string | null;
  onChoose: (checkpoint: string) => void;
}

interface Frame {
  values: LayerValues | null;
  error: string | null;
  answer: string;
}

/** Pictures by trace request and block, so that another head or a step back asks for nothing again. */
const kept = new Map<string, Promise<Frame>>();

function frameOf(manifest: Manifest, weights: string, checkpoint: string): Promise<Frame> {
  const request = heldRequest(manifest, checkpoint);
  const key = `${manifest.model.run}|${weights}|${JSON.stringify(request)}`;
  let frame = kept.get(key);
  if (!frame) {
    frame = load(manifest, weights, request).catch((error: unknown) => {
      kept.delete(key);
      return { values: null, answer: "", error: error instanceof Error ? error.message : String(error) };
    });
    kept.set(key, frame);
    if (kept.size > 128) kept.delete(kept.keys().next().value!);
  }
  return frame;
}

async function load(manifest: Manifest, weights: string, request: ReturnType<typeof heldRequest>): Promise<Frame> {
  const trace = await source.trace(request);
  const layer = viewOf(trace, { node: weights })?.layer;
  if (layer?.weights !== weights) throw new Error("This checkpoint has no such block.");
  const answer = manifest.model.task === "classify" ? `${trace.answer.headline} ${trace.answer.detail}` : "";
  return { values: await fetchLayer(trace.id, layer), answer, error: null };
}

function useFrames({ manifest, view, checkpoints }: FilmStripProps): Map<string, Frame> {
  const key = `${manifest.id}|${view.layer.weights}`;
  const [state, setState] = useState<{ key: string; frames: Map<string, Frame> }>({ key: "", frames: new Map() });
  useEffect(() => {
    let alive = true;
    const frames = new Map<string, Frame>();
    const run = async () => {
      for (const { name } of checkpoints) {
        frames.set(name, await frameOf(manifest, view.layer.weights, name));
        if (!alive) return;
        setState({ key, frames: new Map(frames) });
      }
    };
    void run();
    return () => {
      alive = false;
    };
  }, [key]);
  return state.key === key ? state.frames : new Map();
}

export function FilmStrip(props: FilmStripProps) {
  const { manifest, view, checkpoints, chosen, onChoose } = props;
  const frames = useFrames(props);
  const [sliding, setSliding] = useState<number | null>(null);
  const timer = useRef(0);
  useEffect(() => setSliding(null), [chosen]);
  const slide = (to: number) => {
    setSliding(to);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onChoose(checkpoints[to]!.name), 200); // not every stop on the way
  };
  const at = sliding ?? Math.max(0, checkpoints.findIndex(({ name }) => name === chosen));
  const width = checkpoints.length > 8 ? 92 : 124;
  const height = thumbHeight(width, labelsOf(manifest, view.group.queries).length, labelsOf(manifest, view.group.keys).length);
  return (
    <section class="film">
      <h2>{`${view.group.title}, layer ${view.layer.layer + 1}, head ${view.head + 1}, through training`}</h2>
      <ol class="film-strip">
        {checkpoints.map(({ name, step }) => (
          <li key={name}>
            <button type="button" class="head-button" aria-pressed={name === chosen} data-checkpoint={name} onClick={() => onChoose(name)}>
              <FramePicture frame={frames.get(name)} head={view.head} width={width} height={height} />
              <span class="head-caption"><span>{checkpointName(name, step)}</span></span>
              {frames.get(name)?.answer && <span class="film-answer">{frames.get(name)!.answer}</span>}
            </button>
          </li>
        ))}
      </ol>
      <label class="film-slider">
        <span>{chosen === null && sliding === null ? "Move the slider to choose B" : <>B is <strong>{checkpointName(checkpoints[at]!.name, checkpoints[at]!.step)}</strong></>}</span>
        <input
          type="range" min={0} max={checkpoints.length - 1} step={1} value={at} data-role="checkpoint"
          aria-valuetext={checkpointName(checkpoints[at]!.name, checkpoints[at]!.step)}
          onInput={(event) => slide(Number(event.currentTarget.value))}
        />
      </label>
      <Lines
        label="Measures of the head at each checkpoint" lines={measures(manifest, view, checkpoints, frames)} marked={at}
        ticks={checkpoints.map(({ name, step }) => checkpointName(name, step))}
      />
      <p class="note">
        {manifest.model.task === "classify"
          ? "Each picture on its own scale."
          : "Every checkpoint is given A's tokens, whatever it would write itself, so that the pictures can be compared. Each is on its own scale."}
      </p>
    </section>
  );
}

function FramePicture({ frame, head, width, height }: { frame: Frame | undefined; head: number; width: number; height: number }) {
  if (!frame) return <span class="head-blank" style={{ width: `${width}px`, height: `${height}px` }} />;
  if (!frame.values) return <span class="film-error" style={{ width: `${width}px` }}>{frame.error}</span>;
  return <HeadThumb grid={headOf(frame.values.weights, head)} mask={frame.values.mask} width={width} />;
}

function measures(manifest: Manifest, view: View, checkpoints: RunFacts["checkpoints"], frames: Map<string, Frame>): Line[] {
  const counted = countedRows(labelsOf(manifest, view.group.queries), false);
  const value = (name: Measure, grid: Grid, mask: Grid | null) =>
    measure(name, grid, mask, counted.filter((row) => row < grid.rows), view.group.kind === "cross");
  return MEASURES.filter(({ selfOnly }) => !(selfOnly && view.group.kind === "cross")).map(({ name, label }) => ({
    label,
    values: checkpoints.map((checkpoint) => {
      const values = frames.get(checkpoint.name)?.values;
      return values ? value(name, headOf(values.weights, view.head), values.mask) : null;
    }),
  }));
}
