/** The numbers around the selected cell of a matrix, navigated with the arrow keys. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { useValue } from "../state/signals";
import { palette } from "../state/theme";
import { css, shade } from "../tensors/colour";
import { exact, number, visible } from "../tensors/format";
import { BLOCKED, magnitude, type TensorValue } from "../tensors/tensor";

export interface NumberGridProps {
  value: TensorValue;
  rows: number;
  cols: number;
  cell: [number, number];
  onSelect: (row: number, col: number) => void;
  mask: Uint8Array | null;
  rowLabels?: readonly string[];
  colLabels?: readonly string[];
  /** Available width in pixels. */
  room: number;
  scale: "signed" | "sequential";
  label: string;
}

const ROWS = 6;

/** First index of a window of `shown` indices with `at` near its middle. */
const first = (at: number, size: number, shown: number) => Math.max(0, Math.min(size - shown, at - Math.floor(shown / 2)));

export function NumberGrid(props: NumberGridProps) {
  const { value, rows, cols, cell, onSelect, mask, rowLabels, colLabels, room, scale, label } = props;
  const table = useRef<HTMLTableElement>(null);
  const refocus = useRef(false);
  const colours = useValue(palette);
  const limit = magnitude(value.data);
  const shownRows = Math.min(rows, ROWS);
  const shownCols = Math.min(cols, Math.max(2, Math.floor((room - 110) / 78)));
  const top = first(cell[0], rows, shownRows);
  const left = first(cell[1], cols, shownCols);
  useLayoutEffect(() => {
    if (!refocus.current) return;
    refocus.current = false;
    table.current?.querySelector<HTMLElement>("td[tabindex='0']")?.focus();
  });
  const onKeyDown = (event: KeyboardEvent) => {
    let [row, col] = cell;
    if (event.key === "ArrowDown") row++;
    else if (event.key === "ArrowUp") row--;
    else if (event.key === "ArrowRight") col++;
    else if (event.key === "ArrowLeft") col--;
    else if (event.key === "PageDown") row += ROWS;
    else if (event.key === "PageUp") row -= ROWS;
    else if (event.key === "Home") col = 0;
    else if (event.key === "End") col = cols - 1;
    else return;
    event.preventDefault();
    event.stopPropagation();
    refocus.current = true;
    onSelect(Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(cols - 1, col)));
  };
  const integers = value.dtype === "i32" || value.dtype === "u8";
  return (
    <div class="numbers">
      <table ref={table} role="grid" aria-label={`${label}: numbers`} aria-rowcount={rows} aria-colcount={cols} onKeyDown={onKeyDown}>
        <thead>
          <tr>
            <td />
            {Array.from({ length: shownCols }, (_, c) => (
              <th key={c} scope="col"><bdi>{colLabels ? visible(colLabels[left + c]) : left + c}</bdi></th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: shownRows }, (_, r) => (
            <tr key={r} aria-rowindex={top + r + 1}>
              {rows > 1 || rowLabels
                ? <th scope="row"><bdi>{rowLabels ? visible(rowLabels[top + r]) : top + r}</bdi></th>
                : <td class="numbers-none" />}
              {Array.from({ length: shownCols }, (_, c) => {
                const [row, col] = [top + r, left + c];
                const at = row * cols + col;
                const x = value.data[at] ?? NaN;
                const masked = mask?.[at] === 0;
                const off = masked || x < -BLOCKED;
                const chosen = row === cell[0] && col === cell[1];
                return (
                  <td
                    key={c} data-row={row} data-col={col} data-value={exact(x)} aria-colindex={col + 1}
                    aria-selected={chosen} tabIndex={chosen ? 0 : -1} class={off ? "masked" : undefined}
                    style={off || integers ? undefined : { boxShadow: `inset 0 -3px ${css(shade(x, limit, scale, colours))}` }}
                    onClick={() => {
                      refocus.current = true;
                      onSelect(row, col);
                    }}
                  >
                    {masked ? "masked" : integers ? x : number(x)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {(shownRows < rows || shownCols < cols) && <p class="numbers-more">{`${rows} × ${cols} in total; the arrow keys move the window.`}</p>}
    </div>
  );
}
