/**
 * One head as a small picture, one pixel a cell: the darker, the more weight, on the head's own scale. Where cells
 * must share a pixel the heaviest is seen. Masked ones are left transparent: the hatching behind shows through.
 */

import { useEffect, useRef } from "preact/hooks";
import { magnitude } from "../tensor";
import { palette, shade } from "../theme";
import { at, mayAttend, type Grid } from "./grid";

export interface HeadThumbProps {
  grid: Grid;
  mask: Grid | null;
  width: number; // CSS pixels
}

/** Square cells, within reason. */
export function thumbHeight(width: number, rows: number, cols: number): number {
  return width * Math.max(0.4, Math.min(1.6, rows / Math.max(1, cols)));
}

export function HeadThumb({ grid, mask, width }: HeadThumbProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = palette.value;
  const { rows, cols } = grid;
  const height = thumbHeight(width, rows, cols);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context || rows * cols === 0) return;
    const wide = (canvas.current.width = Math.floor(Math.min(cols, width * devicePixelRatio)));
    const high = (canvas.current.height = Math.floor(Math.min(rows, height * devicePixelRatio)));
    const image = context.createImageData(wide, high);
    const most = magnitude(grid.data);
    const seen = new Float32Array(wide * high);
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        const weight = at(grid, row, col);
        const pixel = Math.floor((row * high) / rows) * wide + Math.floor((col * wide) / cols);
        if (!mayAttend(mask, row, col) || weight < seen[pixel]!) continue;
        seen[pixel] = weight;
        image.data.set([...shade(weight, most, "sequential", colours), 255], 4 * pixel);
      }
    }
    context.putImageData(image, 0, 0);
  }, [grid, mask, colours]);
  return <canvas ref={canvas} class="thumb" aria-hidden="true" style={{ width: `${width}px`, height: `${height}px` }} />;
}
