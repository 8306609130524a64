/** The values of a step: its matrix, or the candidates for the next token; and their check. */
import { setParams, source } from "../../state/page";
import { useMask, useResource, useTensor } from "../../state/resource";
import { passesOf } from "../../sources/difference";
import { axisNames, count, exact, points, tiny } from "../../tensors/format";
import type { TensorValue } from "../../tensors/tensor";
import { type Change, changesOf } from "../../trace/generation";
import { checkNode, type CheckResult } from "../../trace/check";
import { axisLabels, type Cell, idsSlice, ngramsOf, predictionAt, PROBABILITIES, rowOf } from "../../trace/stepData";
import { pieceOf } from "../../trace/stepData";
import { rowTextsOf } from "../../trace/generation";
import { scaleOfNode, title } from "../../trace/steps";
import type { Manifest, TraceNode } from "../../types";
import { Bars } from "../../views/Bars";
import { HeadPicker, PositionPicker } from "../../views/Choices";
import { Matrix } from "../../views/Matrix";
import { hasCandidates, placesOf, sliceOf } from "./places";

const choose = (row: number, col: number) => setParams({ cell: `${row},${col}` });

export function StepNumbers({ node, cell, trace }: { node: TraceNode; cell: Cell; trace: Manifest }) {
  const masked = useMask(node, cell.head, trace);
  const own = useTensor(node.op === "mask" && !node.attrs.difference ? node.id : null);
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
      {places.row !== null && <PositionPicker trace={trace} position={cell.position} />}
      <Matrix
        node={node.id} slice={slice} label={title(node)} mask={masked ?? own.value} scale={scaleOfNode(node)} limit={node.dtype === "i32" ? Infinity : undefined} cell={[cell.row, cell.col]} onSelect={choose}
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
      {prediction.position !== null && <PositionPicker trace={trace} position={prediction.position} />}
      {shares && (
        <Bars
          label={changes ? "Changes of the probabilities" : "Probabilities"} onChoose={(key) => choose(0, Number(key))} {...(changes ? limitsOf(changes) : {})}
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

/** Bars to either side, up to the largest change. */
const limitsOf = (changes: readonly Change[]) => ({ signs: true, limit: Math.max(...changes.map(({ change }) => Math.abs(change))) || 1 });

/** Results of checks, cached. */
const known = new Map<string, CheckResult>();

/** The result of the check of a step, with the largest difference. */
export function CheckLine({ node, position, trace }: { node: TraceNode; position: number; trace: Manifest }) {
  const key = `${trace.id}/${node.id}/${node.axes.at(-1)?.name === "vocab" ? position : ""}`;
  // After the values have been rendered.
  const asked = useResource(known.has(key) ? null : key, async () => {
    const found = await checkNode(trace, node, position, source);
    if (found.state !== "unavailable") known.set(key, found);
    return found;
  }, { delay: 30 });
  const failed: CheckResult | null = asked.error && { state: "bad", delta: null, words: asked.error.message };
  const found = known.get(key) ?? asked.value ?? failed;
  const state = found?.state ?? "pending";
  return (
    <p class={`check check-${state}`} data-check={node.id} data-state={state} data-delta={found?.delta == null ? undefined : exact(found.delta)}>
      <span class="check-mark" aria-hidden="true">{{ pending: "…", ok: "✓", bad: "✗", unavailable: "–" }[state]}</span>
      {words(found)}
    </p>
  );
}

function words(found: CheckResult | null): string {
  if (!found) return "Recomputing in your browser …";
  const what = found.words ? ` (${found.words})` : "";
  if (found.state === "unavailable") return `Not recomputed: ${found.words}.`;
  const delta = found.delta === null ? "" : `, max Δ ${tiny(found.delta)}`;
  if (found.state === "ok") return `Recomputed in your browser${what}${delta}.`;
  return `Recomputed in your browser${what}, and the numbers disagree${delta}.`;
}
