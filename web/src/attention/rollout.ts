/**
 * Where information moved: attention rollout (Abnar and Zuidema 2020, section 3). Each layer's mean weights are mixed
 * half and half with the identity, which stands for the residual connection, and the layers are multiplied. It
 * follows the mixing of positions alone, not what was mixed, and so it never says why a model answered.
 */

import { at, type Grid } from "./grid";

export function identity(size: number): Grid {
  const data = new Float64Array(size * size);
  for (let i = 0; i < size; i++) data[i * size + i] = 1;
  return { rows: size, cols: size, data };
}

export function multiply(a: Grid, b: Grid): Grid {
  if (a.cols !== b.rows) throw new RangeError(`A ${a.rows} × ${a.cols} matrix cannot multiply a ${b.rows} × ${b.cols} one.`);
  const data = new Float64Array(a.rows * b.cols);
  for (let i = 0; i < a.rows; i++) {
    for (let k = 0; k < a.cols; k++) {
      const factor = at(a, i, k);
      if (factor === 0) continue;
      for (let j = 0; j < b.cols; j++) data[i * b.cols + j]! += factor * at(b, k, j);
    }
  }
  return { rows: a.rows, cols: b.cols, data };
}

/** Half of what the weights bring from `from`, and of `own` the other half: all of it where a row attends to nothing. */
export function mixed(weights: Grid, from: Grid, own: Grid): Grid {
  const brought = multiply(weights, from);
  const data = Float64Array.from(brought.data, (value, i) => {
    const row = Math.floor(i / brought.cols);
    return (value + (isEmpty(weights, row) ? 2 : 1) * own.data[i]!) / 2;
  });
  return { rows: brought.rows, cols: brought.cols, data };
}

function isEmpty(weights: Grid, row: number): boolean {
  for (let col = 0; col < weights.cols; col++) if (at(weights, row, col) !== 0) return false;
  return true;
}

/** Self-attention alone: row t says from which input positions position t was mixed. Every row sums to 1. */
export function rollout(layers: Grid[]): Grid {
  if (layers.length === 0) throw new RangeError("Rollout needs the weights of at least one layer.");
  return layers.reduce((flow, weights) => mixed(weights, flow, flow), identity(layers[0]!.rows));
}

/**
 * A decoder that also reads an encoder: from which target inputs, and from which source inputs, position t was mixed.
 * A row of `target` and the same row of `source` together sum to 1; each block mixes half and half with its residual.
 */
export function decoderRollout(selfLayers: Grid[], crossLayers: Grid[], encoder: Grid): { target: Grid; source: Grid } {
  if (selfLayers.length === 0 || selfLayers.length !== crossLayers.length) {
    throw new RangeError("A decoder has as many self-attention as cross-attention blocks, and at least one.");
  }
  const size = selfLayers[0]!.rows;
  let target = identity(size);
  let source: Grid = { rows: size, cols: encoder.cols, data: new Float64Array(size * encoder.cols) };
  selfLayers.forEach((weights, layer) => {
    const cross = crossLayers[layer]!;
    target = mixed(weights, target, target);
    source = mixed(cross, encoder, mixed(weights, source, source));
    const own = target;
    target = { ...own, data: Float64Array.from(own.data, (value, i) => value / (isEmpty(cross, Math.floor(i / own.cols)) ? 1 : 2)) };
  });
  return { target, source };
}

/** The mean of some rows: what reached a classifier's mean pooling. */
export function meanOfRows(grid: Grid, rows: number[]): Grid {
  const data = new Float64Array(grid.cols);
  for (const row of rows) for (let col = 0; col < grid.cols; col++) data[col]! += at(grid, row, col) / rows.length;
  return { rows: 1, cols: grid.cols, data };
}
