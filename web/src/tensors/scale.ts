/** Scales, ticks and paths of charts. */
export type Point = readonly [x: number, y: number];

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
export interface Scale {
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
  const unit = log ? Math.log10 : (value: number) => value;
  const [a, b] = [unit(low), unit(high)];
  const scale = (value: number) => from + ((unit(value) - a) / (b - a)) * (to - from);
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

/** The index of the value nearest to another, in a list that rises. */
export function nearestIndex(values: readonly number[], wanted: number): number {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - values[low - 1]! <= values[low]! - wanted ? low - 1 : low;
}

/** Seconds as "12 s", "3 min 20 s", "2 h 5 min". */
export function duration(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
