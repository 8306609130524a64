/** Edits of a step: those made, and a form to change the selected number, its row, its head, or all numbers. */
import { useState } from "preact/hooks";
import { framed } from "../../state/frame";
import { editable, edits, toggleEdit } from "../../state/page";
import { useValue } from "../../state/signals";
import { axisNames } from "../../tensors/format";
import { describeEdit, editsOf, editText } from "../../trace/edits";
import type { Cell } from "../../trace/stepData";
import type { Manifest, TraceNode } from "../../types";

export interface StepEditsProps {
  node: TraceNode;
  cell: Cell;
  trace: Manifest;
}

export function StepEdits({ node, cell, trace }: StepEditsProps) {
  const made = [...new Set(editsOf(trace, node.id).map((one) => trace.edited!.edits[one.edit]!))];
  const offered = useValue(editable) && !framed.value && node.editable && node.axes.at(-1)?.name !== "vocab";
  return (
    <>
      {made.map((edit) => <p key={edit} class="note note-edited" data-role="set-by-you">Set by you: {describeEdit(edit, trace)}.</p>)}
      {offered && <EditForm node={node} cell={cell} />}
    </>
  );
}

const PARTS = [["cell", "this number"], ["row", "this row"], ["head", "this head"], ["all", "all numbers"]] as const;
type Part = (typeof PARTS)[number][0];

function EditForm({ node, cell }: Omit<StepEditsProps, "trace">) {
  const [part, setPart] = useState<Part>("cell");
  const [change, setChange] = useState("=");
  const [number, setNumber] = useState("0");
  const names = node.axes.map((axis) => axis.name);
  const slices = slicesOf(names, cell);
  const numeric = change.length === 1; // "=" or "*"
  const edit = editText(node.id, (slices[part] || slices.cell).join(";"), numeric ? `${change}${Number(number)}` : change);
  return (
    <form
      class="step-edit" aria-label="Edit"
      onSubmit={(event) => {
        event.preventDefault();
        if (!edits.value.includes(edit)) toggleEdit(edit);
      }}
    >
      <span>Change</span>
      <select aria-label="What" value={slices[part] ? part : "cell"} onChange={(event) => setPart(event.currentTarget.value as Part)}>
        {PARTS.filter(([name]) => slices[name]).map(([name, words]) => <option key={name} value={name}>{words}</option>)}
      </select>
      <select aria-label="How" value={change} onChange={(event) => setChange(event.currentTarget.value)}>
        <option value="=">to</option>
        <option value="*">times</option>
        {!names.includes("key") && <option value="=mean">to its mean over texts</option>}
        {node.site === "scores" && <option value="=blocked">to blocked</option>}
      </select>
      {numeric && <input aria-label="Number" type="number" step="any" min={-1e4} max={1e4} required value={number} onInput={(event) => setNumber(event.currentTarget.value)} />}
      <button type="submit">Apply</button>
      <code title={`${axisNames(node.axes.at(-1)!.name)[0]} ${cell.col}`}>{edit}</code>
    </form>
  );
}

/** The parts of a step by axis names: the selected cell, its row, its head, everything; false where it has none. */
function slicesOf(names: readonly string[], { head, row, col }: Cell) {
  const first = names[0] === "head" ? [`head:${head}`] : [];
  const down = names.length > first.length + 1 ? [...first, `${names.at(-2)}:${row}`] : first;
  return { cell: [...down, `${names.at(-1)}:${col}`], row: down !== first && down, head: first.length > 0 && first, all: [] };
}
