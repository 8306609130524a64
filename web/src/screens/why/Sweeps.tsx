/** What follows when parts of the model are edited in turn: a table of edits, of layers, of parts of a logit, of checkpoints; or two heat maps. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Sweeps } from "../../sources/source";
import { edited, edits, other, route, setParams, source, toggleEdit, traceOther } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { capital, nodeLocation, number, signed, tiny, visible } from "../../tensors/format";
import { describeEdit } from "../../trace/edits";
import { isClassifier, isMasked, predictionIndex } from "../../trace/generation";
import { title } from "../../trace/steps";
import type { Contribution, Manifest, StatesSweep, SweepRequest, VariantEffect } from "../../types";
import { Track } from "../../views/Bars";
import { Matrix } from "../../views/Matrix";
import { Table } from "../../views/Table";
import { Terms } from "../../views/Terms";
import { OutputTokens } from "../../views/Tokens";
import { isNumber } from "../../views/Vector";
import { ErrorText } from "../../views/Text";

/** A row of a table: what was edited, which can be tried, cells, and the number that its bar shows. */
interface Row {
  words: string;
  edits?: readonly string[];
  cells: ComponentChildren[];
  bar?: number;
  /** Of a block, not of a head. */
  whole?: boolean;
  attributes?: Record<`data-${string}`, string | number>;
}

interface Sweep {
  name: string;
  columns: ComponentChildren[];
  rows: Row[];
}

interface Shown {
  says: ComponentChildren;
  tables: Sweep[];
}

/** What the views say of a trace, whose answer may be a number. */
interface About {
  trace: Manifest;
  numeric: boolean;
}

/** The rows of long lists that are shown, of parts of a sum and of edits. */
const [MOST, STRONGEST] = [24, 15];

const answerOf = ({ before, after, n_changed }: VariantEffect, numeric: boolean) =>
  (numeric || n_changed > 0) && <>{!numeric && <><bdi>{visible(before)}</bdi> → </>}<b><bdi>{visible(after)}</bdi></b></>;

