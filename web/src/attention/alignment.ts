/**
 * Which source words a target word was aligned with, read from cross-attention: in the row that predicted the word, or
 * in its own row, where it is the decoder's input (Shift-Att, Chen et al. 2020, arXiv 2004.14837).
 */

import { at, fill, type Grid } from "./grid";

/**
 * Row t is for target position t + 1: position 0 (BOS) was never predicted and is left out of both readings, so that
 * they list the same tokens.
 */
export function alignment(cross: Grid, shifted: boolean): Grid {
  return fill(Math.max(0, cross.rows - 1), cross.cols, (row, col) => at(cross, row + Number(shifted), col));
}
