/** A few lines between 0 and 1 over ordered stops, each named at its end and drawn with its own dashes. */

export interface Line {
  label: string;
  values: (number | null)[];
}

export interface LinesProps {
  lines: Line[];
  ticks: string[];
  marked: number;
  label: string;
}

const HEIGHT = 120;
const LEFT = 30;
const RIGHT = 130;
const WIDTH = 640;
const DASHES = ["", "7 4", "2 3"];

export function Lines({ lines, ticks, marked, label }: LinesProps) {
  const x = (i: number) => LEFT + (ticks.length > 1 ? i / (ticks.length - 1) : 0) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => 10 + (1 - value) * (HEIGHT - 20);
  const ends = spread(lines.map((line) => {
    const last = [...line.values].reverse().find((value) => value !== null);
    return last === undefined || last === null ? null : y(last);
  }));
  return (
    <figure class="lines">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${label}: ${spoken(lines, ticks)}`}>
        {[0, 0.5, 1].map((value) => (
          <g key={value}>
            <line x1={LEFT} x2={WIDTH - RIGHT} y1={y(value)} y2={y(value)} class="lines-rule" />
            <text x={LEFT - 6} y={y(value)} text-anchor="end" dominant-baseline="central">{value}</text>
          </g>
        ))}
        <line x1={x(marked)} x2={x(marked)} y1={4} y2={HEIGHT - 4} class="lines-mark" />
        {lines.map((line, i) => (
          <g key={line.label}>
            <path d={pathOf(line, x, y)} class="lines-path" stroke-dasharray={DASHES[i % DASHES.length]} />
            {line.values.map((value, j) => value !== null && <circle key={j} cx={x(j)} cy={y(value)} r={j === marked ? 3.5 : 2} />)}
            {ends[i] !== null && <text x={WIDTH - RIGHT + 10} y={ends[i]!} dominant-baseline="central">{line.label}</text>}
          </g>
        ))}
      </svg>
    </figure>
  );
}

function pathOf(line: Line, x: (i: number) => number, y: (value: number) => number): string {
  return line.values.flatMap((value, i) => (value === null ? [] : [`${x(i).toFixed(1)},${y(value).toFixed(1)}`]))
    .map((point, i) => (i === 0 ? `M${point}` : `L${point}`)).join("");
}

/** Names at least 15 apart, in the order of their lines' ends. */
function spread(ends: (number | null)[]): (number | null)[] {
  const order = ends.map((_, i) => i).filter((i) => ends[i] !== null).sort((a, b) => ends[a]! - ends[b]!);
  const out = [...ends];
  order.forEach((i, rank) => {
    const above = rank > 0 ? out[order[rank - 1]!]! : -Infinity;
    out[i] = Math.max(out[i]!, above + 15);
  });
  const over = Math.max(0, Math.max(0, ...order.map((i) => out[i]!)) - (HEIGHT - 8));
  return out.map((end) => (end === null ? null : end - over));
}

function spoken(lines: Line[], ticks: string[]): string {
  return lines
    .map(({ label, values }) => `${label} ${values.map((value, i) => (value === null ? "" : `${ticks[i]}: ${value.toFixed(2)}`)).filter(Boolean).join(", ")}`)
    .join("; ");
}
