/**
 * Does the ranking of words tell the truth about the model? Two dots, each beside the band that 95% of random
 * rankings fall in. Drawn with one scale, so that the two can be compared.
 */
import { number } from "../../tensors/format";
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
      <Row name="Without the top words" better="right" score={comprehensiveness} x={x} />
      <Row name="With the top words alone" better="left" score={sufficiency} x={x} />
      <p class="note">
        The fall of the quantity, averaged over the top 10, 20 and 50% of words. Grey: what 95% of {n_random} random rankings give, with
        their mean.
      </p>
    </div>
  );
}

function Row({ name, better, score, x }: { name: string; better: "left" | "right"; score: Score; x: (v: number) => number }) {
  const { value, random_mean, random_low, random_high, beats_random } = score;
  const leans = better === "right" ? value > random_mean : value < random_mean;
  const verdict = beats_random ? "the ranking finds words that matter" : leans ? "better, but it may be chance" : "do not lean on this ranking";
  return (
    <figure data-beats={beats_random}>
      <figcaption>{name} <span class="note">further {better} is better</span></figcaption>
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
      <p>The quantity {moves(value)}, for random words {moves(random_mean)}: {verdict}.</p>
    </figure>
  );
}

const moves = (fall: number): string => `${fall < 0 ? "rises" : "falls"} by ${number(Math.abs(fall))}`;

const anchor = (x: number): "start" | "middle" | "end" => (x < 40 ? "start" : x > 480 ? "end" : "middle");
