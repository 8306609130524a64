/**
 * The Flow screen: the architecture of the model with the tensors of this text, from the input tokens to the
 * prediction. Every box links to its step.
 */
import { type ComponentChildren, type ComponentProps, Fragment } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { passesOf } from "../sources/source";
import { go, gradients, manifest, route } from "../state/page";
import { signal, useValue } from "../state/signals";
import { count, nodeLocation, number, points } from "../tensors/format";
import { blockOff, editsOf, headOff, layerOff } from "../trace/edits";
import { changesOf, predictionIndex } from "../trace/generation";
import { leaf, PROBABILITIES, role, scaleOfNode, title } from "../trace/steps";
import type { Manifest, ModelInfo, Stream, TraceNode } from "../types";
import { Bars } from "../views/Bars";
import { OutputTokens, selectedTokens, Tokens } from "../views/Choices";
import { Switch } from "../views/EditBar";
import { Matrix } from "../views/Matrix";
import { linkTo, openStep, stepLink } from "../views/interaction";

interface Block {
  key: string;
  layer: number;
  kind: "self" | "cross" | "ff";
  /** By last part of the id: norm, q_proj, weights, out, residual … */
  parts: Record<string, TraceNode>;
  /** Pre-norm: the norm is first, inside the branch. Post-norm: after the residual sum. */
  normFirst: boolean;
}

interface Column {
  stack: "encoder" | "decoder";
  stream: Stream;
  embedding: Record<string, TraceNode>;
  blocks: Block[];
  end: TraceNode | null;
}

function column(trace: Manifest, stack: "encoder" | "decoder"): Column | null {
  const nodes = trace.nodes.filter((node) => node.stack === stack);
  const name = nodes.flatMap((node) => node.axes).find((axis) => axis.name === "token")?.stream;
  const stream = trace.streams.find((one) => one.name === name);
  if (!stream) return null;
  const embedding = Object.fromEntries(trace.nodes.filter((node) => node.stack === name).map((node) => [leaf(node), node]));
  const ofBlocks = Map.groupBy(nodes.filter(({ block }) => block !== null), ({ layer, block }) => `${stack}.${layer}.${block}`);
  const blocks = [...ofBlocks].map(([key, all]): Block => ({
    key, layer: all[0]!.layer!, kind: all[0]!.block!, parts: Object.fromEntries(all.map((node) => [leaf(node), node])), normFirst: leaf(all[0]!) === "norm",
  }));
  return { stack, stream, embedding, blocks, end: nodes.find((node) => role(node) === "final_norm") ?? null };
}

/**
 * The trace with a gradient in the place of each step, or without that step where it has none. Token ids and masks stay:
 * the former begin a column, the latter name what a block does.
 */
function withGradients(trace: Manifest): Manifest {
  const known = new Map(trace.gradients.map((one) => [one.id, one]));
  const nodes = trace.nodes.flatMap((node): TraceNode[] => {
    const gradient = known.get(`${node.id}.grad`);
    if (!gradient) return node.op === "ids" || node.op === "mask" ? [node] : [];
    return [{ ...node, id: gradient.id, inputs: [], min: gradient.min, max: gradient.max }];
  });
  return { ...trace, nodes };
}

/** The nodes after the last stack: pooled, head, logits; and the loss. */
const outputOf = (trace: Manifest) => trace.nodes.filter((node) => node.stack === "head" && !/^loss\.(?!grad)/.test(node.id));

interface Sizes {
  /** Sizes of a box and of one head's heat map, in CSS pixels. */
  box: number;
  tall: number;
  head: number;
}

/** Pictures of heads in a row. */
const headsAcross = (heads: number) => (heads <= 4 ? heads : heads <= 16 ? 4 : 8);

const Arrow = () => <span class="flow-arrow" aria-hidden="true">→</span>;

/** What there is of some boxes, with arrows between them. */
const Chain = ({ boxes }: { boxes: ComponentChildren[] }) => <>{boxes.filter(Boolean).map((box, i) => <Fragment key={i}>{i > 0 && <Arrow />}{box}</Fragment>)}</>;

/** A heat map of the residual stream, on its line. */
const StreamState = ({ node, label, sizes }: { node: TraceNode; label?: string; sizes: Sizes }) => (
  <div class="flow-row">
    <div class="flow-line">
      <Box class="flow-state" node={node} width={Math.min(sizes.box, 64)} height={sizes.tall * 0.7} aria-label={label ?? "Residual stream"} />
    </div>
    {label && <p class="flow-state-label">{label}</p>}
  </div>
);

