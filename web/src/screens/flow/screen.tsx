/**
 * The Flow screen: the architecture of the model with the tensors of this text, from the input tokens to the
 * prediction. Every box links to its step.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { passesOf } from "../../sources/difference";
import { go, gradients, route } from "../../state/page";
import { useValue } from "../../state/signals";
import { count, number, percent, points, visible } from "../../tensors/format";
import { changeOfNext, changesOf } from "../../trace/generation";
import { layerOff } from "../../trace/edits";
import { isGiven, isMasked, outputStream } from "../../trace/generation";
import { PROBABILITIES } from "../../trace/stepData";
import type { Manifest, ModelInfo, Prediction, TraceNode } from "../../types";
import { Bars } from "../../views/Bars";
import { Switch } from "../../views/EditBar";
import { Fold, selectedTokens } from "../../views/Fold";
import { Tokens } from "../../views/Tokens";
import { openStep, stepLink } from "../../views/interaction";
import { BlockRow, Box, headsAcross, MemoryLines, type Sizes, StreamState } from "./Blocks";
import { type Column, columnsOf, outputOf, withGradients } from "./columns";

function useWidth(): number {
  const [width, setWidth] = useState(innerWidth);
  useEffect(() => {
    const listen = () => setWidth(innerWidth);
    addEventListener("resize", listen);
    return () => removeEventListener("resize", listen);
  }, []);
  return width;
}

function sizesFor(width: number, columns: number, heads: number): Sizes {
  const many = heads > 4 ? 0.72 : 1;
  if (width < 700) return { box: 46, tall: 44, head: 44 * many };
  if (columns > 1) {
    // Blocks of two columns must not wrap: what labels, arrows and gaps leave of a column is for the pictures.
    const across = headsAcross(heads);
    const column = (Math.min(width - 15, 1512) - 2 * Math.min(45, 0.03 * width) - 61) / 2 - 76;
    const scale = width < 1280 ? 1 : Math.min(1, (column - 215 - 5 * across) / (150 + 46 * many * across));
    return { box: 50 * scale, tall: 50, head: 46 * many * scale };
  }
  return width < 1200 ? { box: 84, tall: 72, head: 80 * many } : { box: 108, tall: 84, head: 100 * many };
}

export function FlowScreen({ trace: forward }: { trace: Manifest }) {
  const width = useWidth();
  const backward = useValue(gradients);
  const trace = useMemo(() => (backward ? withGradients(forward) : forward), [forward, backward]);
  const columns = columnsOf(trace);
  const sizes = sizesFor(width, columns.length, trace.model.n_heads);
  return (
    <div class={backward ? "flow flow-back" : "flow"}>
      <h1 class="visually-hidden">Flow</h1>
      <p class="flow-intro">{introduction(trace.model, passesOf(trace) !== null, backward)}</p>
      <div class={`flow-columns flow-${columns.length}`}>
        {columns.map((column) => <StackColumn key={column.stack} column={column} sizes={sizes} trace={trace} last={column === columns.at(-1)} />)}
        {columns.length > 1 && <MemoryLines layers={trace.nodes.length} />}
      </div>
    </div>
  );
}

/** The introduction of the screen. */
const introduction = ({ family, d_model, n_params }: ModelInfo, difference: boolean, backward: boolean) =>
  (backward ? "The backward pass, from the loss at the bottom to the top. Every block reads the gradient of the residual stream, the thick line, and adds to it; ids, masks and sinusoids have none. " : `The forward pass of all ${count(n_params)} parameters, from top to bottom. Every block reads the residual stream, the thick line (${d_model} values per token), and adds (+) its output. `)
  + (family === "encoder-decoder" && !backward ? "Cross-attention also reads the output of the encoder. " : "")
  + (difference
    ? "The heat maps show how the tensors of this text change, after minus before, one row per token. Orange: larger after; blue: smaller after; blank: no change."
    : backward ? "The heat maps show how the loss changes with each number, one row per token. Orange: it grows with the number; blue: it shrinks."
    : "The heat maps show the tensors of this text, one row per token. Orange: positive; blue: negative; green: from 0 to 1.")
  + " Select one to open its step.";

function StackColumn({ column, sizes, trace, last }: { column: Column; sizes: Sizes; trace: Manifest; last: boolean }) {
  const { embedding, blocks, end } = column;
  const begin = embedding.embedding_norm ?? embedding.sum ?? embedding.with_segments ?? embedding.with_bigrams ?? embedding.with_ngrams ?? embedding.scaled ?? embedding.rows;
  const heading = column.stack === "encoder" ? "Encoder" : "Decoder";
  return (
    <section class={`flow-column flow-${column.stack}`} aria-label={heading}>
      <h2>{heading} <span>{size(column, trace)}</span></h2>
      <EmbeddingSection column={column} sizes={sizes} trace={trace} />
      {begin && <StreamState node={begin} sizes={sizes} label="start of the residual stream" />}
      {blocks.map((block, i) => (
        <div key={block.key} class={blocks[i - 1]?.layer === block.layer ? undefined : "flow-layer"}>
          {blocks[i - 1]?.layer !== block.layer && <div class="flow-row"><div class="flow-line" /><h3>Layer {block.layer} <Switch edit={layerOff(column.stack, block.layer)} label={`${heading} layer ${block.layer}`} /></h3></div>}
          <BlockRow block={block} sizes={sizes} />
        </div>
      ))}
      {end && (
        <StreamState node={end} sizes={sizes} memory={!last} label={last ? "final norm" : "final norm: input of cross-attention"} />
      )}
      {last && <OutputSection nodes={outputOf(trace)} sizes={sizes} trace={trace} />}
    </section>
  );
}

/** "3 layers of 4 heads; reads 10 tokens". */
function size({ stack, stream }: Column, { model, decode }: Manifest): string {
  const many = (n: number, what: string) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
  const verb = stack === "encoder" ? "reads" : model.family === "decoder" ? "reads and generates" : decode.kind === "given" ? "given" : "generated";
  const layers = many(stack === "encoder" ? model.n_layers : model.n_decoder_layers, "layer");
  return `${layers} of ${many(model.n_heads, "head")}; ${verb} ${many(stream.ids.length, "token")}`;
}

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
