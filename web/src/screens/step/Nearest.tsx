/** Where the embedding of the selected token lies: its nearest rows of the table by cosine, and both on a plane. */
import { setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { count, percent, visible } from "../../tensors/format";
import { isGradient, leaf } from "../../trace/steps";
import type { EmbeddingView, Manifest, TraceNode } from "../../types";
import { Bars } from "../../views/Bars";

const [WIDTH, HEIGHT, MARGIN] = [400, 300, 40];
/** Width of a letter and height of a line in a label. */
const [LETTER, LINE] = [6.6, 13];

/** Nothing, unless the step looks up the embeddings of tokens. */
export function Nearest({ node, row, trace }: { node: TraceNode; row: number; trace: Manifest }) {
  const stream = trace.streams.find((one) => one.name === node.axes[0]?.stream);
  const id = leaf(node) === "rows" && !isGradient(node) ? stream?.ids[row] : undefined;
  const key = id === undefined ? null : `${trace.id}/${node.id}/${id}`;
  const { value, error } = useResource(key, () => source.neighbours(trace.id, node.id, row, id!), { within: node.id, delay: 30 });
  if (key === null || !stream) return null;
  return (
    <section class="nearest" aria-labelledby="nearest-title" data-role="nearest">
      <h2 id="nearest-title">Nearest embeddings{value && <> of <bdi>{visible(value.piece)}</bdi></>}</h2>
      <label class="small">
        Token{" "}
        <select value={row} onChange={({ currentTarget }) => setParams({ cell: `${currentTarget.value},0` })}>
          {stream.pieces.map((piece, i) => <option key={i} value={i}>{`${i + 1}. ${visible(piece)}`}</option>)}
        </select>
      </label>
      {error && <p class="note">{error.message}</p>}
      {value && (
        <div class="nearest-parts">
          <div>
            <Bars label="Cosine similarity" bars={value.neighbours.map(({ piece, cosine }, i) => ({ key: i, label: piece, value: cosine, text: cosine.toFixed(2) }))} />
            <p class="note">Cosine with each of the other {count(value.n_rows)} rows of the table. It is the embedding alone: no position, no layer.</p>
          </div>
          <Plane view={value} />
        </div>
      )}
    </section>
  );
}

interface Label {
  x: number;
  y: number;
  width: number;
}

/** Where each label stands beside its point: at the first of four places that no other label covers, or nowhere. */
function placeLabels(points: { x: number; y: number; piece: string }[]): (Label | null)[] {
  const placed: Label[] = [];
  const free = (one: Label) => one.x >= 0 && one.x + one.width <= WIDTH
    && !placed.some((other) => one.x < other.x + other.width && other.x < one.x + one.width && Math.abs(one.y - other.y) < LINE);
  return points.map(({ x, y, piece }) => {
    const width = visible(piece).length * LETTER;
    const places = [[x + 7, y + 4], [x - 7 - width, y + 4], [x - width / 2, y - 8], [x - width / 2, y + 17]] as const;
    const found = places.map(([left, base]) => ({ x: left, y: base, width })).find(free) ?? null;
    if (found) placed.push(found);
    return found;
  });
}

/** The points, with equal scales on both axes. */
function Plane({ view }: { view: EmbeddingView }) {
  const [xs, ys] = [view.points.map(({ x }) => x), view.points.map(({ y }) => y)];
  const [left, low] = [Math.min(...xs), Math.min(...ys)];
  const span = Math.max((Math.max(...xs) - left) / (WIDTH - 2 * MARGIN), (Math.max(...ys) - low) / (HEIGHT - 2 * MARGIN)) || 1;
  const at = view.points.map(({ x, y, piece }) => ({ x: MARGIN + (x - left) / span, y: HEIGHT - MARGIN - (y - low) / span, piece }));
  const labels = placeLabels(at);
  const words = `The ${view.points.length} tokens on the plane in which they differ most. It shows ${percent(view.explained)} of their variance.`;
  return (
    <figure class="plane">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={words}>
        {view.points.map(({ piece, kind }, i) => (
          <g key={i} class={`plane-${kind}`}>
            <title>{visible(piece)}</title>
            <circle cx={at[i]!.x} cy={at[i]!.y} r={kind === "token" ? 5 : 3.5} />
          </g>
        ))}
        {view.points.map(({ piece, kind }, i) => labels[i] && (
          <text key={i} class={`plane-${kind}`} x={labels[i].x} y={labels[i].y}>{visible(piece)}</text>
        ))}
      </svg>
      <figcaption class="note">{words} Filled: nearest; hollow: other tokens of the text. Where labels would cover each other, point at a circle.</figcaption>
    </figure>
  );
}