function attention({ parts }: Block, sizes: Sizes) {
  const { q_proj, k_proj, v_proj, weights, context, concat = context, out } = parts;
  const heads = weights?.axes[0]?.size ?? 0;
  const strips = [["Q", q_proj], ["K", k_proj], ["V", v_proj]] as const;
  return [
    <div class="flow-qkv">
      {strips.map(([name, node]) => node && (
        <span key={name} class="flow-strip"><span class="flow-letter">{name}</span><Box class="flow-box" node={node} width={sizes.box} height={sizes.tall / 2.4} /></span>
      ))}
    </div>,
    weights && (
      <div class="flow-heads-box">
        <div class="flow-heads" style={{ gridTemplateColumns: `repeat(${headsAcross(heads)}, auto)` }}>
          {Array.from({ length: heads }, (_, h) => (
            <span key={h} class="flow-head">
              <Box node={weights} head={h} width={sizes.head} height={sizes.head} aria-label={`Attention weights, head ${h}`} />
              <Switch edit={headOff(weights.id, h)} label={`${nodeLocation(weights)}, head ${h}`} />
            </span>
          ))}
        </div>
        <span class="flow-label">{heads === 1 ? "weights" : `weights of ${heads} heads`}</span>
      </div>
    ),
    concat && <Box node={concat} width={sizes.box} height={sizes.tall} label="weights · V" />,
    out && <Box node={out} width={sizes.box} height={sizes.tall} label={<>W<sub>O</sub></>} />,
  ];
}

function feedForward({ parts: { w_gate, w_in, hidden, out } }: Block, sizes: Sizes) {
  const wide = sizes.box * (w_gate ? 1.3 : 1.9);
  const activation = { relu: "ReLU", gelu: "GELU", gelu_tanh: "GELU", silu: "SiLU", swiglu: "SwiGLU" }[hidden?.op as "relu"] ?? "activation";
  const features = (node: TraceNode) => count(node.axes.at(-1)!.size);
  return [
    w_gate && <Box node={w_gate} width={wide} height={sizes.tall} label="gate" />,
    w_in && <Box node={w_in} width={wide} height={sizes.tall} label={`to ${features(w_in)} features`} />,
    hidden && <Box node={hidden} width={wide} height={sizes.tall} label={activation} />,
    out && <Box node={out} width={sizes.box} height={sizes.tall} label={`back to ${features(out)}`} />,
  ];
}

const BLOCKS = {
  self: ["Self-attention", "all tokens attend to each other"], causal: ["Self-attention", "tokens attend to themselves and earlier tokens"],
  cross: ["Cross-attention", "keys and values from the encoder"], ff: ["Feed-forward", "each token separately"],
} as const;

function BlockRow({ block, sizes }: { block: Block; sizes: Sizes }) {
  const { norm, residual, mask, out } = block.parts;
  const [name, does] = BLOCKS[block.kind === "self" && mask?.attrs.kind === "causal" ? "causal" : block.kind];
  return (
    <>
      <div class="flow-row flow-block">
        <div class="flow-line">
          {residual && <a class="flow-plus" {...stepLink(residual)} aria-label="Residual sum"><span aria-hidden="true">+</span></a>}
        </div>
        <div class="flow-branch">
          <p class="flow-block-name">
            {out && <Switch edit={blockOff(out.id)} label={nodeLocation(out)} />} {name} <span>{does}</span>
          </p>
          <div class={`flow-boxes flow-${block.kind}`}>
            <Chain boxes={[
              norm && block.normFirst && <Box node={norm} width={sizes.box} height={sizes.tall} label="norm" />, ...(block.kind === "ff" ? feedForward : attention)(block, sizes),
            ]} />
          </div>
        </div>
      </div>
      {residual && <StreamState node={residual} sizes={sizes} />}
      {norm && !block.normFirst && <StreamState node={norm} sizes={sizes} label="norm" />}
    </>
  );
}

interface BoxProps {
  node: TraceNode;
  /** The one head that is shown. */
  head?: number;
  width: number;
  height: number;
  label?: ComponentChildren;
  class?: string;
  "aria-label"?: string;
}

/** A link to a step with its heat map. With edits it is marked as "edited", or as the "same" where no number differs. */
function Box({ node, head, width, height, label, ...attributes }: BoxProps) {
  const mark = useValue(manifest, (trace) => {
    if (!trace?.edited) return undefined;
    return editsOf(trace, node.id, head).length ? "edited" : trace.edited.same.includes(node.id) ? "same" : undefined;
  });
  return (
    <a class="flow-box" {...attributes} {...stepLink(node, head)} data-mark={mark}>
      <MiniHeatMap node={node} head={head} width={width} height={height} />
      {label && <span class="flow-label">{label}</span>}
    </a>
  );
}

