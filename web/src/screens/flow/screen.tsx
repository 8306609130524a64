/**
 * The Flow screen: the architecture of the model with the tensors of this text, from the input tokens to the
 * prediction. Every box links to its step.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { passesOf } from "../../sources/difference";
import { gradients } from "../../state/page";
import { useValue } from "../../state/signals";
import { count } from "../../tensors/format";
import type { Manifest, ModelInfo } from "../../types";
import { layerOff } from "../../trace/edits";
import { Switch } from "../../views/EditBar";
import { BlockRow, headsAcross, MemoryLines, type Sizes, StreamState } from "./Blocks";
import { type Column, columnsOf, outputOf, withGradients } from "./columns";
import { EmbeddingSection, OutputSection } from "./Ends";

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
