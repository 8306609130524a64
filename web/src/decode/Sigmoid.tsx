/** The logistic curve, with the text's logit on it: where a logit becomes a probability. Two classes only. */
import { number, percent, visible } from "../format";

interface Props {
  logit: number;
  temperature: number; // above 0
  /** The class that a large logit speaks for, and the other. */
  names: [string, string];
}

const [LEFT, RIGHT, TOP, BOTTOM] = [40, 406, 14, 156];

export function Sigmoid({ logit, temperature, names: [high, low] }: Props) {
  const reach = Math.max(4, Math.ceil(Math.abs(logit) * 1.25));
  const x = (z: number): number => LEFT + ((z + reach) / (2 * reach)) * (RIGHT - LEFT);
  const y = (p: number): number => BOTTOM - p * (BOTTOM - TOP);
  const sigmoid = (z: number): number => 1 / (1 + Math.exp(-z / temperature));
  const curve = Array.from({ length: 121 }, (_, i) => (i / 60 - 1) * reach);
  const p = sigmoid(logit);
  return (
    <svg class="plot" viewBox="0 0 420 190" role="img" aria-label={`A logit of ${number(logit)} is a probability of ${percent(p)} for ${high}`}>
      {[0, 0.5, 1].map((level) => (
        <g key={level}>
          <path class="axis" d={`M${LEFT} ${y(level)}H${RIGHT}`} />
          <text x={LEFT - 6} y={y(level) + 4} text-anchor="end">{100 * level}%</text>
        </g>
      ))}
      <text x={LEFT} y={173}>−{reach}</text>
      <text x={x(0)} y={173} text-anchor="middle">0</text>
      <text x={RIGHT} y={173} text-anchor="end">{reach}</text>
      <text x={LEFT} y={187}>← {visible(low)}</text>
      <text x={RIGHT} y={187} text-anchor="end">{visible(high)} →</text>
      <path class="plot-line" d={`M${curve.map((z) => `${x(z).toFixed(1)} ${y(sigmoid(z)).toFixed(1)}`).join("L")}`} />
      <path class="plot-drop" d={`M${x(logit)} ${y(0)}V${y(p)}H${LEFT}`} />
      <circle cx={x(logit)} cy={y(p)} r={6} />
    </svg>
  );
}
