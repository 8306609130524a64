/** The weights of one head at all checkpoints of a run. Each checkpoint is traced once on the same tokens. */
import { source } from "../../state/page";
import { useResource } from "../../state/resource";
import { toErrorMessage } from "../../state/signals";
import { toGrid, headOf } from "../../tensors/grid";
import { labelsOf, type View, viewOf } from "../../trace/heads";
import { isClassifier } from "../../trace/generation";
import type { Manifest, RunInfo, TraceRequest } from "../../types";
import { Thumb, thumbHeight } from "../../views/Thumb";
import { fetchLayer, type LayerValues } from "../../views/weights";
import { checkpointName, filmSlice, teacherForcedRequest } from "./pair";

export interface FilmStripProps {
  manifest: Manifest;
  view: View;
  checkpoints: RunInfo["checkpoints"];
  chosen: string | null;
  onChoose: (checkpoint: string) => void;
}

interface Frame {
  values?: LayerValues;
  error?: string;
  answer?: string; // of a classifier; others read A's tokens
}

async function frameOf(weights: string, slice: string, request: TraceRequest): Promise<Frame> {
  try {
    const trace = await source.trace(request);
    const layer = viewOf(trace, { node: weights })?.layer;
    if (layer?.weights !== weights) return { error: "This checkpoint lacks this layer" };
    const answer = isClassifier(trace) ? `${trace.answer.headline} ${trace.answer.detail}` : undefined;
    return { values: await fetchLayer(trace.id, layer, slice), answer };
  } catch (error) {
    return { error: toErrorMessage(error).message };
  }
}

export function FilmStrip({ manifest, view, checkpoints, chosen, onChoose }: FilmStripProps) {
  const { weights, layer } = view.layer;
  const rows = labelsOf(manifest, view.group.queries);
  const slice = filmSlice(view, rows.length * labelsOf(manifest, view.group.keys).length, checkpoints.length);
  const { value: frames } = useResource<Map<string, Frame>>(`${manifest.id}|${weights}?${slice}`, async (soFar) => {
    const found = new Map<string, Frame>();
    for (const { name } of checkpoints) {
      found.set(name, await frameOf(weights, slice, teacherForcedRequest(manifest, name)));
      if (!soFar(new Map(found))) break;
    }
    return found;
  });
  const width = checkpoints.length > 8 ? 92 : 124;
  const height = thumbHeight(width, rows.length, labelsOf(manifest, view.group.keys).length);
  const picture = ({ values, error }: Frame = {}) => {
    if (values) return <Thumb grid={gridOf(values, view)} mask={values.mask} width={width} height={height} />;
    return <span class={error ? "note note-bad" : "head-blank"} style={{ width: `${width}px`, height: error ? "" : `${height}px` }}>{error}</span>;
  };
  return (
    <section>
      <h2>{`${view.group.title}, layer ${layer}, head ${view.head}, through training`}</h2>
      <ol class="film">
        {checkpoints.map((one) => {
          const frame = frames?.get(one.name);
          return (
            <li key={one.name}>
              <button type="button" class="head-button" aria-pressed={one.name === chosen} data-checkpoint={one.name} onClick={() => onChoose(one.name)}>
                {picture(frame)}
                <span class="head-caption">{checkpointName(one.name, one.step)}</span>
                {frame?.answer && <span class="head-caption">{frame.answer}</span>}
              </button>
            </li>
          );
        })}
      </ol>
      <p class="note">
        {!isClassifier(manifest) && "Every checkpoint reads A’s tokens (teacher forcing). "}
        Each heat map has its own scale.
      </p>
    </section>
  );
}

/** The selected head, which may have been fetched alone. */
const gridOf = ({ weights }: LayerValues, { head }: View) => (weights.shape.length > 2 ? headOf(weights, head) : toGrid(weights));
