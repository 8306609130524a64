/**
 * One head as a small picture, one pixel a cell: the darker, the more weight, on the head's own scale. Masked cells
 * are left transparent, so that the hatching behind the canvas shows through.
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
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context || grid.rows === 0 || grid.cols === 0) return;
    canvas.current.width = grid.cols;
    canvas.current.height = grid.rows;
    const image = context.createImageData(grid.cols, grid.rows);
    const most = magnitude(grid.data);
    for (let row = 0; row < grid.rows; row++) {
      for (let col = 0; col < grid.cols; col++) {
        if (!mayAttend(mask, row, col)) continue;
        image.data.set([...shade(at(grid, row, col), most, "sequential", colours), 255], 4 * (row * grid.cols + col));
      }
    }
    context.putImageData(image, 0, 0);
  }, [grid, mask, colours]);
  const height = thumbHeight(width, grid.rows, grid.cols);
  const smooth = grid.cols > width || grid.rows > height;
  return (
    <canvas
      ref={canvas} class={smooth ? "thumb thumb-smooth" : "thumb"} aria-hidden="true"
      style={{ width: `${width}px`, height: `${height}px` }}
    />
  );
}
