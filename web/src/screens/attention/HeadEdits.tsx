/** Edits of the open head: switched off, or kept from attending to the selected key. */
import { useScreenKeys } from "../../state/keys";
import { editable, edits, selection, toggleEdit } from "../../state/page";
import { useValue } from "../../state/signals";
import { type Grid, mayAttend } from "../../tensors/grid";
import { editText, headOff } from "../../trace/edits";
import type { AttentionLayer, Label } from "../../trace/heads";
import { Switch } from "../../views/EditBar";

export interface HeadEditsProps {
  layer: AttentionLayer;
  head: number;
  rows: Label[];
  cols: Label[];
  title: string;
  /** The mask of the head, with the keys that edits block. */
  mask: Grid | null;
  /** Opens the next kind of attention. */
  onNextKind: () => void;
}

export function HeadEdits({ layer, head, rows, cols, title, mask, onNextKind }: HeadEditsProps) {
  const { row, col } = useValue(selection);
  const all = useValue(edits);
  const offered = useValue(editable);
  const key = cols[col ?? 0] ? (col ?? 0) : 0;
  const scores = layer.weights.replace(/weights$/, "scores");
  const off = headOff(layer.weights, head);
  const column = editText(scores, `head:${head};key:${key}`, "=blocked");
  const cell = row === null || !rows[row] ? null : editText(scores, `head:${head};token:${row};key:${key}`, "=blocked");
  // What no query may attend to, by the mask or by edits, need not be blocked again; an edit can be taken back.
  const blocked = (queries: number[]) => mask !== null && queries.every((query) => !mayAttend(mask, query, key));
  const [made, makes] = [all.includes(column), cell !== null && all.includes(cell)];
  const noKey = !made && blocked([...rows.keys()]);
  const noCell = !makes && row !== null && blocked([row]);
  useScreenKeys((event) => {
    if (event.key === "k") onNextKind();
    else if (!offered) return false;
    else if (event.key === "x") toggleEdit(off);
    else if (event.key === "b") { if (!noKey) toggleEdit(column); }
    else return false;
    return true;
  });
  if (!offered) return null;
  return (
    <div class="edit-tools" role="group" aria-label="Edits of this head">
      <span><Switch edit={off} label={title} /> this head</span>
      <button type="button" class="quiet" aria-pressed={made} disabled={noKey} onClick={() => toggleEdit(column)} title="Key b">
        {made ? "Unblock the key " : noKey ? "Blocked: the key " : "Block the key "}<bdi>{cols[key]?.text}</bdi>
      </button>
      {cell && (
        <button type="button" class="quiet" aria-pressed={makes} disabled={noCell} onClick={() => toggleEdit(cell)}>
          {makes ? "unblock it for the query " : noCell ? "blocked for the query " : "only for the query "}<bdi>{rows[row!]?.text}</bdi>
        </button>
      )}
    </div>
  );
}
