/**
 * Which source words a target word was aligned with, read from cross-attention. Row t of cross-attention is computed
 * where token t is the decoder's INPUT and token t + 1 is being predicted; the alignment of token t is read in its own
 * row (Shift-Att, Chen et al. 2020, arXiv 2004.14837). They found it better than the row that predicted it in six
 * layers; in a model of few layers the other reading can be the clearer one, so both are offered.
 */

import { at, type Grid } from "./grid";

export interface Alignment {
  /** Target positions, one for each row of `weights`. */
  tokens: number[];
  weights: Grid;
}

/**
 * `shifted`: the row where the token is the decoder's input; otherwise the row that predicted it. Position 0 (BOS) was
 * never predicted and is left out of both, so that the two readings list the same tokens.
 */
export function alignment(cross: Grid, shifted: boolean): Alignment {
  const tokens = Array.from({ length: Math.max(0, cross.rows - 1) }, (_, i) => i + 1);
  const data = new Float64Array(tokens.length * cross.cols);
  tokens.forEach((token, i) => {
    const row = shifted ? token : token - 1;
    for (let col = 0; col < cross.cols; col++) data[i * cross.cols + col] = at(cross, row, col);
  });
  return { tokens, weights: { rows: tokens.length, cols: cross.cols, data } };
}

/** For each row the key among `keys` with the most weight; null when there is none with any. */
export function bestKeys(weights: Grid, keys: number[]): (number | null)[] {
  return Array.from({ length: weights.rows }, (_, row) => {
    let best: number | null = null;
    for (const key of keys) {
      const weight = at(weights, row, key);
      if (weight > 0 && (best === null || weight > at(weights, row, best))) best = key;
    }
    return best;
  });
}

/** The paper reads a layer of the lower half (the third of six); the same place in a decoder of `n` layers, 0-based. */
export function alignmentLayer(n: number): number {
  return Math.max(0, Math.ceil(n / 2) - 1);
}
