/**
 * Attention rollout (Abnar and Zuidema 2020, section 3): the mean weights of each layer are averaged with the identity
 * for the residual connection, and the layers are multiplied. tests/helpers/attention_rollout.py computes the
 * same in Python; a saved page needs it here. A browser test compares the two.
 */
import { at, fill, type Grid } from "./grid";

/** The mean of weights · `from` and of `own`; only `own` in rows without weights. */
function mixed(weights: Grid, from: Grid | null, own: Grid): Grid {
  const data = new Float64Array(own.rows * own.cols);
  for (let row = 0; row < own.rows; row++) {
    let kept = 1;
    for (let key = 0; key < weights.cols; key++) {
      const share = at(weights, row, key) / 2;
      if (share === 0) continue;
      kept = 0.5;
      for (let col = 0; from && col < own.cols; col++) data[row * own.cols + col]! += share * at(from, key, col);
    }
    for (let col = 0; col < own.cols; col++) data[row * own.cols + col]! += kept * at(own, row, col);
  }
  return { ...own, data };
}

const identity = (size: number) => fill(size, size, (row, col) => Number(row === col));

/** Rollout of self-attention: row t has the weights of the input positions in position t. Every row sums to 1. */
export function rollout(layers: Grid[]): Grid {
  return layers.reduce((flow, weights) => mixed(weights, flow, flow), identity(layers[0]!.rows));
}

/**
 * Rollout of a decoder with cross-attention, to the target and to the source inputs. Row t of `target` and of `source`
 * together sum to 1.
 */
export function decoderRollout(selfLayers: Grid[], crossLayers: Grid[], encoder: Grid): { target: Grid; source: Grid } {
  const size = selfLayers[0]!.rows;
  let target = identity(size);
  let source = fill(size, encoder.cols, () => 0);
  selfLayers.forEach((weights, layer) => {
    const cross = crossLayers[layer]!;
    source = mixed(cross, encoder, mixed(weights, source, source));
    target = mixed(cross, null, mixed(weights, target, target)); // cross-attention reads only the source
  });
  return { target, source };
}

/** The mean of some rows: the rollout to mean pooling. */
export function meanOfRows(grid: Grid, rows: number[]): Grid {
  return fill(1, grid.cols, (_, col) => rows.reduce((sum, row) => sum + at(grid, row, col), 0) / rows.length);
}
