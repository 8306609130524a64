/**
 * The Step screen: each operation of the forward pass with its formula, source line, values, the arithmetic of a cell,
 * and a check of the values.
 */
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { passesOf } from "../sources/source";
import { useScreenKeys } from "../state/keys";
import { editable, edits, framed, gradients, route, selection, setParams, toggleEdit } from "../state/page";
import { useValue } from "../state/signals";
import { axisNames, breakable, count, nodeLocation, points, shapeText } from "../tensors/format";
import { magnitude, type TensorValue } from "../tensors/tensor";
import { formula, piecesOf, sentence } from "../trace/descriptions";
import { describeEdit, editsOf, editText } from "../trace/edits";
import { changesOf, predictionIndex, rowTextsOf } from "../trace/generation";
import {
  axisLabels, type Cell, gradientOf, hasCandidates, idsSlice, isGradient, labelsOf, ngramsOf, nodeOf, pieceOf, predictionAt, PROBABILITIES, role, rowOf, scaleOfNode, title,
} from "../trace/steps";
import type { Manifest, SourceLine, TraceNode } from "../types";
import { Bars } from "../views/Bars";
import { HeadPicker, OutputTokens } from "../views/Choices";
import { ArithmeticView, CheckLine } from "../views/Arithmetic";
import { Matrix } from "../views/Matrix";
import { Form, Select } from "../views/Parts";
import { Terms } from "../views/Terms";
import { stepLink } from "../views/interaction";

/** All nodes, with the probabilities after the logits; or all gradients, from the loss to the embedding. */
export function stepsOf(trace: Manifest, gradients = false): TraceNode[] {
  if (gradients) return gradientsOf(trace);
  const at = trace.nodes.findIndex((node) => node.id === "logits");
  const logits = trace.nodes[at];
  if (!logits || !trace.predictions.length) return trace.nodes;
  const shares: TraceNode = { ...logits, id: PROBABILITIES, op: "softmax", inputs: ["logits"], params: {}, attrs: logits.attrs.difference ? { difference: true } : {}, source: null, min: 0, max: 1 };
  return [...trace.nodes.slice(0, at + 1), shares, ...trace.nodes.slice(at + 1)];
}

/** The gradients in order of computation, those of parameters after that of the first step that uses them, and in its place. */
function gradientsOf({ nodes, gradients }: Manifest): TraceNode[] {
  const users = new Map([...nodes].reverse().flatMap((node) => Object.values(node.params).map((param): [string, TraceNode] => [param, node])));
  const ofSteps = gradients.filter((one) => !users.has(gradientOf(one)));
  return ofSteps.flatMap((one) => [one, ...(one.id === `${gradientOf(one)}.grad` ? gradients : []).flatMap((other) => {
    const user = users.get(gradientOf(other));
    return user?.id === gradientOf(one) ? [{ ...other, stack: user.stack, layer: user.layer, block: user.block }] : [];
  })]);
}

/** Steps in order, grouped: embedding, each block of each layer, output. */
function groupsOf(steps: TraceNode[]) {
  const groups: { name: string; steps: TraceNode[] }[] = [];
  for (const step of steps) {
    const last = groups.at(-1);
    const name = role(step) === "final_norm" && last ? last.name : nodeLocation(step);
    if (last?.name === name) last.steps.push(step);
    else groups.push({ name, steps: [step] });
  }
  return groups;
}

interface Places {
  /** Ids of the rows or columns shown, in ascending order; null: all. */
  rows: number[] | null;
  cols: number[] | null;
  /** The row of the prediction, where columns are tokens of the vocabulary. */
  row: number | null;
}

/** Most rows of a table. */
const MOST_ROWS = 64;
const ascending = (ids: Iterable<number>) => [...new Set(ids)].sort((a, b) => a - b);

function placesOf(trace: Manifest, node: TraceNode, position: number): Places {
  const [first, last] = [node.axes[0]?.name, node.axes.at(-1)?.name];
  const labels = labelsOf(trace.nodes.find(({ op }) => op === "targets") ?? node);
  if (last === "vocab" && !hasCandidates(node)) {
    const prediction = predictionAt(trace, position);
    const row = prediction && node.axes.length > 1 ? rowOf(trace, prediction) : null;
    const right = labels[row ?? 0] ?? null;
    return { rows: null, cols: ascending([...(prediction?.top.map(({ id }) => id) ?? []), ...(right === null ? [] : [right])]), row };
  }
  const used = {
    vocab: [...trace.streams.flatMap(({ ids }) => ids), ...labels.filter((one) => one !== null), ...trace.predictions.flatMap(({ top }) => top.slice(0, 3).map(({ id }) => id))],
    ngram: trace.streams.flatMap(({ ngram_ids }) => ngram_ids ?? []).flat(),
    bigram: trace.streams.flatMap(({ bigram_ids }) => bigram_ids ?? []),
  }[first as "vocab"];
  const known = node.axes.length > 1 && used ? ascending(used).filter((id) => id < node.axes[0]!.size).slice(0, MOST_ROWS) : null;
  return { rows: known?.length ? known : null, cols: null, row: null };
}

