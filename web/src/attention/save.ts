/** Writes a drawing to a file of the reader's choice, as SVG or as a PNG of three pixels a point. */

import type { Drawing } from "./drawing";

export async function saveDrawing(drawing: Drawing, name: string, format: "svg" | "png"): Promise<void> {
  const svg = new Blob([drawing.svg], { type: "image/svg+xml" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(format === "svg" ? svg : await raster(drawing));
  link.download = `${name}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // the download has begun by then
}

/** The browser draws the SVG itself; a data URL keeps the canvas readable where a page has no origin of its own. */
async function raster({ svg, width, height }: Drawing): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const scale = Math.min(3, 8192 / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve));
  if (!blob) throw new Error("This browser cannot make a PNG of it; save the SVG.");
  return blob;
}