const VIEWS: { [kind in Exclude<keyof Sweeps, "states">]: (value: Sweeps[kind], about: About) => Shown } = {
  parts: ({ parts, untrained }, { trace, numeric }) => {
    const instead = numeric ? "Number" : "Predicts instead";
    const place = (step: string) => nodeLocation(trace.nodes.find((one) => one.id === step)!);
    return {
      says: <>
        Each head and each feed-forward block is switched off in turn. The number is the change of {numeric ? "the answer" : "the log-probability of what the model predicts"}; with initial weights no part changes it by more than {number(untrained)}. Heads can stand in for each
        other, so all heads of a block together, and each head with the others off, are measured too.
      </>,
      tables: [{
        name: "Heads and blocks", columns: ["Part", "Off", instead, "Others off", instead],
        rows: parts.map(({ step, kind, head, off, alone }) => ({
          words: kind === "heads" ? "all of these heads" : `${place(step)}${kind === "head" ? `, head ${head}` : ""}`, edits: off.edits, whole: kind !== "head", bar: off.change,
          cells: [signed(off.change), answerOf(off, numeric), alone && signed(alone.change), alone && answerOf(alone, numeric)],
          attributes: { "data-part": off.edits.join(" "), "data-change": off.change },
        })),
      }],
    };
  },
  keys: ({ grids }, { trace, numeric }) => {
    const all = grids.flatMap((grid) => grid.effects.flat());
    const strength = ({ change }: VariantEffect) => (numeric ? -Math.abs(change) : change);
    return {
      says: `Each head is kept from attending to each token, ${all.length} edits in all; these ${numeric ? "change the number" : "lower the log-probability of what the model predicts"} most.`,
      tables: [{
        name: "Attention to tokens", columns: ["Edit", "Change", numeric ? "Number" : "Predicts instead"],
        rows: all.sort((a, b) => strength(a) - strength(b)).slice(0, STRONGEST).map((effect) => ({
          words: describeEdit(effect.edits[0]!, trace), edits: effect.edits, cells: [signed(effect.change), answerOf(effect, numeric)], bar: effect.change,
          attributes: { "data-part": effect.edits.join(" "), "data-change": effect.change },
        })),
      }],
    };
  },
  layers: ({ positions, stacks }, { trace, numeric }) => {
    const at = (position: number | null) => (position === null ? (numeric ? "number" : "prediction") : <>{isMasked(trace) ? "at" : "after"} <bdi>{visible(trace.streams.at(-1)!.pieces[position])}</bdi></>);
    return {
      says: <>
        What the model would predict if only the first layers acted: the later ones are skipped, and the output reads the state as it
        is. Early rows are biased, since those states were not made for this reader.{!numeric && " Bold: the prediction of the whole model."}
      </>,
      tables: stacks.map(({ stack, rows }) => ({
        name: `Layers of the ${stack}`, columns: ["Layers", ...positions.map(at)],
        rows: rows.map(({ layer, tokens, ranks, log_probs }) => ({
          words: layer ? String(layer) : "none", attributes: { "data-layer": `${stack}/${layer}` },
          cells: tokens.map((token, i) => {
            const Name = ranks[i] === 0 ? "b" : "span";
            return <Name key={i} title={numeric ? undefined : `log-probability of the answer ${number(log_probs[i]!)}, rank ${ranks[i]! + 1}`}><bdi>{visible(token)}</bdi></Name>;
          }),
        })),
      })),
    };
  },
  contributions: ({ parts, target, contrast, difference, position, error }, { trace, numeric }) => {
    const digits = numeric ? 3 : 2;
    const ordered = [...parts].sort((a, b) => Math.abs(b.direct) - Math.abs(a.direct)), rest = ordered.slice(MOST);
    const others = { name: `${rest.length} others`, direct: rest.reduce((sum, part) => sum + part.direct, 0), total: null, edit: "" };
    return {
      says: <>
        The residual stream is a sum, so {numeric ? "the number" : "a logit"} is one too: each head, block and bias adds a part (direct), with the norms as they
        were in this pass. Switching a part off also changes what later parts compute (total); with opposite signs, later parts make up for it.{" "}
        <span data-role="contributions" data-value={difference}>
          {numeric ? `${capital(target)} minus ${contrast}` : <>Logit of <b><bdi>{visible(target)}</bdi></b> minus that of <b><bdi>{visible(contrast)}</bdi></b></>}
          {position === null ? "" : `, after position ${position}`}: <b>{signed(difference, digits)}</b>.
          The parts sum to it within {tiny(Math.abs(error))}.
        </span>
      </>,
      tables: [{
        name: "Contributions", columns: ["Part", "Direct", "Total"],
        rows: [...ordered.slice(0, MOST), ...(rest.length ? [others] : [])].map((part) => ({
          words: partName(part, trace), edits: part.edit ? [part.edit] : undefined, bar: part.direct,
          cells: [signed(part.direct, digits), part.total !== null && signed(part.total, digits)], attributes: { "data-part": part.name, "data-direct": part.direct },
        })),
      }],
    };
  },
  checkpoints: ({ checkpoints }, { numeric }) => ({
    says: `At every saved point of training, what it predicts${numeric ? "" : " after each token that the trained model wrote, and the log-probability of those tokens"}.`,
    tables: [{
      name: "Training", columns: ["Step", "Without the edits", ...(numeric ? [] : ["log p"]), "With them", ...(numeric ? [] : ["log p"])],
      rows: checkpoints.map(({ checkpoint, step, answer_before, answer_after, log_prob_before, log_prob_after }) => ({
        words: checkpoint === "model" ? "best" : String(step),
        cells: [
          <bdi>{answer_before}</bdi>, ...(log_prob_before === null ? [] : [number(log_prob_before)]),
          answer_after === answer_before ? "the same" : <b dir="auto">{answer_after}</b>, ...(log_prob_after === null ? [] : [number(log_prob_after)]),
        ],
      })),
    }],
  }),
};

/** "Decoder layer 0, self-attention, head 2", "Decoder layer 0, self-attention, output projection: bias". */
function partName({ name }: Contribution, { nodes }: Manifest): string {
  const [, block, head] = /^((?:encoder|decoder)\.\d+\.(?:self|cross|ff))(?:\.head(\d+))?$/.exec(name) ?? [];
  const of = block && nodes.find(({ id }) => id.startsWith(`${block}.`));
  if (of) return `${nodeLocation(of)}${head === undefined ? "" : `, head ${head}`}`;
  const id = name.replace(/^edit of /, "");
  const node = nodes.find((one) => one.id === id || Object.values(one.params).includes(id));
  if (!node) return name;
  const words = node.id === "logits" ? nodeLocation(node) : `${nodeLocation(node)}, ${title(node).toLowerCase()}`;
  return id !== name ? `Edit: ${words}` : node.id === id ? words : `${words}: ${id.split(".").at(-1)}`;
}

