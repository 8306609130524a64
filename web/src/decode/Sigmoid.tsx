/** The logistic curve, with the text's logit on it: where a logit becomes a probability. Two classes only. */
import { percent, plain } from "./numbers";

interface Props {
  logit: number;
  temperature: number; // above 0
  /** The class that a large logit speaks for, and the other. */
  names: [string, string];
}

const WIDTH = 420;
const HEIGHT = 190;
const PAD = { left: 40, right: 14, top: 14, bottom: 34 };

export function Sigmoid({ logit, temperature, names }: Props) {
  const reach = Math.max(4, Math.ceil(Math.abs(logit) * 1.25));
  const x = (z: number): number => PAD.left + ((z + reach) / (2 * reach)) * (WIDTH - PAD.left - PAD.right);
  const y = (p: number): number => PAD.top + (1 - p) * (HEIGHT - PAD.top - PAD.bottom);
  const sigmoid = (z: number): number => 1 / (1 + Math.exp(-z / temperature));
  const curve = Array.from({ length: 121 }, (_, i) => -reach + (i / 120) * 2 * reach);
  const p = sigmoid(logit);
  return (
    <svg class="sigmoid" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img"
      aria-label={`A logit of ${plain(logit, 3)} is a probability of ${percent(p)} for ${names[0]}`}>
      {[0, 0.5, 1].map((level) => (
        <g key={level}>
          <path class="axis" d={`M${PAD.left} ${y(level)}H${WIDTH - PAD.right}`} />
          <text class="axis-label" x={PAD.left - 6} y={y(level) + 4} text-anchor="end">{100 * level}%</text>
        </g>
      ))}
      {[-reach, 0, reach].map((z) => (
        <text key={z} class="axis-label" x={x(z)} y={HEIGHT - 18} text-anchor={z < 0 ? "start" : z > 0 ? "end" : "middle"}>
          {plain(z, 0)}
        </text>
      ))}
      <text class="axis-label" x={x(-reach)} y={HEIGHT - 3}>← {names[1]}</text>
      <text class="axis-label" x={x(reach)} y={HEIGHT - 3} text-anchor="end">{names[0]} →</text>
      <path class="sigmoid-curve" d={`M${curve.map((z) => `${x(z).toFixed(1)} ${y(sigmoid(z)).toFixed(1)}`).join("L")}`} />
      <path class="sigmoid-drop" d={`M${x(logit)} ${y(0)}V${y(p)}H${PAD.left}`} />
      <circle class="dot" cx={x(logit)} cy={y(p)} r={6} />
    </svg>
  );
}
