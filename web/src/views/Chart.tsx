/** A line chart with its axes, and a line at the position that is read in all charts. */
import { useRef } from "preact/hooks";
import { type Signal, signal, useValue } from "../state/signals";
import { number } from "../tensors/format";

/** Scales, ticks and paths of charts. */
type Point = readonly [x: number, y: number];

/** Points whose coordinates are both finite; on a logarithmic scale also above zero. */
export function pointsOf(xs: readonly (number | null)[], ys: readonly (number | null | undefined)[], log = false): Point[] {
  const kept: Point[] = [];
  xs.forEach((x, i) => {
    const y = ys[i];
    if (x !== null && typeof y === "number" && (!log || y > 0)) kept.push([x, y]);
  });
  return kept;
}

/** From values to pixels. */
interface Scale {
  (value: number): number;
  ticks: number[];
}

/** A linear or logarithmic scale over the values, with two to five round ticks. */
export function scaleOf(values: readonly number[], [from, to]: readonly [number, number], { log = false, zero = false } = {}): Scale {
  let low = zero ? 0 : Infinity, high = zero ? 0 : -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (!Number.isFinite(low)) [low, high] = log ? [1, 10] : [0, 1];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : low >= 0 && low <= 1 ? [0, 1] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const scaled = log ? Math.log10 : (value: number) => value;
  const [a, b] = [scaled(low), scaled(high)];
  const scale = (value: number) => from + ((scaled(value) - a) / (b - a)) * (to - from);
  return Object.assign(scale, { ticks: log ? logTicks(low, high) : linearTicks(low, high) });
}

function linearTicks(low: number, high: number): number[] {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough)!;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function logTicks(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) {
    const powers = Array.from({ length: last - first + 3 }, (_, i) => first - 1 + i);
    const found = powers.flatMap((power) => [1, 2, 5].map((one) => Number(`${one}e${power}`))).filter((one) => one >= low * (1 - 1e-9) && one <= high * (1 + 1e-9));
    return found.length > 1 ? found : linearTicks(low, high).filter((one) => one > 0);
  }
  const every = Math.ceil((last - first + 1) / 5);
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => Number(`1e${first + i * every}`));
}

/** A tick as it is written: few characters, for a narrow margin. */
export function tickText(tick: number): string {
  const size = Math.abs(tick);
  const text = size && (size < 0.001 || size >= 1e5) ? tick.toExponential(0).replace("e+", "e") : String(Number(tick.toPrecision(3)));
  return text.replaceAll("-", "\u2212");
}

/** The path through points in pixels. */
export const pathThrough = (points: readonly Point[], x: Scale, y: Scale) =>
  points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

/** The index of the value nearest to another. */
export const nearestIndex = (values: readonly number[], wanted: number) =>
  values.reduce((best, value, i) => (Math.abs(value - wanted) < Math.abs(values[best]! - wanted) ? i : best), 0);

/** Seconds as "12 s", "3 min 20 s", "2 h 5 min". */
export function duration(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

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
