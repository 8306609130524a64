/**
 * A matrix as a small picture, one pixel per cell. Where cells share a pixel, the largest weight is drawn, or of
 * signed values the last. Masked cells are transparent, over a hatched background.
 */
import { useEffect, useRef } from "preact/hooks";
import { useValue } from "../state/signals";
import { palette } from "../state/theme";
import { shade } from "../tensors/colour";
import { type Grid, mayAttend } from "../tensors/grid";
import { magnitude } from "../tensors/tensor";

export interface ThumbProps {
  grid: Grid;
  mask: Grid | null;
  width: number; // CSS pixels
  height: number;
  scale?: "signed" | "sequential";
}

/** The height for square cells, within limits. */
export function thumbHeight(width: number, rows: number, cols: number): number {
  return width * Math.max(0.4, Math.min(1.6, rows / Math.max(1, cols)));
}

export function Thumb({ grid, mask, width, height, scale = "sequential" }: ThumbProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useValue(palette);
  const { rows, cols, data } = grid;
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context || rows * cols === 0) return;
    const wide = (canvas.current.width = Math.ceil(Math.min(cols, width * devicePixelRatio)));
    const high = (canvas.current.height = Math.ceil(Math.min(rows, height * devicePixelRatio)));
    const image = context.createImageData(wide, high);
    const limit = magnitude(data);
    const seen = new Float32Array(wide * high);
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        const value = data[row * cols + col]!;
        const pixel = Math.floor((row * high) / rows) * wide + Math.floor((col * wide) / cols);
        if (!mayAttend(mask, row, col) || (scale === "sequential" && value < seen[pixel]!)) continue;
        seen[pixel] = value;
        image.data.set([...shade(value, limit, scale, colours), 255], 4 * pixel);
      }
    }
    context.putImageData(image, 0, 0);
  }, [data, mask?.data, width, height, colours]);
  return <canvas ref={canvas} class="thumb" aria-hidden="true" style={{ width: `${width}px`, height: `${height}px` }} />;
}
