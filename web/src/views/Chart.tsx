/** A line chart with its axes, and a line at the position that is read in all charts. */
import { useRef } from "preact/hooks";
import { type Signal, signal, useValue } from "../state/signals";
import { number } from "../tensors/format";
import { duration, pathThrough, type Point, scaleOf, tickText } from "../tensors/scale";

export interface Line {
  name: string;
  points: Point[];
  /** Marks each point, as of validations. */
  dots?: boolean;
  kind?: "main" | "second" | "faint";
}

interface Props {
  name: string;
  title: string;
  lines: Line[];
  /** All positions on the horizontal axis, so that the charts have the same. */
  xs: readonly number[];
  by: "step" | "seconds";
  log?: boolean;
  zero?: boolean;
  /** The position that is read, the same in all charts. */
  cursor?: Signal<number | null>;
}

const own = signal<number | null>(null);

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [520, 204, 62, 512, 10, 164];

export function Chart({ name, title, lines, xs, by, log = false, zero = false, cursor = own }: Props) {
  const svg = useRef<SVGSVGElement>(null);
  const at = useValue(cursor);
  const x = scaleOf([xs[0] ?? 0, xs.at(-1) ?? 1], [LEFT, RIGHT]);
  const y = scaleOf(lines.flatMap(({ points }) => points.map(([, value]) => value)), [BOTTOM, TOP], { log, zero });
  const point = (event: PointerEvent) => {
    const { left, width } = svg.current!.getBoundingClientRect();
    const share = (((event.clientX - left) / width) * WIDTH - LEFT) / (RIGHT - LEFT);
    const [first, last] = [xs[0] ?? 0, xs.at(-1) ?? 1];
    cursor.value = first + Math.max(0, Math.min(1, share)) * (last - first);
  };
  const last = (line: Line | undefined) => line?.points.at(-1)?.[1];
  const newest = lines.filter(({ kind }) => kind !== "faint").map((line) => `${line.name} ${last(line) === undefined ? "–" : number(last(line)!)}`);
  const empty = !lines.some(({ points }) => points.length);
  if (empty) return <figure class="chart" data-chart={name} data-points={0}><figcaption>{title}</figcaption><p class="note">Nothing of it is logged yet.</p></figure>;
  return (
    <figure class="chart" data-chart={name} data-points={Math.max(0, ...lines.map(({ points }) => points.length))}>
      <figcaption>{title}{log && <span class="note"> (logarithmic)</span>}</figcaption>
      <svg
        ref={svg} class="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}; newest: ${newest.join(", ") || "nothing yet"}`}
        onPointerMove={point} onPointerDown={point} onPointerLeave={() => (cursor.value = null)}
      >
        {y.ticks.map((tick) => (
          <g key={tick}>
            <path class="axis" d={`M${LEFT} ${y(tick)}H${RIGHT}`} />
            <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">{tickText(tick)}</text>
          </g>
        ))}
        {x.ticks.map((tick) => (
          <text key={tick} x={x(tick)} y={BOTTOM + 18} text-anchor={x(tick) > RIGHT - 24 ? "end" : x(tick) < LEFT + 24 ? "start" : "middle"}>
            {by === "step" ? tick.toLocaleString("en") : duration(tick)}
          </text>
        ))}
        <text x={(LEFT + RIGHT) / 2} y={HEIGHT - 4} text-anchor="middle" class="chart-axis">{by === "step" ? "step" : "time"}</text>
        {lines.map(({ name: of, points, dots, kind = "main" }) => (
          <g key={of} data-line={of} class={`chart-${kind}`}>
            <path d={pathThrough(points, x, y)} />
            {(dots || points.length === 1) && points.map(([a, b]) => <circle key={a} cx={x(a)} cy={y(b)} r={dots ? 3 : 2} />)}
          </g>
        ))}
        {at !== null && <path class="chart-cursor" d={`M${x(at)} ${TOP}V${BOTTOM}`} />}
      </svg>
    </figure>
  );
}