/** One sweep of a trace: of the position in the address, with the second text, or of the trace with edits. */
export function SweepView({ trace, kind }: { trace: Manifest; kind: keyof Sweeps }) {
  const [second, after, made, { position }] = [useValue(other), useValue(edited), useValue(edits).length > 0, useValue(route).params];
  const numeric = isNumber(trace), index = isClassifier(trace) ? 0 : predictionIndex(trace, position);
  const of = kind === "checkpoints" ? after?.id : trace.id;
  const request: SweepRequest | null = !of || (kind === "states" && !second) ? null
    : { trace: of, kind, ...(kind === "states" && { other: second!.id }), ...(kind === "contributions" && { prediction: index }) };
  const { value, error, stale } = useResource(request && JSON.stringify(request), () => source.sweep(request! as SweepRequest & { kind: typeof kind }), { within: `${kind}/${of}` });
  if (kind === "checkpoints" && !made) return <p class="note">Make an edit first: its effect is then measured at every saved point of training.</p>;
  const shown = value && kind !== "states" ? (VIEWS[kind] as (value: unknown, about: About) => Shown)(value, { trace, numeric }) : null;
  return (
    <>
      {kind === "contributions" && !isClassifier(trace) && !isMasked(trace) && !numeric && (
        <OutputTokens manifest={trace} index={index} label="Output token" onStep={(i) => setParams({ position: trace.predictions[i]!.position })} />
      )}
      {kind === "states" && <SecondText key={second?.request.text} given={second?.request.text} numeric={numeric} />}
      {request && !value && (error ? <ErrorText error={error} /> : <p class="note" aria-live="polite">Computing …</p>)}
      {kind === "states" && value && <StatesMaps states={value as StatesSweep} about={{ trace, numeric }} />}
      {shown && <div data-stale={stale} aria-busy={stale}>
        <p><Terms>{shown.says}</Terms></p>
        {shown.tables.map((table) => <SweepTable key={table.name} table={table} titled={shown.tables.length > 1} />)}
      </div>}
    </>
  );
}

function SweepTable({ table: { name, columns, rows }, titled }: { table: Sweep; titled: boolean }) {
  const made = useValue(edits), limit = Math.max(1e-12, ...rows.map(({ bar = 0 }) => Math.abs(bar)));
  const bars = rows.some(({ bar }) => bar !== undefined);
  const named = ({ words, edits: wanted }: Row) => (wanted?.[0]
    ? <button type="button" class="quiet sweep-part" aria-pressed={wanted.every((edit) => made.includes(edit))} onClick={() => toggleEdit(wanted[0]!)}>{words}</button>
    : <span class="sweep-part">{words}</span>);
  return (
    <section>
      {titled && <h2>{name}</h2>}
      <Table
        label={name} columns={bars ? [...columns, <span class="visually-hidden">{columns[1]}, as a bar</span>] : columns}
        rows={rows.map((row) => ({
          cells: [named(row), ...row.cells, ...(row.bar === undefined ? [] : [<Track share={row.bar / limit} signs />])], attributes: { class: row.whole ? "sweep-block" : undefined, ...row.attributes },
        }))}
      />
    </section>
  );
}

function SecondText({ given, numeric }: { given: string | undefined; numeric: boolean }) {
  const [text, setText] = useState(given ?? "");
  return (
    <>
      <p><Terms>
        The state of one token after one layer is taken from a second text. Noising: the share of{" "}
        {numeric ? "the difference of both numbers that is lost" : "this text’s answer that is lost"}.
        Denoising: the share that comes back when only that state of this text is put into the second. 1 is all of it.
      </Terms></p>
      <form class="edit-tools" onSubmit={(event) => {
        event.preventDefault();
        if (text) traceOther({ text });
      }}>
        <label>Second text <input class="sweep-text" dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
        <button type="submit">Compare</button>
      </form>
    </>
  );
}

/** The residual stream of two texts exchanged, state by state; tokens without a partner in the second text are masked. */
function StatesMaps({ states, about: { trace, numeric } }: { states: StatesSweep; about: About }) {
  const { answer, other_answer, position, difference, other_difference, grids } = states;
  const stateName = (state: string) => (/\d+/.test(state) ? `layer ${/\d+/.exec(state)![0]}` : "embedding");
  return (
    <>
      <p data-role="states">
        <b><bdi>{visible(answer)}</bdi></b> here, <b><bdi>{visible(other_answer)}</bdi></b> in the second text
        {position === null ? "" : `, ${isMasked(trace) ? "at" : "after"} position ${position}`}
        {numeric ? "" : `: logit difference ${signed(difference, 2)} and ${signed(other_difference, 2)}`}.
      </p>
      {grids.map(({ stream, rows }) => (
        <div key={stream} class="columns">
          {(["noising", "denoising"] as const).map((name) => {
            const shares = rows.flatMap((row) => row[name]), shape = [rows.length, rows[0]!.noising.length];
            return (
              <section key={name}>
                <h3>{capital(name)}: {stream}</h3>
                <Matrix
                  node={`${name}/${stream}`} value={{ shape, dtype: "f32", data: Float32Array.from(shares, (share) => share ?? NaN) }}
                  mask={{ shape, dtype: "u8", data: Uint8Array.from(shares, (share) => Number(share !== null)) }} scale="signed" limit={1} label={`${capital(name)}, ${stream}`} numbers="toggle"
                  rowLabels={rows.map(({ state }) => stateName(state))} colLabels={trace.streams.find((one) => one.name === stream)?.pieces ?? []}
                />
              </section>
            );
          })}
        </div>
      ))}
    </>
  );
}
