/**
 * Where information moved: attention rollout (Abnar and Zuidema 2020, section 3). Each layer's mean weights are mixed
 * half and half with the identity, which stands for the residual connection, and the layers are multiplied. It
 * follows the mixing of positions alone, not what was mixed, and so it never says why a model answered. Python computes
 * the same for those who have no page (explain/attribution/attention_rollout.py); a saved page has no Python, and the
 * weights are in it. A test of the page in a browser compares the two.
 */
import { at, fill, type Grid } from "./grid";

/** Half of what the weights bring from `from`, and of `own` the other half: all of it where a row attends to nothing. */
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

/** Self-attention alone: row t says from which input positions position t was mixed. Every row sums to 1. */
export function rollout(layers: Grid[]): Grid {
  return layers.reduce((flow, weights) => mixed(weights, flow, flow), identity(layers[0]!.rows));
}

/**
 * A decoder that also reads an encoder: from which target inputs, and from which source inputs, position t was mixed.
 * A row of `target` and the same row of `source` together sum to 1; each block mixes half and half with its residual.
 */
export function decoderRollout(selfLayers: Grid[], crossLayers: Grid[], encoder: Grid): { target: Grid; source: Grid } {
  const size = selfLayers[0]!.rows;
  let target = identity(size);
  let source = fill(size, encoder.cols, () => 0);
  selfLayers.forEach((weights, layer) => {
    const cross = crossLayers[layer]!;
    source = mixed(cross, encoder, mixed(weights, source, source));
    target = mixed(cross, null, mixed(weights, target, target)); // cross-attention brings nothing from the target
  });
  return { target, source };
}

/** The mean of some rows: what reached a classifier's mean pooling. */
export function meanOfRows(grid: Grid, rows: number[]): Grid {
  return fill(1, grid.cols, (_, col) => rows.reduce((sum, row) => sum + at(grid, row, col), 0) / rows.length);
}
