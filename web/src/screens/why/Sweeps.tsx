/** What follows when parts of the model are edited in turn: heads and blocks, keys, states of a second text, checkpoints. */
import { useState } from "preact/hooks";
import { edited, edits, other, source, toggleEdit, traceOther } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { describeEdit } from "../../trace/edits";
import { BLOCKS, capital, nodeLocation, number, signed, visible } from "../../tensors/format";
import { isMasked } from "../../trace/generation";
import type { Manifest, Part, StateRow, StatesGrid, TraceNode, VariantEffect } from "../../types";
import { Matrix, Scroll } from "../../views/Matrix";
import { Terms } from "../../views/Terms";
import { isNumber } from "../../views/Vector";
import { ErrorText } from "./Probability";

const SHOWN = 15;
const INSTEAD = "Predicts instead";

/** Whether an answer of a sweep is awaited, or why there is none. */
export function SweepState({ error }: { error: Parameters<typeof ErrorText>[0]["error"] }) {
  return error ? <ErrorText error={error} /> : <p class="note" aria-live="polite">Computing …</p>;
}

/** A button that makes edits, or removes them. */
export function Try({ edits: wanted, words }: { edits: readonly string[]; words: string }) {
  const made = useValue(edits, (all) => wanted.every((edit) => all.includes(edit)));
  const [edit] = wanted;
  return <button type="button" class="quiet sweep-part" aria-pressed={made} onClick={() => edit && toggleEdit(edit)}>{words}</button>;
}

function EffectCells({ effect, numeric }: { effect: VariantEffect; numeric: boolean }) {
  return (
    <>
      <td class="sweep-number">{signed(effect.change)}</td>
      <td>{(numeric || effect.n_changed > 0) && <>{!numeric && <><bdi>{visible(effect.before)}</bdi> → </>}<b><bdi>{visible(effect.after)}</bdi></b></>}</td>
    </>
  );
}

