/** The ends of the Flow screen: input tokens with their embedding, and the output with its prediction. */
import { go, gradients, route } from "../../state/page";
import { useValue } from "../../state/signals";
import { passesOf } from "../../sources/difference";
import { number, percent, points, visible } from "../../tensors/format";
import { PROBABILITIES } from "../../trace/stepData";
import { changeOfNext, changesOf } from "../../trace/changes";
import { isGiven, isMasked, outputStream } from "../../trace/generation";
import type { Manifest, Prediction, TraceNode } from "../../types";
import { Bars } from "../../views/Bars";
import { Fold, selectedTokens } from "../../views/Fold";
import { stepLink, openStep } from "../../views/interaction";
import { Tokens } from "../../views/Tokens";
import type { Sizes } from "./Blocks";
import { Box } from "./Box";
import type { Column } from "./columns";

export function EmbeddingSection({ column, sizes, trace }: { column: Column; sizes: Sizes; trace: Manifest }) {
  const { params } = useValue(route);
  const { ids, rows, scaled, ngrams, with_ngrams, bigrams, with_bigrams = with_ngrams, segments, with_segments = with_bigrams, positions, sum = with_segments, embedding_norm } = column.embedding;
  const summands = [
    ["", rows, "embedding"], [scaled && `× ${number(Number(scaled.attrs.factor))} =`, scaled, "scaled"], ["+", ngrams, "n-grams"], ["+", bigrams, "bigrams"],
    ["+", segments, "segment"], ["+", positions, "position"], ["=", sum, "sum"], ["→", embedding_norm, "norm"],
  ] as const;
  return (
    <div class="flow-entrance">
      <div {...(ids ? { "data-node-box": ids.id } : {})}>
        <Tokens
          stream={column.stream} marks={column.stream.ids.map(String)} near={selectedTokens(trace, column.stream, params)}
          onChoose={(index) => ids && go("step", { node: ids.id, cell: `0,${index}`, numbers: null })}
        />
      </div>
      <div class="flow-boxes flow-embedding">
        {summands.map(([sign, node, name]) => node && <>{sign && <span class="flow-op">{sign}</span>}<Box node={node} width={sizes.box} height={sizes.tall} label={name} /></>)}
      </div>
    </div>
  );
}

/** From the last state of the residual stream to the prediction. */
export function OutputSection({ nodes, sizes, trace }: { nodes: TraceNode[]; sizes: Sizes; trace: Manifest }) {
  const backward = useValue(gradients);
  const boxes = nodes.filter((node) => !/^(logits|loss)(\.|$)/.test(node.id));
  const [logits, loss] = ["logits", "loss"].map((name) => nodes.find((node) => node.id.replace(".grad", "") === name));
  const [first, passes] = [trace.predictions[0], passesOf(trace)];
  const bars = passes
    ? changesOf(passes.before.predictions[0], first, "probability").map((one) => ({ key: one.id, label: one.piece, value: one.change, text: points(one.change) }))
    : first?.top.map((one, i) => ({ key: one.id, label: one.piece, value: Math.exp(one.log_prob), strong: i === 0 }));
  return (
    <div class="flow-exit">
      <div class="flow-boxes">
        {boxes.map((node) => (
          <span key={node.id} class="flow-boxes">
            <Box node={node} width={node.axes.at(-1)?.size === 1 ? 20 : sizes.box * 1.9} height={node.axes.length > 1 ? sizes.tall : 16} label={/^head\b/.test(node.id) ? "logit" : /^pooled\b/.test(node.id) ? `${node.attrs.how} over tokens` : undefined} />
            {logits && <span class="flow-arrow" aria-hidden="true">→</span>}
          </span>
        ))}
        {logits && (
          <a class="flow-box flow-words" {...stepLink(logits)}><span class="flow-label">{first ? "logits" : "output"}</span></a>
        )}
        {first && !backward && <><span class="flow-arrow" aria-hidden="true">→</span><a class="flow-box flow-words" data-node-box={PROBABILITIES} href="#/step?node=probabilities" onClick={(event) => {
          event.preventDefault();
          openStep(PROBABILITIES);
        }}><span class="flow-label">probabilities</span></a></>}
        {loss && <><span class="flow-arrow" aria-hidden="true">→</span><a class="flow-box flow-words" {...stepLink(loss)}><span class="flow-label">loss</span></a></>}
      </div>
      {!first && <p class="note" data-role="vector">The output is one {logits ? "number" : "vector"} for the text{passes ? "" : `: ${trace.answer.headline}`}.</p>}
      {backward ? null : first?.position === null
        ? <Bars label={passes ? "Change of the answer" : "Answer"} signs={passes !== null} bars={bars!.slice(0, 8)} onChoose={() => openStep(PROBABILITIES)} />
        : first && <NextTokens trace={trace} />}
    </div>
  );
}

/** Below each token the next one, with its probability; of a difference with the change of its probability. */
function NextTokens({ trace }: { trace: Manifest }) {
  const stream = outputStream(trace);
  const { pieces } = stream;
  const near = selectedTokens(trace, stream, useValue(route).params).map((at) => trace.predictions.findIndex(({ position }) => position === at));
  const passes = passesOf(trace);
  const masked = isMasked(trace);
  const choose = (prediction: Prediction) => go("step", { node: PROBABILITIES, numbers: null, position: prediction.position, cell: null });
  return (
    <>
      <p class="note" id="flow-next">{masked ? "The most probable token at each position" : "The next token at each position"}; the bar is {passes ? "the change of its probability: orange where it grows, blue where it shrinks" : "its probability"}.</p>
      <ol class="flow-next" aria-labelledby="flow-next">
        <Fold name="next" count={trace.predictions.length} near={near} item={(i) => {
          const after = trace.predictions[i]!;
          const before = passes?.before.predictions[i];
          const change = before && changeOfNext(trace, before, after);
          const next = before ? change : (masked ? null : after.actual) ?? after.top[0];
          const share = change ? change.change : next && "log_prob" in next ? Math.exp(next.log_prob) : 0;
          const position = after.position ?? 0;
          return (
            <li key={after.position}>
              <button type="button" class={isGiven(trace, position) ? "flow-given" : ""} onClick={() => choose(after)} title={`${passes ? points(share) : percent(share)} ${masked ? "for" : "after"} “${pieces[position] ?? ""}”`}>
                <bdi class="flow-after">{visible(pieces[position])}</bdi>
                <span class="flow-down" aria-hidden="true">↓</span>
                <bdi>{next ? visible(next.piece) : "?"}</bdi>
                <span class={passes ? `flow-share ${share < 0 ? "minus" : "plus"}` : "flow-share"} data-share={share} style={{ width: `${Math.abs(share) * 100}%` }} />
              </button>
            </li>
          );
        }} />
      </ol>
    </>
  );
}
