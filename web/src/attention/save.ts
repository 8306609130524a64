/** Writes a drawing to a file of the reader's choice, as SVG or as a PNG of three pixels a point. */

import type { Drawing } from "./drawing";

export async function saveDrawing(drawing: Drawing, name: string, format: "svg" | "png"): Promise<void> {
  const svg = new Blob([drawing.svg], { type: "image/svg+xml" });
  offer(format === "svg" ? svg : await raster(drawing), `${name}.${format}`);
}

/** The browser draws the SVG itself; a data URL keeps the canvas readable where a page has no origin of its own. */
async function raster(drawing: Drawing): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing.svg)}`;
  await image.decode();
  const scale = Math.min(3, 8192 / Math.max(drawing.width, drawing.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(drawing.width * scale);
  canvas.height = Math.round(drawing.height * scale);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser has no canvas to draw a PNG on; save the SVG.");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large for a PNG; save the SVG."))), "image/png"));
}

function offer(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // the download has begun by then
}
