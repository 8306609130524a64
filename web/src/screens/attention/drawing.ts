/**
 * A matrix of weights or its lines as a standalone SVG drawing for a paper or a slide: always dark on white, text as
 * text, masked cells hatched; and a file of it for the reader.
 */
import { at, type Grid, mayAttend } from "../../tensors/grid";
import { magnitude } from "../../tensors/tensor";
import { arcLine, heaviest } from "./lines";

export interface Drawing {
  svg: string;
  width: number;
  height: number;
}

export interface Drawn {
  title: string;
  caption: string; // of which model: kept in the file as its description
  grid: Grid;
  mask: Grid | null;
  rows: string[];
  cols: string[];
}

const TOP = 40;

/** Text that XML cannot mistake for markup; characters that XML 1.0 has no way to write become U+FFFD. */
export function escapeXml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff\p{Surrogate}]/gu, "\ufffd")
    .replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** `attributes` place it; the middle of the line is where it is placed. */
function label(text: string, attributes: string): string {
  const letters = [...text];
  const short = letters.length > 16 ? `${letters.slice(0, 15).join("")}…` : text;
  return `<text dominant-baseline="central" ${attributes}>${escapeXml(short)}</text>`;
}

/** Room for the longest label, at about half an em a letter. */
const roomFor = (labels: string[], size: number) =>
  Math.ceil(Math.max(2, ...labels.map((text) => Math.min(16, [...text].length))) * size * 0.56) + 8;

function frame({ title, caption }: Drawn, inner: number, height: number, body: string): Drawing {
  const width = Math.max(320, inner);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
    + `font-family="Palatino, 'TeX Gyre Pagella', 'Book Antiqua', Georgia, serif" font-size="12" fill="#1b1e23">`
    + `<title>${escapeXml(title)}</title><desc>${escapeXml(caption)}</desc>`
    + `<defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`
    + `<rect width="1" height="5" fill="#c4c8ce"/></pattern></defs><rect width="${width}" height="${height}" fill="#fff"/>`
    + `<text x="8" y="18" font-size="14" font-weight="600">${escapeXml(title)}</text>${body}</svg>`;
  return { svg, width, height };
}

export function drawMatrix(drawn: Drawn): Drawing {
  const { grid, mask, rows, cols } = drawn;
  const cell = Math.max(6, Math.min(24, Math.floor(720 / Math.max(grid.rows, grid.cols, 1))));
  const size = Math.max(5, Math.min(12, cell - 2));
  const left = roomFor(rows, size);
  const top = TOP - 10 + roomFor(cols, size);
  const limit = magnitude(grid.data) || 1;
  const [width, height] = [grid.cols * cell, grid.rows * cell];
  let cells = "";
  for (let row = 0; row < grid.rows; row++) {
    for (let col = 0; col < grid.cols; col++) {
      const fill = mayAttend(mask, row, col)
        ? `fill="#0b6a54" fill-opacity="${((at(grid, row, col) / limit) ** 0.8).toFixed(3)}"`
        : `fill="url(#masked)"`;
      cells += `<rect x="${col * cell}" y="${row * cell}" width="${cell}" height="${cell}" ${fill}/>`;
    }
  }
  const labels = rows.map((text, row) => label(text, `x="-4" y="${(row + 0.5) * cell}" text-anchor="end"`))
    .concat(cols.map((text, col) => label(text, `transform="translate(${(col + 0.5) * cell} -4) rotate(-90)"`)));
  const body = `<g transform="translate(${left} ${top})" font-size="${size}">${cells}${labels.join("")}`
    + `<rect width="${width}" height="${height}" fill="none" stroke="#9aa0a8" stroke-width="0.7"/></g>`;
  return frame(drawn, left + width + 12, top + height + 12, body);
}

export function drawArcs(drawn: Drawn): Drawing {
  const { grid, mask, rows, cols } = drawn;
  const step = 19;
  const width = 240;
  const left = roomFor(rows, 12);
  const limit = magnitude(grid.data) || 1;
  const lines = heaviest(grid, mask).arcs.map((arc) => {
    const attributes = Object.entries(arcLine(arc, width, step, limit)).map(([name, value]) => `${name}="${value}"`);
    return `<path fill="none" stroke="#0b6a54" ${attributes.join(" ")}/>`;
  });
  const labels = rows.map((text, i) => label(text, `x="-5" y="${(i + 0.5) * step}" text-anchor="end"`))
    .concat(cols.map((text, i) => label(text, `x="${width + 5}" y="${(i + 0.5) * step}"`)));
  const body = `<g transform="translate(${left} ${TOP})">${lines.join("")}${labels.join("")}</g>`;
  return frame(drawn, left + width + roomFor(cols, 12), TOP + Math.max(rows.length, cols.length) * step + 8, body);
}

/** Writes a drawing to a file of the reader's choice, as SVG or as a PNG of three pixels a point. */
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
