/** Comprehensiveness and sufficiency of the ranking, each with the 95% interval of random rankings, on one scale. */
import { number } from "../../tensors/format";
import { Terms } from "../../views/Terms";
import type { Attribution, Faithfulness as Score } from "../../types";

const [LEFT, RIGHT] = [8, 512];

export function Faithfulness({ attribution }: { attribution: Attribution }) {
  const { comprehensiveness, sufficiency, n_random } = attribution;
  const values = [comprehensiveness, sufficiency].flatMap(({ value, random_low, random_high }) => [value, random_low, random_high]);
  const low = Math.min(0, ...values);
  const span = Math.max(1e-9, ...values) - low;
  const x = (value: number): number => LEFT + ((value - low) / span) * (RIGHT - LEFT);
  return (
    <div class="faithfulness">
      <Row name="Comprehensiveness: top words masked" better="right" score={comprehensiveness} x={x} />
      <Row name="Sufficiency: only top words kept" better="left" score={sufficiency} x={x} />
      <p class="note">
        The drop of the quantity, averaged over the top 10, 20 and 50% of words. Grey: mean and 95% interval of {n_random} random
        rankings.
      </p>
    </div>
  );
}

function Row({ name, better, score, x }: { name: string; better: "left" | "right"; score: Score; x: (v: number) => number }) {
  const { value, random_mean, random_low, random_high, beats_random } = score;
  const leans = better === "right" ? value > random_mean : value < random_mean;
  const verdict = beats_random ? "better than random" : leans ? "not significantly better than random" : "not better than random";
  return (
    <figure data-beats={beats_random}>
      <figcaption><Terms>{name}</Terms> <span class="note">{better === "right" ? "higher" : "lower"} is better</span></figcaption>
      <svg
        class="plot" viewBox="0 0 520 44" role="img"
        aria-label={`${number(value)}; random rankings ${number(random_mean)}, 95% between ${number(random_low)} and ${number(random_high)}`}
      >
        <path class="axis" d={`M${LEFT} 22H${RIGHT}M${x(0)} 12v20`} />
        <text x={x(0)} y={42} text-anchor={anchor(x(0))}>0</text>
        <rect x={x(random_low)} y={15} width={Math.max(2, x(random_high) - x(random_low))} height={14} />
        <path class="plot-line" d={`M${x(random_mean)} 12v20`} />
        <circle cx={x(value)} cy={22} r={7} />
        <text x={x(value)} y={10} text-anchor={anchor(x(value))}>{number(value)}</text>
      </svg>
      <p>The quantity {moves(value)}; with random rankings it {moves(random_mean)}: {verdict}.</p>
    </figure>
  );
}

const moves = (fall: number): string => `${fall < 0 ? "rises" : "falls"} by ${number(Math.abs(fall))}`;

const anchor = (x: number): "start" | "middle" | "end" => (x < 40 ? "start" : x > 480 ? "end" : "middle");
