/**
 * The Step screen: each operation of the forward pass with its formula, source line, values, the arithmetic of a cell,
 * and a check of the values.
 */
import { useMemo } from "preact/hooks";
import { passesOf } from "../../sources/difference";
import { framed } from "../../state/frame";
import { useScreenKeys } from "../../state/keys";
import { gradients, route, selection, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { axisNames, nodeLocation, shapeText } from "../../tensors/format";
import { PROBABILITIES } from "../../trace/stepData";
import { sentence } from "../../trace/descriptions";
import { stepsOf } from "../../trace/list";
import { title } from "../../trace/steps";
import { predictionIndex } from "../../trace/generation";
import type { Manifest } from "../../types";
import { Terms } from "../../views/Terms";
import { ArithmeticView } from "./Arithmetic";
import { CodeView, Formula, From } from "./How";
import { placesOf, wholeCell } from "./places";
import { StepEdits } from "./StepEdits";
import { CheckLine, StepNumbers } from "./Numbers";
import { StepList } from "./StepList";

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
