/** The update of one number of a parameter by the last step, every number of it recomputed and compared with the optimizer's. */
import { go, route, selection, setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { subtract } from "../../sources/difference";
import { axisNames, exact, shapeText, tiny } from "../../tensors/format";
import { isGradient } from "../../trace/steps";
import { nodeOf } from "../../trace/stepData";
import type { Learned, Manifest } from "../../types";
import { Matrix } from "../../views/Matrix";
import { Table } from "../../views/Table";
import { updateLines } from "./lines";

const NAMES: Record<string, string> = { adamw: "AdamW", adam: "Adam", sgd: "SGD", muon: "Muon" };
/** Larger parameters are chosen by numbers, without their picture. */
const MOST_NUMBERS = 300_000;

export function UpdateSection({ before, after, learned }: { before: Manifest; after: Manifest; learned: Learned }) {
  const { param } = useValue(route).params;
  const { row: chosenRow, col: chosenCol } = useValue(selection);
  const groups = after.learning!.groups;
  const names = groups.flatMap(({ params }) => params).filter((name) => name in after.params && (source.live || source.peek(after.id, `${name}.before`)));
  const matrices = names.filter((name) => after.params[name]!.axes.length > 1);
  const furthest = (matrices.length ? matrices : names).sort((a, b) => (learned.moved[b] ?? 0) - (learned.moved[a] ?? 0))[0];
  const parameter = param !== undefined && names.includes(param) ? param : furthest;
  const group = groups.find(({ params }) => params.includes(parameter!));
  if (!parameter || !group) return null;
  const sizes = after.params[parameter]!.axes.map(({ size }) => size);
  const [rows, cols] = sizes.length > 1 ? [sizes[0]!, sizes[1]!] : [1, sizes[0]!];
  const [row, col] = [Math.min(chosenRow ?? 0, rows - 1), Math.min(chosenCol ?? 0, cols - 1)];
  const choose = (row: number, col: number) => setParams({ param: parameter, cell: `${row},${col}` });
  const step = learned.steps.length;
  const gradient = nodeOf(before, `${parameter}.grad`);
  return (
    <section aria-labelledby="update-title" data-role="update">
      <h2 id="update-title">The update of one number by {step === 1 ? "the step" : `step ${step}`}</h2>
      <div class="learn-choose">
        <label>Parameter{" "}
          <select data-role="parameter" value={parameter} onChange={({ currentTarget }) => setParams({ param: currentTarget.value, cell: null })}>
            {groups.map(({ optimizer, params }, i) => {
              const own = params.filter((name) => names.includes(name));
              return own.length > 0 && <optgroup key={i} label={`${NAMES[optimizer]}${groups[i]!.constants.weight_decay ? ", with weight decay" : ""}`}>{own.map((name) => <option key={name} value={name}>{name}</option>)}</optgroup>;
            })}
          </select>
        </label>
        <span class="small">{shapeText(sizes)}</span>
        {rows > 1 && <Index label="Row" value={row} size={rows} onChange={(next) => choose(next, col)} />}
        <Index label={rows > 1 ? "Column" : "Feature"} value={col} size={cols} onChange={(next) => choose(row, next)} />
        {gradient && isGradient(gradient) && <button type="button" class="link small" onClick={() => go("step", { node: gradient.id, numbers: "gradients", show: "before", cell: `${row},${col}` })}>Its gradient before learning</button>}
      </div>
      {group.optimizer !== "muon" && groups.some(({ optimizer }) => optimizer === "muon") && <p class="note" data-role="not-muon">Muon moves the matrices of the layers only: this parameter is moved by {NAMES[group.optimizer]}, with the learning rate {Number(group.constants.lr!.toPrecision(4))}.</p>}
      {rows * cols <= MOST_NUMBERS && <Change parameter={parameter} after={after} cell={[row, col]} onSelect={choose} />}
      <Lines key={parameter} {...{ after, parameter, row, col, step }} />
    </section>
  );
}

const Index = ({ label, value, size, onChange }: { label: string; value: number; size: number; onChange: (value: number) => void }) => (
  <label>{label} <input type="number" min={0} max={size - 1} value={value} onChange={({ currentTarget }) => onChange(Math.max(0, Math.min(size - 1, Number(currentTarget.value))))} /></label>
);

/** What the step changed of a parameter. */
function Change({ parameter, after, cell, onSelect }: { parameter: string; after: Manifest; cell: [number, number]; onSelect: (row: number, col: number) => void }) {
  const { value, error } = useResource(`${after.id}/${parameter}`, async () => {
    const [now, then] = await Promise.all([source.tensor(after.id, parameter), source.tensor(after.id, `${parameter}.before`)]);
    return subtract(now, then);
  });
  const axes = after.params[parameter]!.axes;
  if (error) return <p class="note">{error.message}</p>;
  return (
    <>
      <p class="note">The change of each number by the last step. Select one.</p>
      <Matrix
        node={parameter} value={value} scale="signed" label={`Change of ${parameter}`} cell={cell} onSelect={onSelect}
        rowName={axes.length > 1 ? axisNames(axes[0]!.name)[0] : undefined} colName={axisNames(axes.at(-1)!.name)[0]}
      />
    </>
  );
}

function Lines({ after, parameter, row, col, step }: { after: Manifest; parameter: string; row: number; col: number; step: number }) {
  const group = after.learning!.groups.find(({ params }) => params.includes(parameter))!;
  const { value, error, stale } = useResource(`${after.id}/${parameter}/${row},${col}`,
    () => updateLines(after, group, { parameter, row, col }, step, (id, slice) => source.tensor(after.id, id, slice)), { within: parameter });
  if (error) return <p class="note">{error.message}</p>;
  return (
    <div data-role="update-lines" data-state={stale || !value ? "pending" : "ready"} aria-live="polite">
      <p class="note">Recomputed in your browser from what the optimizer keeps. ✓: the optimizer has the same number, up to rounding, which the bound allows for.</p>
      {value && <Table
        label="Update" columns={["", "", ""]}
        rows={value.map(({ name, text, check, last }) => {
          const ok = check && check.delta <= check.bound;
          return {
            cells: [name, <span class="learn-text">{text}</span>, check && (
              <span class={ok ? "check-ok" : "check-bad"} data-check-line={name} data-state={ok ? "ok" : "bad"} data-delta={exact(check.delta)} data-bound={exact(check.bound)}>
                {ok ? "✓" : "✗ the optimizer has another,"} Δ {tiny(check.delta)} {ok ? "≤" : ">"} {tiny(check.bound)}
              </span>
            )],
            attributes: { class: last ? "term-mark" : undefined },
          };
        })}
      />}
    </div>
  );
}
