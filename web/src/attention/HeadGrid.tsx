/**
 * All heads of one kind of attention as small multiples: layers down and heads across, or ranked by a measure. One is
 * chosen; the arrow keys walk through them.
 */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { number } from "../format";
import { headOf, largest, pick, pickMask, type Grid } from "./grid";
import { HeadThumb, thumbHeight } from "./HeadThumb";
import type { AttentionGroup, AttentionLayer } from "./heads";
import { measure, MEASURES, type Measure } from "./measures";
import type { LayerValues } from "./useWeights";

export interface HeadGridProps {
  group: AttentionGroup;
  layers: Map<string, LayerValues>;
  rows: number[];
  cols: number[];
  /** Rows that count in a measure. */
  counted: number[];
  sort: Measure | "model";
  chosen: { weights: string; head: number };
  onChoose: (layer: AttentionLayer, head: number) => void;
}

interface Entry {
  layer: AttentionLayer;
  head: number;
  grid: Grid;
  mask: Grid | null;
  score: number | null;
}

export function HeadGrid(props: HeadGridProps) {
  const { group, layers, sort, chosen, onChoose } = props;
  const entries = useEntries(props);
  const nHeads = Math.max(1, ...group.layers.map((layer) => layer.nHeads));
  const total = group.layers.reduce((sum, layer) => sum + layer.nHeads, 0);
  const width = total <= 4 ? 150 : total <= 16 ? 116 : 92;
  const buttons = useRef<HTMLDivElement>(null);
  const moved = useRef(false);
  const at = entries.findIndex((entry) => isChosen(entry, chosen));
  useEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    buttons.current?.querySelector<HTMLElement>("button[aria-pressed='true']")?.focus();
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const across = sort === "model" ? nHeads : 1;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    const next = by === undefined ? undefined : entries[at + by];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (!next) return;
    moved.current = true;
    onChoose(next.layer, next.head);
  };
  const thumb = (entry: Entry) => (
    <HeadButton
      key={`${entry.layer.weights}:${entry.head}`} entry={entry} width={width} sort={sort} ranked={sort !== "model"}
      chosen={isChosen(entry, chosen)} onChoose={() => onChoose(entry.layer, entry.head)}
    />
  );
  return (
    <div
      ref={buttons} class={sort === "model" ? "head-grid" : "head-grid head-grid-ranked"} role="group"
      aria-label={`${group.title}: heads`} onKeyDown={onKeyDown}
    >
      {sort !== "model"
        ? entries.map(thumb)
        : group.layers.map((layer) => (
          <div class="head-row" key={layer.weights}>
            <span class="head-layer">Layer {layer.layer + 1}</span>
            {layers.has(layer.weights)
              ? entries.filter((entry) => entry.layer.weights === layer.weights).map(thumb)
              : Array.from({ length: layer.nHeads }, (_, head) => <span key={head} class="head-blank" style={{ width: `${width}px`, height: `${thumbHeight(width, props.rows.length, props.cols.length)}px` }} />)}
          </div>
        ))}
    </div>
  );
}

const isChosen = (entry: Entry, chosen: HeadGridProps["chosen"]) =>
  entry.layer.weights === chosen.weights && entry.head === chosen.head;

function useEntries({ group, layers, rows, cols, counted, sort }: HeadGridProps): Entry[] {
  const name = sort === "model" ? "entropy" : sort;
  return useMemo(() => {
    const entries: Entry[] = [];
    for (const layer of group.layers) {
      const values = layers.get(layer.weights);
      if (!values) continue;
      const mask = pickMask(values.mask, rows, cols);
      for (let head = 0; head < layer.nHeads; head++) {
        const whole = headOf(values.weights, head);
        const score = measure(name, whole, values.mask, counted, group.kind === "cross");
        entries.push({ layer, head, grid: pick(whole, rows, cols), mask, score });
      }
    }
    if (sort === "model") return entries;
    // Low entropy is the focused end; for the other two the most comes first.
    const sign = sort === "entropy" ? 1 : -1;
    return entries.sort((a, b) => sign * ((a.score ?? Infinity) - (b.score ?? Infinity)));
  }, [group.kind, layers, rows.join(), cols.join(), sort]);
}

interface HeadButtonProps {
  entry: Entry;
  width: number;
  sort: HeadGridProps["sort"];
  ranked: boolean;
  chosen: boolean;
  onChoose: () => void;
}

function HeadButton({ entry, width, sort, ranked, chosen, onChoose }: HeadButtonProps) {
  const { layer, head, grid, mask, score } = entry;
  const measured = MEASURES.find((one) => one.name === sort)?.label ?? "entropy";
  const said = score === null ? "" : `, ${measured} ${score.toFixed(2)}`;
  const most = largest(grid);
  return (
    <button
      type="button" class="head-button" aria-pressed={chosen} tabIndex={chosen ? 0 : -1}
      aria-label={`Layer ${layer.layer + 1}, head ${head + 1}${said}, largest weight ${number(most, 2)}`}
      data-head={`${layer.weights}:${head}`} data-score={score ?? ""} onClick={onChoose}
    >
      <HeadThumb grid={grid} mask={mask} width={width} />
      <span class="head-caption">
        <span>{ranked ? `${layer.layer + 1}·${head + 1}` : head + 1}</span>
        <span class="head-score">{ranked && score !== null ? score.toFixed(2) : `≤ ${number(most, 2)}`}</span>
      </span>
    </button>
  );
}
