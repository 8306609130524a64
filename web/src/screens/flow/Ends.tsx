/** The ends of the Flow screen: input tokens with their embedding, and the output with its prediction. */
import { go } from "../../state/page";
import { number, percent, visible } from "../../tensors/format";
import { PROBABILITIES, windowOf } from "../../trace/stepData";
import { isGiven, isMasked, outputStream } from "../../trace/generation";
import type { Manifest, Prediction, TraceNode } from "../../types";
import { Bars } from "../../views/Bars";
import { stepLink, openStep } from "../../views/interaction";
import { Tokens } from "../../views/Tokens";
import type { Sizes } from "./Blocks";
import { Box } from "./Box";
import type { Column } from "./columns";

export function EmbeddingSection({ column, sizes, trace }: { column: Column; sizes: Sizes; trace: Manifest }) {
  const { ids, rows, scaled, ngrams, with_ngrams, bigrams, with_bigrams = with_ngrams, positions, sum = with_bigrams } = column.embedding;
  const window = windowOf(trace, column.stream.name);
  return (
    <div class="flow-entrance">
      <div {...(ids ? { "data-node-box": ids.id } : {})}>
        <Tokens
          stream={column.stream} window={window} marks={column.stream.ids.slice(...(window ?? [0])).map(String)}
          onChoose={(index) => ids && go("step", { node: ids.id, cell: `0,${index - (window?.[0] ?? 0)}` })}
        />
      </div>
      <div class="flow-boxes flow-embedding">
        {rows && <Box node={rows} width={sizes.box} height={sizes.tall} label="embedding" />}
        {scaled && <><span class="flow-op">× {number(Number(scaled.attrs.factor))} =</span><Box node={scaled} width={sizes.box} height={sizes.tall} label="scaled" /></>}
        {ngrams && <><span class="flow-op">+</span><Box node={ngrams} width={sizes.box} height={sizes.tall} label="n-grams" /></>}
        {bigrams && <><span class="flow-op">+</span><Box node={bigrams} width={sizes.box} height={sizes.tall} label="bigrams" /></>}
        {positions && <><span class="flow-op">+</span><Box node={positions} width={sizes.box} height={sizes.tall} label="position" /></>}
        {sum && <><span class="flow-op">=</span><Box node={sum} width={sizes.box} height={sizes.tall} label="sum" /></>}
      </div>
    </div>
  );
}

/** From the last state of the residual stream to the prediction. */
export function OutputSection({ nodes, sizes, trace }: { nodes: TraceNode[]; sizes: Sizes; trace: Manifest }) {
  const boxes = nodes.filter((node) => node.id !== "logits");
  const logits = nodes.find((node) => node.id === "logits");
  const first = trace.predictions[0];
  return (
    <div class="flow-exit">
      <div class="flow-boxes">
        {boxes.map((node) => (
          <span key={node.id} class="flow-boxes">
            <Box node={node} width={node.axes.at(-1)?.size === 1 ? 20 : sizes.box * 1.9} height={node.axes.length > 1 ? sizes.tall : 16} label={node.id === "head" ? "logit" : node.id === "pooled" ? `${node.attrs.how} over tokens` : undefined} />
            <span class="flow-arrow" aria-hidden="true">→</span>
          </span>
        ))}
        {logits && (
          <a class="flow-box flow-words" {...stepLink(logits)}><span class="flow-label">logits</span></a>
        )}
        <span class="flow-arrow" aria-hidden="true">→</span>
        <a class="flow-box flow-words" data-node-box={PROBABILITIES} href="#/step?node=probabilities" onClick={(event) => {
          event.preventDefault();
          openStep(PROBABILITIES);
        }}><span class="flow-label">probabilities</span></a>
      </div>
      {first?.position === null
        ? <Bars label="Answer" bars={first.top.slice(0, 8).map((one, i) => ({ key: one.id, label: one.piece, value: Math.exp(one.log_prob), strong: i === 0 }))} onChoose={() => openStep(PROBABILITIES)} />
        : <NextTokens trace={trace} />}
    </div>
  );
}

/** Below each token the next one, with its probability. */
function NextTokens({ trace }: { trace: Manifest }) {
  const { pieces } = outputStream(trace);
  const choose = (prediction: Prediction) => go("step", { node: PROBABILITIES, position: prediction.position, cell: null });
  return (
    <>
      <p class="note" id="flow-next">{isMasked(trace) ? "The most probable token at each position" : "The next token at each position"}; the bar is its probability.</p>
      <ol class="flow-next" aria-labelledby="flow-next">
        {trace.predictions.map((prediction) => {
          const next = (isMasked(trace) ? null : prediction.actual) ?? prediction.top[0];
          const probability = Math.exp(next?.log_prob ?? -Infinity);
          const position = prediction.position ?? 0;
          return (
            <li key={prediction.position}>
              <button type="button" class={isGiven(trace, position) ? "flow-given" : ""} onClick={() => choose(prediction)} title={`${percent(probability)} ${isMasked(trace) ? "for" : "after"} “${pieces[position] ?? ""}”`}>
                <bdi class="flow-after">{visible(pieces[position])}</bdi>
                <span class="flow-down" aria-hidden="true">↓</span>
                <bdi>{visible(next?.piece)}</bdi>
                <span class="flow-share" style={{ width: `${probability * 100}%` }} />
              </button>
            </li>
          );
        })}
      </ol>
    </>
  );
}
