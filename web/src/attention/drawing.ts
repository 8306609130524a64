/**
 * A matrix or its arcs as a standalone SVG drawing for a paper or a slide: always dark on white, text as text, masked
 * cells hatched. It returns the drawing's source and touches no page; `save.ts` writes it to a file.
 */

import { arcPath, heaviest, type ArcLayout } from "./arcLayout";
import { at, largest, mayAttend, type Grid } from "./grid";

export interface Drawing {
  svg: string;
  width: number;
  height: number;
}

export interface DrawnMatrix {
  title: string;
  caption: string;
  grid: Grid;
  mask: Grid | null;
  rows: string[];
  cols: string[];
}

const SERIF = "Palatino, 'TeX Gyre Pagella', 'Book Antiqua', Georgia, serif";
const STRONG = [11, 106, 84];
const POSITIVE = [217, 115, 13];
const NEGATIVE = [33, 102, 196];

/** Text that XML cannot mistake for markup; characters that XML 1.0 has no way to write become U+FFFD. */
export function escapeXml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd")
    .replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

function shorten(text: string): string {
  const letters = [...text];
  return letters.length > 16 ? `${letters.slice(0, 15).join("")}…` : text;
}

function colour(value: number, limit: number): string {
  const share = limit > 0 ? Math.min(1, Math.abs(value) / limit) ** 0.8 : 0;
  const end = value < 0 ? NEGATIVE : POSITIVE;
  return hex(end, share);
}

function hex(end: number[], share: number): string {
  return `#${end.map((part) => Math.round(255 + (part - 255) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** Room for the longest label, at about half an em a letter. */
function labelRoom(labels: string[], size: number): number {
  return Math.ceil(Math.max(2, ...labels.map((label) => [...shorten(label)].length)) * size * 0.56) + 8;
}

function wrap(text: string, letters: number): string[] {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines[lines.length - 1]!;
    if (line && line.length + word.length >= letters) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines;
}

function frame(drawn: DrawnMatrix, width: number, top: number, body: string, bottom: number): Drawing {
  const lines = wrap(drawn.caption, Math.max(30, Math.floor(width / 5.4)));
  const height = bottom + 14 + lines.length * 15;
  const caption = lines
    .map((line, i) => `<text x="8" y="${bottom + 18 + i * 15}" font-size="11" fill="#565c66">${escapeXml(line)}</text>`)
    .join("");
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
    + `font-family="${SERIF}" font-size="12" fill="#1b1e23"><title>${escapeXml(drawn.title)}</title>`
    + `<defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`
    + `<rect width="5" height="5" fill="#ffffff"/><rect width="1" height="5" fill="#c4c8ce"/></pattern></defs>`
    + `<rect width="${width}" height="${height}" fill="#ffffff"/>`
    + `<text x="8" y="${top - 8}" font-size="14" font-weight="600">${escapeXml(drawn.title)}</text>${body}${caption}</svg>`;
  return { svg, width, height };
}

export function drawMatrix(drawn: DrawnMatrix): Drawing {
  const { grid, mask, rows, cols } = drawn;
  const cell = Math.max(6, Math.min(24, Math.floor(720 / Math.max(grid.rows, grid.cols, 1))));
  const size = Math.max(5, Math.min(12, cell - 2));
  const left = labelRoom(rows, size);
  const top = 30 + labelRoom(cols, size);
  const limit = largest(grid);
  const signed = Array.from(grid.data).some((value) => value < 0);
  const parts: string[] = [];
  for (let row = 0; row < grid.rows; row++) {
    for (let col = 0; col < grid.cols; col++) {
      const value = at(grid, row, col);
      const [x, y] = [left + col * cell, top + row * cell];
      const seen = mayAttend(mask, row, col);
      const share = limit > 0 ? (value / limit) ** 0.8 : 0;
      const fill = !seen ? "url(#masked)" : signed ? colour(value, limit) : hex(STRONG, share);
      parts.push(`<rect x="${x}" y="${y}" width="${cell}" height="${cell}" fill="${fill}"/>`);
      if (seen && value < 0 && cell >= 10) {
        parts.push(`<rect x="${x + cell * 0.35}" y="${y + cell / 2 - 0.5}" width="${cell * 0.3}" height="1" fill="#1b1e23"/>`);
      }
    }
  }
  rows.forEach((label, row) => parts.push(
    `<text x="${left - 4}" y="${top + (row + 0.5) * cell}" font-size="${size}" text-anchor="end" dominant-baseline="central">${escapeXml(shorten(label))}</text>`));
  cols.forEach((label, col) => {
    const x = left + (col + 0.5) * cell;
    parts.push(`<text transform="translate(${x} ${top - 4}) rotate(-90)" font-size="${size}" dominant-baseline="central">${escapeXml(shorten(label))}</text>`);
  });
  parts.push(`<rect x="${left}" y="${top}" width="${grid.cols * cell}" height="${grid.rows * cell}" fill="none" stroke="#9aa0a8" stroke-width="0.7"/>`);
  return frame(drawn, Math.max(320, left + grid.cols * cell + 12), 26, parts.join(""), top + grid.rows * cell);
}

export function drawArcs(drawn: DrawnMatrix, least: number, most: number): Drawing {
  const { grid, mask, rows, cols } = drawn;
  const step = Math.max(rows.length, cols.length) > 48 ? 14 : 19;
  const [left, right] = [labelRoom(rows, 12), labelRoom(cols, 12)];
  const layout: ArcLayout = { width: 240, rowHeight: step, left: 0, right: 240 };
  const limit = largest(grid) || 1;
  const lines = heaviest(grid, mask, least, most).arcs.map((arc) => {
    const share = Math.min(1, arc.weight / limit);
    return `<path d="${arcPath(arc, layout)}" stroke-width="${(0.7 + 3.3 * share).toFixed(2)}" stroke-opacity="${(0.12 + 0.8 * share).toFixed(2)}"/>`;
  });
  const text = (label: string, i: number, x: number, anchor: string) =>
    `<text x="${x}" y="${40 + (i + 0.5) * step}" text-anchor="${anchor}" dominant-baseline="central">${escapeXml(shorten(label))}</text>`;
  const body = `<g transform="translate(${left} 40)" fill="none" stroke="#0b6a54">${lines.join("")}</g>`
    + rows.map((label, i) => text(label, i, left - 5, "end")).join("")
    + cols.map((label, i) => text(label, i, left + 245, "start")).join("");
  return frame(drawn, Math.max(320, left + 240 + right), 26, body, 40 + Math.max(rows.length, cols.length) * step);
}
