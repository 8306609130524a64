/** Saves a matrix of weights or its lines as a standalone SVG file, dark on white. */
import { at, type Grid, mayAttend } from "../../tensors/grid";
import { magnitude } from "../../tensors/tensor";
import { arcLine, largestArcs } from "./lines";

export interface Drawing {
  svg: string;
  width: number;
  height: number;
}

export interface FigureData {
  title: string;
  caption: string; // stored as the description of the file
  grid: Grid;
  mask: Grid | null;
  rows: string[];
  cols: string[];
  /** The values are differences, of either sign. */
  difference?: boolean;
}

/** Colours of weights, and of differences that are positive or negative: the light theme's. */
const STRONG = "#0b6a54", POSITIVE = "#d9730d", NEGATIVE = "#2166c4";

const colourOf = (value: number, difference: boolean | undefined) => (!difference ? STRONG : value < 0 ? NEGATIVE : POSITIVE);

/** Letters that a label shows. */
const LETTERS = 24;

const TOP = 40;

/** Escapes text for XML; characters that XML 1.0 does not allow become U+FFFD. */
export function escapeXml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff\p{Surrogate}]/gu, "\ufffd")
    .replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** A label, vertically centred at the position that `attributes` set. */
function label(text: string, attributes: string): string {
  const letters = [...text];
  const short = letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : text;
  return `<text dominant-baseline="central" ${attributes}>${escapeXml(short)}</text>`;
}

/** Estimated width of the longest label. */
const roomFor = (labels: string[], size: number) =>
  Math.ceil(Math.max(2, ...labels.map((text) => Math.min(LETTERS, [...text].length))) * size * 0.56) + 8;

function frame({ title, caption }: FigureData, inner: number, height: number, body: string): Drawing {
  const width = Math.max(320, inner);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
    + `font-family="Palatino, 'TeX Gyre Pagella', 'Book Antiqua', Georgia, serif" font-size="12" fill="#1b1e23">`
    + `<title>${escapeXml(title)}</title><desc>${escapeXml(caption)}</desc>`
    + `<defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`
    + `<rect width="1" height="5" fill="#c4c8ce"/></pattern></defs><rect width="${width}" height="${height}" fill="#fff"/>`
    + `<text x="8" y="18" font-size="14" font-weight="600">${escapeXml(title)}</text>${body}</svg>`;
  return { svg, width, height };
}

export function drawMatrix(figureData: FigureData): Drawing {
  const { grid, mask, rows, cols, difference } = figureData;
  const cell = Math.max(6, Math.min(24, Math.floor(720 / Math.max(grid.rows, grid.cols, 1))));
  const size = Math.max(5, Math.min(12, cell - 2));
  const left = roomFor(rows, size);
  const top = TOP - 10 + roomFor(cols, size);
  const limit = magnitude(grid.data) || 1;
  const [width, height] = [grid.cols * cell, grid.rows * cell];
  let cells = "";
  for (let row = 0; row < grid.rows; row++) {
    for (let col = 0; col < grid.cols; col++) {
      const value = at(grid, row, col);
      const fill = mayAttend(mask, row, col)
        ? `fill="${colourOf(value, difference)}" fill-opacity="${((Math.abs(value) / limit) ** 0.8).toFixed(3)}"`
        : `fill="url(#masked)"`;
      cells += `<rect x="${col * cell}" y="${row * cell}" width="${cell}" height="${cell}" ${fill}/>`;
    }
  }
  const labels = rows.map((text, row) => label(text, `x="-4" y="${(row + 0.5) * cell}" text-anchor="end"`))
    .concat(cols.map((text, col) => label(text, `transform="translate(${(col + 0.5) * cell} -4) rotate(-90)"`)));
  const body = `<g transform="translate(${left} ${top})" font-size="${size}">${cells}${labels.join("")}`
    + `<rect width="${width}" height="${height}" fill="none" stroke="#9aa0a8" stroke-width="0.7"/></g>`;
  return frame(figureData, left + width + 12, top + height + 12, body);
}

export function drawArcs(figureData: FigureData): Drawing {
  const { grid, mask, rows, cols, difference } = figureData;
  const step = 19;
  const width = 240;
  const left = roomFor(rows, 12);
  const limit = magnitude(grid.data) || 1;
  const lines = largestArcs(grid, mask).arcs.map((arc) => {
    const attributes = Object.entries(arcLine(arc, width, step, limit)).map(([name, value]) => `${name}="${value}"`);
    return `<path fill="none" stroke="${colourOf(arc.weight, difference)}" ${attributes.join(" ")}/>`;
  });
  const labels = rows.map((text, i) => label(text, `x="-5" y="${(i + 0.5) * step}" text-anchor="end"`))
    .concat(cols.map((text, i) => label(text, `x="${width + 5}" y="${(i + 0.5) * step}"`)));
  const body = `<g transform="translate(${left} ${TOP})">${lines.join("")}${labels.join("")}</g>`;
  return frame(figureData, left + width + roomFor(cols, 12), TOP + Math.max(rows.length, cols.length) * step + 8, body);
}

/** Downloads a drawing. */
export function saveDrawing({ svg }: Drawing, name: string) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  Object.assign(document.createElement("a"), { href: url, download: `${name}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // after the download has started
}
