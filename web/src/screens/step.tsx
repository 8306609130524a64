/**
 * The Step screen: every operation of the forward pass in order, each with its formula, its source line, its
 * numbers, the arithmetic of a cell, and the same numbers recomputed here.
 */
import { useEffect, useRef } from "preact/hooks";
import { ArithmeticView } from "../components/ArithmeticView";
import { CheckLine } from "../components/CheckLine";
import { CodeView } from "../components/CodeView";
import { Formula } from "../components/Formula";
import { StepNumbers } from "../components/StepNumbers";
import { linkTo } from "../flow/Box";
import { axisNames, place, shapeText } from "../format";
import { useScreenKeys } from "../keys";
import { manifest, route, selection, setParams } from "../state";
import { PROBABILITIES, stepIndex } from "../stepData";
import { groupsOf, sentence, stepsOf, title } from "../steps";
import type { Manifest, TraceNode } from "../types";

export function StepScreen() {
  const trace = manifest.value;
  const steps = trace ? stepsOf(trace) : [];
  const here = () => Math.max(0, steps.findIndex((one) => one.id === selection.value.node));
  const index = here();
  const step = steps[index];
  const open = route.value.params.arithmetic === "1";
  const move = (by: number) => {
    const next = steps[here() + by]; // of now: keys may come quicker than the screen is drawn
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
  if (!trace || !step) return null;
  const { head, row, col } = selection.value;
  const position = trace.predictions[stepIndex(trace, route.value.params.position)]?.position ?? 0; // whose next token is looked at
  const last = (axis: number) => Math.max(0, (step.axes.at(axis)?.size ?? 1) - 1); // the address may point beyond
  const cell = { head: Math.min(head, trace.model.n_heads - 1), row: Math.min(row ?? 0, last(-2)), col: Math.min(col ?? 0, last(-1)), position };
  return (
    <div class="step">
      <StepList steps={steps} current={step.id} />
      <article class="step-body" aria-labelledby="step-title">
        <div class="step-top">
          <p class="step-place">{step.id === PROBABILITIES ? "Output" : place(step)}</p>
          <div class="step-move">
            <button type="button" class="quiet" disabled={index === 0} onClick={() => move(-1)}>Before</button>
            <span class="small">{index + 1} of {steps.length}</span>
            <button type="button" class="quiet" disabled={index === steps.length - 1} onClick={() => move(1)}>Next</button>
          </div>
          <h1 id="step-title">{title(step)}</h1>
          <p class="axes">{shapeText(step.axes.map((axis) => axis.size))}{" "}
            <span>{step.axes.map((axis) => axisNames(axis.name)[1]).join(" × ")}</span></p>
        </div>
        <p class="step-says">{sentence(step, trace)}</p>
        <div class="step-how">
          <div>
            <Formula node={step} model={trace.model} />
            <From step={step} trace={trace} />
          </div>
          {step.source && <CodeView source={step.source} />}
        </div>
        <StepNumbers node={step} cell={cell} />
        <CheckLine node={step} position={position} />
        <section class="step-arithmetic">
          <button type="button" data-role="show-arithmetic" aria-expanded={open} onClick={() => setParams({ arithmetic: open ? null : 1 })}>
            {open ? "Hide the arithmetic" : "Show the arithmetic of the chosen cell"}
          </button>
          {open && <ArithmeticView node={step} cell={cell} />}
        </section>
      </article>
    </div>
  );
}

/** What the step is computed from. */
function From({ step, trace }: { step: TraceNode; trace: Manifest }) {
  const inputs = trace.nodes.filter((one) => step.inputs.includes(one.id));
  return (
    <dl class="step-from">
      {inputs.length > 0 && (
        <div><dt>From</dt><dd>{inputs.map((input, i) => <span key={input.id}>{i > 0 && ", "}<a {...linkTo(input)}>{title(input)}</a></span>)}</dd></div>
      )}
      {Object.entries(step.params).map(([role, id]) => (
        <div key={role}><dt>{role === "bias" ? "Bias" : "Weight"}</dt><dd><code>{id}</code> {shapeText(trace.params[id]?.axes.map((axis) => axis.size) ?? [])}</dd></div>
      ))}
    </dl>
  );
}

function StepList({ steps, current }: { steps: TraceNode[]; current: string }) {
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
                  <a {...linkTo(step)} aria-current={step.id === current ? "step" : undefined}>{title(step)}</a>
                </li>
              ))}
            </ol>
          </section>
        ))}
      </nav>
    </>
  );
}