/** The slice of a step that is shown. */
function sliceOf(node: TraceNode, { rows, cols, row }: Places): string {
  const parts = [row === null ? "" : `token:${row}`, cols ? idsSlice("vocab", cols) : "", rows ? idsSlice(node.axes[0]!.name, rows) : ""];
  return parts.filter(Boolean).join(";");
}

/** The cell of the step for a cell of what is shown. */
function wholeCell(cell: Cell, { rows, cols, row }: Places): Cell {
  const pick = (ids: number[] | null, i: number) => (ids ? ids[Math.min(i, ids.length - 1)]! : i);
  return { ...cell, row: row ?? pick(rows, cell.row), col: pick(cols, cell.col) };
}

/**
 * Converts a formula in a subset of TeX to MathML: \frac{a}{b}, \sqrt{a}, {groups}, x_sub^sup (in this order), ~ for a
 * space. Single letters are italic, words upright.
 */
function typeset(tex: string): VNode {
  const tokens = tex.match(/\\\w+|[a-z]+|\d+|\S/gi) ?? [];
  const given = (token: string) => tokens[0] === token && tokens.shift();
  const row = () => {
    const parts: VNode[] = [];
    while (tokens.length && !given("}")) parts.push(scripted());
    return <mrow>{parts}</mrow>;
  };
  const atom = (): VNode => {
    const token = tokens.shift() ?? "";
    if (token === "{") return row();
    if (token === "\\frac") return <mfrac>{atom()}{atom()}</mfrac>;
    if (token === "\\sqrt") return <msqrt>{atom()}</msqrt>;
    if (token === "~") return <mspace width="0.25em" />;
    if (/\d/.test(token)) return <mn>{token}</mn>;
    return /\p{L}/u.test(token) ? <mi mathvariant={token === "T" ? "normal" : undefined}>{token}</mi> : <mo {...(/[=+∓·←]/.test(token) && { form: "infix" })}>{token}</mo>;
  };
  const scripted = (): VNode => {
    const below = /^(∑|max|mean)$/.test(tokens[0] ?? "");
    const base = atom();
    const sub = given("_") && atom();
    const sup = given("^") && atom();
    if (sub && sup) return <msubsup>{base}{sub}{sup}</msubsup>;
    if (sub) return below ? <munder>{base}{sub}</munder> : <msub>{base}{sub}</msub>;
    return sup ? <msup>{base}{sup}</msup> : base;
  };
  return row();
}

/** The inputs and parameters of the step with their gradients. */
function From({ step, trace }: { step: TraceNode; trace: Manifest }) {
  const inputs = step.inputs.flatMap((id) => nodeOf(trace, id) ?? []);
  const of = isGradient(step) ? nodeOf(trace, gradientOf(step)) : undefined;
  const users = trace.nodes.filter((one) => isGradient(step) && Object.values(one.params).includes(gradientOf(step)));
  const gradient = nodeOf(trace, `${step.id}.grad`);
  return (
    <dl class="step-from">
      {of && <div><dt>Of</dt><dd><Step node={of} /></dd></div>}
      {users.length > 0 && <div><dt>Used by</dt><dd><Steps nodes={users} /></dd></div>}
      {inputs.length > 0 && <div><dt>Inputs</dt><dd><Steps nodes={inputs} /></dd></div>}
      {Object.entries(step.params).map(([role, id]) => {
        const own = nodeOf(trace, `${id}.grad`);
        return (
          <div key={role}><dt>{role === "bias" ? "Bias" : "Weight"}</dt><dd>
            <code>{id}</code> {shapeText(trace.params[id]?.axes.map((axis) => axis.size) ?? [])}{own && <> · <a {...stepLink(own)}>its gradient</a></>}
          </dd></div>
        );
      })}
      {gradient && <div><dt>Gradient</dt><dd><a {...stepLink(gradient)}>of this step</a></dd></div>}

    </dl>
  );
}