/** Each head and block switched off, each head alone, all heads of a block together. */
export function PartsView({ trace }: { trace: Manifest }) {
  const { value, error } = useResource(`parts/${trace.id}`, () => source.sweep({ trace: trace.id, kind: "parts" }));
  if (!value) return <SweepState error={error} />;
  const node = (step: string) => trace.nodes.find((one) => one.id === step)!;
  const numeric = isNumber(trace);
  const instead = <th scope="col">{numeric ? "Number" : INSTEAD}</th>;
  return (
    <>
      <p><Terms>
        Each head and each feed-forward block is switched off in turn. The number is the change of {numeric ? "the answer" : "the log-probability of what the model predicts"}; with initial weights no part changes it by more than {number(value.untrained)}. Heads can stand in for each
        other, so all heads of a block together, and each head with the others off, are measured too.
      </Terms></p>
      <PartsMaps parts={value.parts} node={node} />
      <Scroll class="sweep-scroll" label="Heads and blocks">
        <table class="sweep">
          <thead><tr><th scope="col">Part</th><th scope="col">Off</th>{instead}<th scope="col">Others off</th>{instead}</tr></thead>
          <tbody>
            {value.parts.map((part) => (
              <tr key={`${part.step}/${part.head}`} class={part.kind === "head" ? "" : "sweep-block"} data-part={part.off.edits.join(" ")} data-change={part.off.change}>
                <th scope="row">
                  <Try edits={part.off.edits} words={part.kind === "head" ? `${nodeLocation(node(part.step))}, head ${part.head}` : part.kind === "heads" ? "all of these heads" : nodeLocation(node(part.step))} />
                </th>
                <EffectCells effect={part.off} numeric={numeric} />
                {part.alone ? <EffectCells effect={part.alone} numeric={numeric} /> : <td colSpan={2} />}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** The changes of `off` as heat maps, one for each kind of block: layers × heads, with a column for the whole block. */
function PartsMaps({ parts, node }: { parts: readonly Part[]; node: (step: string) => TraceNode }) {
  const kinds = new Map<string, Part[]>();
  for (const part of parts) {
    const { stack, block } = node(part.step);
    const kind = `${stack}, ${block && BLOCKS[block]}`;
    kinds.set(kind, [...kinds.get(kind) ?? [], part]);
  }
  const limit = Math.max(1e-12, ...parts.map((part) => Math.abs(part.off.change)));
  return (
    <div class="parts-maps">
      {[...kinds].map(([kind, all]) => {
        const layers = [...new Set(all.map((part) => node(part.step).layer!))];
        const columns = [...new Set(all.map((part) => part.head ?? -1))].sort((a, b) => (a < 0 ? 1 : b < 0 ? -1 : a - b));
        const at = (layer: number, head: number) => all.find((part) => node(part.step).layer === layer && (part.head ?? -1) === head);
        const data = Float32Array.from(layers.flatMap((layer) => columns.map((head) => at(layer, head)?.off.change ?? 0)));
        return (
          <section key={kind}>
            <h3>{capital(kind)}</h3>
            <Matrix
              node={`parts/${kind}`} value={{ shape: [layers.length, columns.length], dtype: "f32", data }} scale="signed" limit={limit} numbers="toggle"
              label={`Change without each part, ${kind}`} rowLabels={layers.map((layer) => `layer ${layer}`)}
              colLabels={columns.map((head) => (head < 0 ? (columns.length > 1 ? "all" : "block") : `head ${head}`))}
            />
          </section>
        );
      })}
    </div>
  );
}

/** The heads that matter by the token they attend to. */
export function KeysView({ trace }: { trace: Manifest }) {
  const { value, error } = useResource(`keys/${trace.id}`, () => source.sweep({ trace: trace.id, kind: "keys" }));
  if (!value) return <SweepState error={error} />;
  const all = value.grids.flatMap((grid) => grid.effects.flat());
  const numeric = isNumber(trace);
  const strength = ({ change }: VariantEffect) => (numeric ? -Math.abs(change) : change);
  const strongest = [...all].sort((a, b) => strength(a) - strength(b)).slice(0, SHOWN);
  return (
    <>
      <p><Terms>Each head is kept from attending to each token, {all.length} edits in all; these {numeric ? "change the number" : "lower the log-probability of what the model predicts"} most.</Terms></p>
      <Scroll class="sweep-scroll" label="Attention to tokens">
        <table class="sweep">
          <thead><tr><th scope="col">Edit</th><th scope="col">Change</th><th scope="col">{numeric ? "Number" : INSTEAD}</th></tr></thead>
          <tbody>
            {strongest.map((effect) => (
              <tr key={effect.edits.join(" ")} data-part={effect.edits.join(" ")} data-change={effect.change}>
                <th scope="row"><Try edits={effect.edits} words={describeEdit(effect.edits[0]!, trace)} /></th>
                <EffectCells effect={effect} numeric={numeric} />
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** What the model would predict after each layer. */
export function LayersView({ trace }: { trace: Manifest }) {
  const { value, error } = useResource(`layers/${trace.id}`, () => source.sweep({ trace: trace.id, kind: "layers" }));
  if (!value) return <SweepState error={error} />;
  const written = trace.streams.at(-1)!.pieces;
  const numeric = isNumber(trace);
  return (
    <>
      <p><Terms>
        What the model would predict if only the first layers acted: the later ones are skipped, and the output reads the state as it
        is. Early rows are biased, since those states were not made for this reader.{!numeric && " Bold: the prediction of the whole model."}
      </Terms></p>
      {value.stacks.map(({ stack, rows }) => (
        <section key={stack}>
          <h2>{stack === "encoder" ? "Layers of the encoder" : "Layers of the decoder"}</h2>
          <Scroll class="sweep-scroll" label={`Layers of the ${stack}`}>
            <table class="sweep">
              <thead><tr><th scope="col">Layers</th>{value.positions.map((at, i) => <th key={i} scope="col">{at === null ? (numeric ? "number" : "prediction") : <>{isMasked(trace) ? "at" : "after"} <bdi>{visible(written[at])}</bdi></>}</th>)}</tr></thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={row.layer} data-layer={`${stack}/${row.layer}`}>
                    <th scope="row">{row.layer || "none"}</th>
                    {row.tokens.map((token, i) => (
                      <td key={i} title={numeric ? undefined : `log-probability of the answer ${number(row.log_probs[i]!)}, rank ${row.ranks[i]! + 1}`}>
                        {row.ranks[i] === 0 ? <b><bdi>{visible(token)}</bdi></b> : <bdi>{visible(token)}</bdi>}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </section>
      ))}
    </>
  );
}

/** The residual stream of two texts exchanged, state by state. */
export function StatesView({ trace }: { trace: Manifest }) {
  const second = useValue(other);
  const numeric = isNumber(trace);
  const { value, error } = useResource(second && `states/${trace.id}/${second.id}`, () => source.sweep({ trace: trace.id, kind: "states", other: second!.id }));
  return (
    <>
      <p><Terms>
        The state of one token after one layer is taken from a second text. Noising: the share of{" "}
        {numeric ? "the difference of both numbers that is lost" : "this text’s answer that is lost"}.
        Denoising: the share that comes back when only that state of this text is put into the second. 1 is all of it.
      </Terms></p>
      <SecondText key={second?.request.text} given={second?.request.text} />
      {value && (
        <>
          <p data-role="states">
            <b><bdi>{visible(value.answer)}</bdi></b> here, <b><bdi>{visible(value.other_answer)}</bdi></b> in the second text
            {value.position === null ? "" : `, ${isMasked(trace) ? "at" : "after"} position ${value.position}`}
            {numeric ? "" : `: logit difference ${signed(value.difference, 2)} and ${signed(value.other_difference, 2)}`}.
          </p>
          {value.grids.map((grid) => <StatesMaps key={grid.stream} grid={grid} trace={trace} />)}
        </>
      )}
      {second && !value && <SweepState error={error} />}
    </>
  );
}

function SecondText({ given }: { given: string | undefined }) {
  const [text, setText] = useState(given ?? "");
  return (
    <form class="edit-tools" onSubmit={(event) => {
      event.preventDefault();
      if (text) traceOther({ text });
    }}>
      <label>Second text <input class="sweep-text" dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      <button type="submit">Compare</button>
    </form>
  );
}

const MAPS = [["noising", "Noising"], ["denoising", "Denoising"]] as const;

function StatesMaps({ grid, trace }: { grid: StatesGrid; trace: Manifest }) {
  const labels = trace.streams.find((stream) => stream.name === grid.stream)?.pieces ?? [];
  return (
    <div class="columns">
      {MAPS.map(([name, title]) => (
        <section key={name}>
          <h3>{title}: {grid.stream}</h3>
          <Matrix
            node={`${name}/${grid.stream}`} value={toValue(grid.rows, name)} mask={toMask(grid.rows, name)} scale="signed" limit={1} label={`${title}, ${grid.stream}`} numbers="toggle"
            rowLabels={grid.rows.map(({ state }) => stateName(state))} colLabels={labels}
          />
        </section>
      ))}
    </div>
  );
}

const toValue = (rows: readonly StateRow[], name: "noising" | "denoising") => ({
  shape: [rows.length, rows[0]!.noising.length], dtype: "f32" as const, data: Float32Array.from(rows.flatMap((row) => row[name].map((share) => share ?? NaN))),
});

/** 0 for tokens without a partner in the second text. */
const toMask = (rows: readonly StateRow[], name: "noising" | "denoising") => ({
  shape: [rows.length, rows[0]!.noising.length], dtype: "u8" as const, data: Uint8Array.from(rows.flatMap((row) => row[name].map((share) => Number(share !== null)))),
});

/** "encoder.0.state": "layer 0". */
const stateName = (state: string) => (/\d+/.test(state) ? `layer ${/\d+/.exec(state)![0]}` : "embedding");

/** The effect of the edits in every checkpoint. */
export function CheckpointsView() {
  const after = useValue(edited);
  const made = useValue(edits).length > 0;
  const { value, error } = useResource(after && `checkpoints/${after.id}`, () => source.sweep({ trace: after!.id, kind: "checkpoints" }));
  if (!made) return <p class="note">Make an edit first: its effect is then measured at every saved point of training.</p>;
  if (!value) return <SweepState error={error} />;
  const numeric = value.unit === "number";
  const log_p = (x: number | null) => x !== null && <td class="sweep-number">{number(x)}</td>;
  return (
    <>
      <p><Terms>At every saved point of training, what it predicts{!numeric && " after each token that the trained model wrote, and the log-probability of those tokens"}.</Terms></p>
      <Scroll class="sweep-scroll" label="Training">
        <table class="sweep">
          <thead><tr><th scope="col">Step</th><th scope="col">Without the edits</th>{!numeric && <th scope="col">log p</th>}<th scope="col">With them</th>{!numeric && <th scope="col">log p</th>}</tr></thead>
          <tbody>
            {value.checkpoints.map(({ checkpoint, step, answer_before, answer_after, log_prob_before, log_prob_after }) => (
              <tr key={checkpoint}>
                <th scope="row">{checkpoint === "model" ? "best" : step}</th>
                <td dir="auto">{answer_before}</td>
                {log_p(log_prob_before)}
                <td dir="auto">{answer_after === answer_before ? "the same" : <b>{answer_after}</b>}</td>
                {log_p(log_prob_after)}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}
