/**
 * All heads of one kind of attention as small multiples, by layer and head or sorted by a measure. The arrow keys move
 * the selection.
 */
import { useMemo } from "preact/hooks";
import { setParams } from "../../state/page";
import { number } from "../../tensors/format";
import { type Grid, headOf, selectCells, selectMask } from "../../tensors/grid";
import { measure } from "../../tensors/measures";
import { magnitude } from "../../tensors/tensor";
import { maskOfHead } from "../../trace/edits";
import { type AttentionLayer, rowsWithoutPadding, type Label, visibleIndices, type View } from "../../trace/heads";
import type { Manifest } from "../../types";
import { useArrowKeys } from "../../views/interaction";
import { Thumb, thumbHeight } from "../../views/Thumb";
import type { LayerValues } from "../../views/weights";

export interface HeadGridProps {
  manifest: Manifest;
  view: View;
  layers: Map<string, LayerValues>;
  rows: Label[];
  cols: Label[];
}

interface Entry {
  layer: AttentionLayer;
  head: number;
  grid: Grid;
  mask: Grid | null;
  score: number | null;
}

export function HeadGrid(props: HeadGridProps) {
  const { group, layer: chosenLayer, head: chosenHead, sort, difference } = props.view;
  const entries = useEntries(props);
  const ranked = sort !== "model";
  const total = group.layers.reduce((sum, layer) => sum + layer.nHeads, 0);
  const width = total <= 4 ? 150 : total <= 16 ? 116 : 92;
  const isChosen = ({ layer, head }: Entry) => layer.weights === chosenLayer.weights && head === chosenHead;
  const choose = ({ layer, head }: Entry) => setParams({ node: layer.weights, layer: layer.layer, head });
  const across = ranked ? 1 : chosenLayer.nHeads;
  const arrows = useArrowKeys({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }, (by) => {
    const next = entries[entries.findIndex(isChosen) + by];
    if (next) choose(next);
  });
  const button = (entry: Entry) => {
    const { layer, head, grid, mask, score } = entry;
    const largest = `${difference ? "±" : "≤"} ${number(magnitude(grid.data), 2)}`;
    const measured = ranked && score !== null ? score.toFixed(2) : largest;
    return (
      <button
        key={`${layer.weights}:${head}`} type="button" class="head-button" aria-pressed={isChosen(entry)} tabIndex={isChosen(entry) ? 0 : -1}
        aria-label={`Layer ${layer.layer}, head ${head}, ${ranked ? `${sort} ${measured}` : `${difference ? "changes" : "weights"} ${largest}`}`}
        data-head={`${layer.weights}:${head}`} data-score={score ?? ""} onClick={() => choose(entry)}
      >
        <Thumb grid={grid} mask={mask} scale={difference ? "signed" : "sequential"} width={width} height={thumbHeight(width, grid.rows, grid.cols)} />
        <span class="head-caption"><span>{ranked ? `${layer.layer}·${head}` : head}</span><span>{measured}</span></span>
      </button>
    );
  };
  const blank = { width: `${width}px`, height: `${thumbHeight(width, props.rows.length, props.cols.length)}px` };
  return (
    <div class={ranked ? "head-grid head-grid-ranked" : "head-grid"} role="group" aria-label={`${group.title}: heads`} {...arrows}>
      {ranked ? entries.map(button) : group.layers.map((layer) => (
        <div class="head-row" key={layer.weights}>
          <span class="head-layer">Layer {layer.layer}</span>
          {props.layers.has(layer.weights)
            ? entries.filter((entry) => entry.layer.weights === layer.weights).map(button)
            : Array.from({ length: layer.nHeads }, (_, head) => <span key={head} class="head-blank" style={blank} />)}
        </div>
      ))}
    </div>
  );
}

function useEntries({ manifest, view: { group, cross, sort, hide, difference }, layers, rows, cols }: HeadGridProps): Entry[] {
  // Cache the entries of each layer, so that they are not drawn again when the next layer arrives.
  const known = useMemo(() => new WeakMap<LayerValues, Entry[]>(), [group.kind, hide, sort, manifest]);
  return useMemo(() => {
    const [rowsShown, colsShown, counted] = [visibleIndices(rows, hide), visibleIndices(cols, hide), rowsWithoutPadding(rows, hide)];
    const entries = group.layers.flatMap((layer): Entry[] => {
      const values = layers.get(layer.weights);
      if (!values) return [];
      if (!known.has(values)) {
        known.set(values, Array.from({ length: layer.nHeads }, (_, head) => {
          const [whole, mask] = [headOf(values.weights, head), maskOfHead(manifest, layer.weights, head, values.mask)];
          const score = measure(sort !== "model" ? sort : difference ? "change" : "entropy", whole, mask, counted, group === cross);
          return { layer, head, grid: selectCells(whole, rowsShown, colsShown), mask: selectMask(mask, rowsShown, colsShown), score };
        }));
      }
      return known.get(values)!;
    });
    if (sort === "model") return entries;
    const sign = sort === "entropy" ? 1 : -1; // entropy ascending, other measures descending
    return entries.sort((a, b) => sign * ((a.score ?? Infinity) - (b.score ?? Infinity)));
  }, [group.kind, layers, hide, sort, manifest]);
}
