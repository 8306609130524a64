/** The numbers of a step: its matrix (one head at a time), or the candidates for one next token. */
import { exactLabels, HeadPicker, PositionPicker } from "./Pickers";
import { Bars } from "./Bars";
import { Matrix } from "./Matrix";
import { axisNames, count } from "../format";
import { axisLabels, manifest, setParams, useTensor } from "../state";
import { idsSlice, ngramsOf, predictionAt, PROBABILITIES, rowOf, type Cell } from "../stepData";
import { role, scaleOfNode, title } from "../steps";
import type { TensorValue } from "../tensor";
import type { Manifest, TraceNode } from "../types";

const choose = (row: number, col: number) => setParams({ cell: `${row},${col}` });

export function StepNumbers({ node, cell }: { node: TraceNode; cell: Cell }) {
  const trace = manifest.value;
  const maskId = trace && role(node).endsWith(".weights") ? (node.inputs[1] ?? null) : null;
  const own = node.op === "mask" ? node.id : null;
  const mask = useTensor(maskId ?? own);
  if (!trace) return null;
  if (node.id === PROBABILITIES || node.axes.at(-1)?.name === "vocab") return <Candidates node={node} cell={cell} trace={trace} />;
  const heads = node.axes[0]?.name === "head" ? node.axes[0].size : 0;
  const slice = heads ? `head:${cell.head}` : "";
  const [down, across] = [node.axes.at(-2), node.axes.at(-1)];
  const rows = node.axes.length - (heads ? 1 : 0) > 1 ? down : undefined;
  return (
    <section class="step-numbers" aria-label="Numbers">
      {heads > 0 && <HeadPicker heads={heads} head={cell.head} />}
      <Matrix
        node={node.id} slice={slice} label={title(node)} mask={mask.value} scale={scaleOfNode(node)} cell={[cell.row, cell.col]} onSelect={choose}
        rowLabels={rows && axisLabels(rows)} colLabels={across && exactLabels(across, trace)}
        rowName={rows && axisNames(rows.name)[0]} colName={across && axisNames(across.name)[0]}
      />
      {/^(spelling|bag)$/.test(node.op) && (
        <p class="note" data-role="ngrams"><bdi>{down && axisLabels(node.axes[0]!)?.[cell.row]}</bdi>: <bdi>{ngramsOf(trace, cell.row).join(" · ")}</bdi></p>
      )}
    </section>
  );
}

/** Logits or probabilities of the 50 best candidates after one position, or of all classes. */
function Candidates({ node, cell, trace }: { node: TraceNode; cell: Cell; trace: Manifest }) {
  const prediction = predictionAt(trace, cell.position);
  if (!prediction) return null;
  const shares = node.id === PROBABILITIES;
  const numbers = prediction.top.map((one) => (shares ? Math.exp(one.log_prob) : one.logit));
  const value: TensorValue = { shape: [1, numbers.length], data: Float32Array.from(numbers), dtype: "f32" };
  const ids = prediction.top.map((one) => one.id);
  const slice = prediction.position === null ? "" : `token:${rowOf(trace, prediction)};${idsSlice("vocab", ids)}`;
  const labels = prediction.top.map((one) => one.piece);
  const all = trace.model.vocab_size;
  return (
    <section class="step-numbers" aria-label="Numbers">
      {prediction.position !== null && <PositionPicker trace={trace} position={prediction.position} />}
      {shares && (
        <Bars
          label="Probabilities" onChoose={(key) => choose(0, Number(key))}
          bars={prediction.top.slice(0, 10).map((one, i) => ({ key: i, label: one.piece, value: Math.exp(one.log_prob), strong: i === cell.col }))}
        />
      )}
      <Matrix
        node={node.id} slice={slice} value={value} scale={scaleOfNode(node)} label={title(node)} colLabels={labels} cell={[0, cell.col]} onSelect={choose}
        colName={prediction.position === null ? "class" : "token"}
      />
      {prediction.position !== null && all > numbers.length && (
        <p class="note">The {numbers.length} likeliest of {count(all)} tokens, best first.</p>
      )}
    </section>
  );
}