const Step = ({ node }: { node: TraceNode }) => <a {...stepLink(node)}>{isGradient(node) && "gradient of "}{title(node)}</a>;
const Steps = ({ nodes }: { nodes: TraceNode[] }) => <>{nodes.map((node, i) => <span key={node.id}>{i > 0 && ", "}<Step node={node} /></span>)}</>;

/** Source code, with the line that computes the step highlighted. */
function CodeView({ source }: { source: SourceLine }) {
  return (
    <figure class="code" data-role="code">
      <figcaption>{source.file}, line {source.mark}</figcaption>
      <pre>
        {source.code.trimEnd().split("\n").map((row, i) => {
          const line = source.line + i;
          const Row = line === source.mark ? "mark" : "span";
          // A long line wraps, further in than it begins.
          return <Row key={i} data-line={line} style={{ "--indent": row.search(/\S|$/) + 4 }}><span class="code-number" aria-hidden="true">{line}</span>{row}{"\n"}</Row>;
        })}
      </pre>
    </figure>
  );
}

const choose = (row: number, col: number) => setParams({ cell: `${row},${col}` });

function StepNumbers({ node, cell, trace }: { node: TraceNode; cell: Cell; trace: Manifest }) {
  if (hasCandidates(node)) return <Candidates node={node} cell={cell} trace={trace} />;
  const places = placesOf(trace, node, cell.position);
  const heads = node.axes[0]?.name === "head" ? node.axes[0].size : 0;
  const slice = heads ? `head:${cell.head}` : sliceOf(node, places);
  const named = (ids: number[] | null) => ids?.map((id) => (node.axes.some(({ name }) => name === "vocab") ? pieceOf(trace, id) : String(id)));
  const [down, across] = [node.axes.at(-2), node.axes.at(-1)];
  const rows = node.axes.length - (heads ? 1 : 0) > 1 && places.row === null ? down : undefined;
  return (
    <section class="step-numbers" aria-label="Numbers">
      {heads > 0 && <HeadPicker heads={heads} head={cell.head} />}
      {places.row !== null && <OutputTokens manifest={trace} index={predictionIndex(trace, `${cell.position}`)} label="Position" />}
      <Matrix
        node={node.id} slice={slice} label={title(node)} scale={scaleOfNode(node)} limit={node.value === "i32" ? Infinity : undefined} cell={[cell.row, cell.col]} onSelect={choose}
        rowLabels={rows && (named(places.rows) ?? (rows.name === "token" ? rowTextsOf(trace, node) : axisLabels(trace, rows)))} colLabels={named(places.cols) ?? (across && axisLabels(trace, across))}
        rowName={rows && axisNames(rows.name)[0]} colName={across && axisNames(across.name)[0]}
      />
      {/^(ngram_ids|embedding_bag)$/.test(node.op) && (
        <p class="note" data-role="ngrams"><bdi>{down && axisLabels(trace, node.axes[0]!)?.[cell.row]}</bdi>: <bdi>{ngramsOf(trace, cell.row).join(" · ")}</bdi></p>
      )}
      {(places.rows ?? places.cols) && <p class="note">{places.rows ? `${count(places.rows.length)} of ${count(node.axes[0]!.size)} rows: those of the tokens of this text and of likely ones.` : `${count(places.cols!.length)} of ${count(across!.size)} tokens: likely ones, and the right one.`}</p>}
    </section>
  );
}

