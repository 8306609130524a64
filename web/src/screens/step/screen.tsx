/**
 * The Step screen: each operation of the forward pass with its formula, source line, values, the arithmetic of a cell,
 * and a check of the values.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { passesOf } from "../../sources/difference";
import { framed } from "../../state/frame";
import { useScreenKeys } from "../../state/keys";
import { editable, edits, gradients, route, selection, setParams, toggleEdit } from "../../state/page";
import { useValue } from "../../state/signals";
import { axisNames, nodeLocation, shapeText } from "../../tensors/format";
import { sentence } from "../../trace/descriptions";
import { describeEdit, editsOf, editText } from "../../trace/edits";
import { predictionIndex } from "../../trace/generation";
import { groupsOf, stepsOf } from "../../trace/list";
import { type Cell, PROBABILITIES } from "../../trace/stepData";
import { title } from "../../trace/steps";
import type { Manifest, TraceNode } from "../../types";
import { Terms } from "../../views/Terms";
import { stepLink } from "../../views/interaction";
import { ArithmeticView } from "./Arithmetic";
import { CodeView, Formula, From } from "./How";
import { CheckLine, StepNumbers } from "./Numbers";
import { placesOf, wholeCell } from "./places";

export function StepScreen({ trace }: { trace: Manifest }) {
  const { params } = useValue(route);
  const { head, row, col } = useValue(selection);
  const alone = useValue(framed);
  const backward = useValue(gradients);
  const steps = useMemo(() => stepsOf(trace, backward), [trace, backward]);
  const here = () => Math.max(0, steps.findIndex((one) => one.id === selection.value.node));
  const index = here();
  const step = steps[index];
  const open = params.arithmetic === "1";
  const move = (by: number) => {
    const next = steps[here() + by]; // not `index`: keys may repeat before the next render
    if (next) setParams({ node: next.id, cell: null }, { push: true });
  };
  useScreenKeys((event) => {
    const at = event.target instanceof HTMLElement ? event.target : null;
    if (at?.matches("input, select")) return false;
    const control = at?.matches("button, a, summary") ?? false;
    if (event.key === " " && !at?.matches("button, summary")) move(event.shiftKey ? -1 : 1);
    else if (event.key === "ArrowRight" && !control) move(1);
    else if (event.key === "ArrowLeft" && !control) move(-1);
    else if (event.key === "Enter" && !control) setParams({ arithmetic: route.value.params.arithmetic === "1" ? null : 1 });
    else return false;
    return true;
  });
  if (!step) return null;
  const position = trace.predictions[predictionIndex(trace, params.position)]?.position ?? 0; // position of the prediction
  const last = (axis: number) => Math.max(0, (step.axes.at(axis)?.size ?? 1) - 1); // the address may be out of range
  const difference = passesOf(trace) !== null;
  const unlike = step.stack === "head" ? "head " : ""; // that of the output is no head of attention
  const places = placesOf(trace, step, position);
  const most = (ids: number[] | null, axis: number) => (ids ? ids.length - 1 : last(axis));
  const cell = { head: Math.min(head, trace.model.n_heads - 1), row: Math.min(row ?? 0, most(places.rows, -2)), col: Math.min(col ?? 0, most(places.cols, -1)), position };
  return (
    <div class="step">
      {!alone && <StepList steps={steps} current={step.id} />}
      <article class="step-body" aria-labelledby="step-title">
        <div class="step-top">
          <p class="step-place">{step.id === PROBABILITIES ? "Output" : nodeLocation(step)}</p>
          <div class="step-move">
            <button type="button" class="quiet" disabled={index === 0} onClick={() => move(-1)}>Previous</button>
            <span class="small">{index + 1} of {steps.length}</span>
            <button type="button" class="quiet" disabled={index === steps.length - 1} onClick={() => move(1)}>Next</button>
          </div>
          <h1 id="step-title">{backward && "Gradient: "}<Terms after={unlike}>{title(step)}</Terms></h1>
          <p class="axes">{shapeText(step.axes.map((axis) => axis.size))}{" "}
            <span>{step.axes.map((axis) => axisNames(axis.name)[1]).join(" × ")}</span></p>
        </div>
        <p class="step-says"><Terms after={`${unlike} ${title(step)}`}>{sentence(step, trace)}</Terms></p>
        <div class="step-how">
          <div>
            <Formula node={step} />
            <From step={step} trace={trace} />
          </div>
          {step.source && <CodeView source={step.source} />}
        </div>
        <StepNumbers node={step} cell={cell} trace={trace} />
        <StepEdits node={step} cell={cell} trace={trace} />
        {difference
          ? <p class="note">After minus before. To recompute the numbers, show one of the two.</p>
          : <CheckLine node={step} position={position} trace={trace} />}
        {!difference && <section class="step-arithmetic">
          <button type="button" data-role="show-arithmetic" aria-expanded={open} onClick={() => setParams({ arithmetic: open ? null : 1 })}>
            {open ? "Hide the arithmetic" : "Show the arithmetic of the selected cell"}
          </button>
          {open && <ArithmeticView node={step} cell={wholeCell(cell, places)} trace={trace} />}
        </section>}
      </article>
    </div>
  );
}

export function StepList({ steps, current }: { steps: TraceNode[]; current: string }) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    const link = list.current?.querySelector<HTMLElement>("[aria-current]");
    const box = list.current;
    if (!link || !box || box.scrollHeight <= box.clientHeight) return;
    const [top, height] = [link.offsetTop - box.offsetTop, box.clientHeight];
    if (top < box.scrollTop + 40 || top > box.scrollTop + height - 60) box.scrollTop = top - height / 3;
  }, [current]);
  const groups = groupsOf(steps);
  return (
    <>
      <label class="step-pick">
        <span class="visually-hidden">Step</span>
        <select value={current} onChange={(event) => setParams({ node: event.currentTarget.value, cell: null }, { push: true })}>
          {groups.map((group, i) => (
            <optgroup key={i} label={group.name}>
              {group.steps.map((step) => <option key={step.id} value={step.id}>{title(step)}</option>)}
            </optgroup>
          ))}
        </select>
      </label>
      <nav ref={list} class="step-list" aria-label="Steps">
        {groups.map((group, i) => (
          <section key={i}>
            <h2>{group.name}</h2>
            <ol>
              {group.steps.map((step) => (
                <li key={step.id}>
                  <a {...stepLink(step)} aria-current={step.id === current ? "step" : undefined}>{title(step).replace(/\./g, "$&\u200b")}</a>
                </li>
              ))}
            </ol>
          </section>
        ))}
      </nav>
    </>
  );
}

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