/** The heat map, fetched when it scrolls near the viewport; its size is reserved, to avoid layout shifts. */
function MiniHeatMap({ node, width, height: maxHeight, head }: { node: TraceNode; width: number; height: number; head?: number }) {
  const place = useRef<HTMLSpanElement>(null);
  const [near, setNear] = useState(false);
  const rows = node.axes.slice(head === undefined ? 0 : 1, -1).reduce((product, axis) => product * axis.size, 1);
  const height = Math.min(maxHeight, 12 * rows);
  useEffect(() => {
    if (!place.current || near) return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setNear(true), { rootMargin: "200px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [near]);
  return (
    <span ref={place} class="flow-mini" style={{ width: `${width}px`, minHeight: `${height}px` }}>
      {near && <Matrix node={node.id} slice={head === undefined ? "" : `head:${head}`} scale={scaleOfNode(node)} mini={{ width, height }} label="" />}
    </span>
  );
}

const windowWidth = signal(innerWidth);
addEventListener("resize", () => (windowWidth.value = innerWidth));

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
  const width = useValue(windowWidth);
  const backward = useValue(gradients);
  const trace = useMemo(() => (backward ? withGradients(forward) : forward), [forward, backward]);
  const columns = (["encoder", "decoder"] as const).map((stack) => column(trace, stack)).filter((one) => one !== null);
  const sizes = sizesFor(width, columns.length, trace.model.n_heads);
  return (
    <div class={backward ? "flow flow-back" : "flow"}>
      <h1 class="visually-hidden">Flow</h1>
      <p class="note">{introduction(trace.model, passesOf(trace) !== null, backward)}</p>
      <div class={`flow-columns flow-${columns.length}`}>
        {columns.map((column) => <StackColumn key={column.stack} column={column} sizes={sizes} trace={trace} last={column === columns.at(-1)} />)}
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
      {end && <StreamState node={end} sizes={sizes} label={last ? "final norm" : "final norm: input of cross-attention"} />}
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

function EmbeddingSection({ column, sizes, trace }: { column: Column; sizes: Sizes; trace: Manifest }) {
  const { params } = useValue(route);
  const { ids, rows, scaled, ngrams, with_ngrams, bigrams, with_bigrams = with_ngrams, segments, with_segments = with_bigrams, positions, sum = with_segments, embedding_norm } = column.embedding;
  const summands = [
    ["", rows, "embedding"], [scaled && `× ${number(Number(scaled.attrs.factor))} =`, scaled, "scaled"], ["+", ngrams, "n-grams"], ["+", bigrams, "bigrams"],
    ["+", segments, "segment"], ["+", positions, "position"], ["=", sum, "sum"], ["→", embedding_norm, "norm"],
  ] as const;
  return (
    <div>
      <div {...(ids ? { "data-node-box": ids.id } : {})}>
        <Tokens
          stream={column.stream} marks={column.stream.ids.map(String)} selected={selectedTokens(trace, column.stream, params)}
          onChoose={(index) => ids && go("step", { node: ids.id, cell: `0,${index}`, numbers: null })}
        />
      </div>
      <div class="flow-boxes flow-embedding">
        {summands.map(([sign, node, name]) => node && <>{sign && <span class="flow-op">{sign}</span>}<Box node={node} width={sizes.box} height={sizes.tall} label={name} /></>)}
      </div>
    </div>
  );
}

/** A link to a step without a picture. */
const Words = ({ children, ...link }: ComponentProps<"a"> & { "data-node-box": string }) => <a class="flow-box flow-words" {...link}><span class="flow-label">{children}</span></a>;

/** From the last state of the residual stream to the prediction. */
function OutputSection({ nodes, sizes, trace }: { nodes: TraceNode[]; sizes: Sizes; trace: Manifest }) {
  const [backward, { params }] = [useValue(gradients), useValue(route)];
  const boxes = nodes.filter((node) => !/^(logits|loss)(\.|$)/.test(node.id));
  const [logits, loss] = ["logits", "loss"].map((name) => nodes.find((node) => node.id.replace(".grad", "") === name));
  const [first, passes] = [trace.predictions[0], passesOf(trace)];
  const bars = passes
    ? changesOf(passes.before.predictions[0], first, "probability").map((one) => ({ key: one.id, label: one.piece, value: one.change, text: points(one.change) }))
    : first?.top.map((one, i) => ({ key: one.id, label: one.piece, value: Math.exp(one.log_prob), strong: i === 0 }));
  return (
    <div class="flow-exit">
      <div class="flow-boxes">
        <Chain boxes={[
          ...boxes.map((node) => (
            <Box key={node.id} node={node} width={node.axes.at(-1)?.size === 1 ? 20 : sizes.box * 1.9} height={node.axes.length > 1 ? sizes.tall : 16} label={/^head\b/.test(node.id) ? "logit" : /^pooled\b/.test(node.id) ? `${node.attrs.how} over tokens` : title(node)} />
          )),
          logits && <Words {...stepLink(logits)}>{first ? "logits" : "output"}</Words>,
          first && !backward && <Words {...linkTo("step", { node: PROBABILITIES })} data-node-box={PROBABILITIES}>probabilities</Words>,
          loss && <Words {...stepLink(loss)}>loss</Words>,
        ]} />
      </div>
      {!first && <p class="note" data-role="vector">The output is one {logits ? "number" : "vector"} for the text{passes ? "" : `: ${trace.answer.headline}`}.</p>}
      {backward ? null : first?.position === null
        ? <Bars label={passes ? "Change of the answer" : "Answer"} signs={passes !== null} bars={bars!.slice(0, 8)} onChoose={() => openStep(PROBABILITIES)} />
        : first && <>
          <p class="note">The tokens that are predicted, coloured by probability. Select one for its step “probabilities”.</p>
          <OutputTokens manifest={trace} index={predictionIndex(trace, params.position)} label="Predictions" />
        </>}
    </div>
  );
}