/** Logits or probabilities of the 50 most probable next tokens, or of all classes; of a difference their changes. */
function Candidates({ node, cell, trace }: { node: TraceNode; cell: Cell; trace: Manifest }) {
  const prediction = predictionAt(trace, cell.position);
  if (!prediction) return null;
  const shares = node.id === PROBABILITIES;
  const passes = passesOf(trace);
  const changes = passes && changesOf(predictionAt(passes.before, cell.position), prediction, shares ? "probability" : "logit");
  const shown = changes ?? prediction.top;
  const numbers = shown.map((one) => ("change" in one ? one.change : shares ? Math.exp(one.log_prob) : one.logit));
  const value: TensorValue = { shape: [1, numbers.length], data: Float32Array.from(numbers), dtype: "f32" };
  const slice = prediction.position === null ? "" : `token:${rowOf(trace, prediction)};${idsSlice("vocab", shown.map((one) => one.id))}`;
  return (
    <section class="step-numbers" aria-label="Numbers">
      {prediction.position !== null && <OutputTokens manifest={trace} index={trace.predictions.indexOf(prediction)} label="Position" />}
      {shares && (
        <Bars
          label={changes ? "Changes of the probabilities" : "Probabilities"} onChoose={(key) => choose(0, Number(key))} {...(changes && { signs: true, limit: magnitude(numbers) || 1 })}
          bars={shown.slice(0, 10).map((one, i) => ({ key: i, label: one.piece, value: numbers[i]!, text: changes ? points(numbers[i]!) : undefined, strong: i === cell.col }))}
        />
      )}
      <Matrix
        node={node.id} slice={slice} value={value} scale={scaleOfNode(node)} label={title(node)} colLabels={shown.map((one) => one.piece)} cell={[0, cell.col]} onSelect={choose}
        colName={prediction.position === null ? "class" : "token"}
      />
      {prediction.position !== null && trace.model.vocab_size > numbers.length && (
        <p class="note">The {numbers.length}{changes ? ` tokens of ${count(trace.model.vocab_size)} that are among the 50 most probable both before and after.` : ` most probable of ${count(trace.model.vocab_size)} tokens, in order.`}</p>
      )}
    </section>
  );
}

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
            <div class="formula">
              {formula(step).split("\n").map((line) => <div key={line}>{piecesOf(line).map((piece, i) => <math key={i} displaystyle>{typeset(piece)}</math>)}</div>)}
            </div>
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

function StepList({ steps, current }: { steps: TraceNode[]; current: string }) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    const link = list.current?.querySelector<HTMLElement>("[aria-current]");
    const box = list.current;
    if (!link || !box || box.scrollHeight <= box.clientHeight) return;
    const [top, height] = [link.offsetTop - box.offsetTop, box.clientHeight];
    if (top < box.scrollTop + 40 || top > box.scrollTop + height - 60) box.scrollTop = top - height / 3;
  }, [current]);
  return (
    <nav ref={list} class="step-list" aria-label="Steps">
      {groupsOf(steps).map((group, i) => (
        <section key={i}>
          <h2>{group.name}</h2>
          <ol>
            {group.steps.map((step) => (
              <li key={step.id}>
                <a {...stepLink(step)} aria-current={step.id === current ? "step" : undefined}>{breakable(title(step))}</a>
              </li>
            ))}
          </ol>
        </section>
      ))}
    </nav>
  );
}

function StepEdits({ node, cell, trace }: { node: TraceNode; cell: Cell; trace: Manifest }) {
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
const CHANGES = [["=", "to"], ["*", "times"], ["=mean", "to its mean over texts"], ["=blocked", "to blocked"]] as const;

function EditForm({ node, cell }: { node: TraceNode; cell: Cell }) {
  const [part, setPart] = useState<Part>("cell");
  const [change, setChange] = useState("=");
  const [number, setNumber] = useState("0");
  const names = node.axes.map((axis) => axis.name);
  const slices = slicesOf(names, cell);
  const numeric = change.length === 1; // "=" or "*"
  const edit = editText(node.id, (slices[part] || slices.cell).join(";"), numeric ? `${change}${Number(number)}` : change);
  return (
    <Form class="row" aria-label="Edit" send={() => edits.value.includes(edit) || toggleEdit(edit)}>
      <span>Change</span>
      <Select value={slices[part] ? part : "cell"} onChoose={(next) => setPart(next as Part)} options={PARTS.filter(([name]) => slices[name])} attributes={{ "aria-label": "What" }} />
      <Select value={change} onChoose={setChange} options={CHANGES.filter(([one]) => one === "=mean" ? !names.includes("key") : one !== "=blocked" || node.site === "scores")} attributes={{ "aria-label": "How" }} />
      {numeric && <input aria-label="Number" type="number" step="any" min={-1e4} max={1e4} required value={number} onInput={(event) => setNumber(event.currentTarget.value)} />}
      <button type="submit">Apply</button>
      <code title={`${axisNames(node.axes.at(-1)!.name)[0]} ${cell.col}`}>{edit}</code>
    </Form>
  );
}

/** The parts of a step by axis names: the selected cell, its row, its head, everything; false where it has none. */
function slicesOf(names: readonly string[], { head, row, col }: Cell) {
  const first = names[0] === "head" ? [`head:${head}`] : [];
  const down = names.length > first.length + 1 ? [...first, `${names.at(-2)}:${row}`] : first;
  return { cell: [...down, `${names.at(-1)}:${col}`], row: down !== first && down, head: first.length > 0 && first, all: [] };
}
