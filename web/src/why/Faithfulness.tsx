/**
 * Does the ranking of words tell the truth about the model? Two dots, each beside the band that 95% of random
 * rankings fall in. Drawn with one scale, so that the two can be compared.
 */
import { plain } from "../decode/numbers";
import type { Attribution, Faithfulness as Score } from "../types";

const WIDTH = 520;
const LEFT = 8;
const RIGHT = WIDTH - 8;

export function FaithfulnessPlot({ attribution }: { attribution: Attribution }) {
  const { comprehensiveness: c, sufficiency: s, n_random: n } = attribution;
  const values = [0, ...[c, s].flatMap((f) => [f.value, f.random_low, f.random_high])];
  const low = Math.min(...values);
  const high = Math.max(...values, low + 1e-9);
  const x = (value: number): number => LEFT + ((value - low) / (high - low)) * (RIGHT - LEFT);
  return (
    <div class="faithfulness">
      <Row name="Erase the top words" better="further right is better" score={c} x={x} />
      <p class="faithfulness-says">{comprehensive(c)}</p>
      <Row name="Keep only the top words" better="further left is better" score={s} x={x} />
      <p class="faithfulness-says">{sufficient(s)}</p>
      <p class="faithfulness-key">
        <svg width="72" height="14" aria-hidden="true">
          <rect class="band" x="2" y="3" width="68" height="8" />
          <path class="band-mean" d="M36 1v12" />
        </svg>{" "}
        95% of {n} random rankings, and their mean
        <svg width="18" height="14" aria-hidden="true">
          <circle class="dot" cx="10" cy="7" r="5" />
        </svg>{" "}
        this ranking. The fall of the quantity above, averaged over the top 10, 20 and 50% of words.
      </p>
    </div>
  );
}

function Row({ name, better, score, x }: { name: string; better: string; score: Score; x: (v: number) => number }) {
  const { value, random_mean, random_low, random_high, beats_random } = score;
  return (
    <figure class="faithfulness-row" data-beats={beats_random}>
      <figcaption>
        {name} <span class="quiet">{better}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} 44`} role="img"
        aria-label={`${name}: ${plain(value)}; random rankings ${plain(random_mean)}, 95% between ${plain(random_low)} and ${plain(random_high)}`}
      >
        <path class="axis" d={`M${LEFT} 22H${RIGHT}`} />
        <path class="axis-zero" d={`M${x(0)} 12v20`} />
        <text class="axis-label" x={x(0)} y={42} text-anchor={anchor(x(0))}>0</text>
        <rect class="band" x={x(random_low)} y={15} width={Math.max(2, x(random_high) - x(random_low))} height={14} />
        <path class="band-mean" d={`M${x(random_mean)} 12v20`} />
        {beats_random
          ? <circle class="dot" cx={x(value)} cy={22} r={7} />
          : <path class="dot-open" d={`M${x(value)} 14l8 8-8 8-8-8z`} />}
        <text class="dot-label" x={x(value)} y={10} text-anchor={anchor(x(value))}>{plain(value)}</text>
      </svg>
    </figure>
  );
}

const moves = (fall: number): string => `${fall < 0 ? "rises" : "falls"} by ${plain(Math.abs(fall))}`;

/** Inside the band. `leans`: on the good side of the random mean. */
const chance = (leans: boolean): string =>
  leans ? "better than their mean, but random rankings do as well now and then, so it may be chance." : "no better than chance, so do not lean on this ranking.";

const anchor = (x: number): "start" | "middle" | "end" => (x < 40 ? "start" : x > WIDTH - 40 ? "end" : "middle");

function comprehensive({ value, random_mean, beats_random }: Score): string {
  return beats_random
    ? `Without the words ranked highest the quantity ${moves(value)}; without as many random words it ${moves(random_mean)}: the ranking finds words that matter.`
    : `Without the words ranked highest the quantity ${moves(value)}; without as many random words it ${moves(random_mean)}: ${chance(value > random_mean)}`;
}

function sufficient({ value, random_mean, beats_random }: Score): string {
  return beats_random
    ? `With nothing but them it ${moves(value)}; with as many random words it ${moves(random_mean)}: these words alone carry more of the answer than chance would.`
    : `With nothing but them it ${moves(value)}; with as many random words it ${moves(random_mean)}: ${chance(value < random_mean)}`;
}
