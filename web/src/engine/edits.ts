/**
 * Edits of a forward pass: `encoder.0.self.head2=0` as a replacement of steps while a program is executed
 * (`explain/edits/grammar.py`, `apply.py`), what they change, and the same kind of edit all over a model.
 */
import { type TensorValue, sliceOffsets } from "../tensors/tensor";
import type { Values } from "../tensors/walk";
import type { StreamName, TraceNode, WhatIf } from "../types";
import type { Steps } from "./program";
import { Refused } from "./texts";

type Kind = WhatIf["applied"][number]["kind"];

interface Edit {
  step: string;
  slice: string;
  kind: Kind;
  number: number;
  /** The slice of the second text's step. */
  other: string;
}

const NUMBER = "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?";
const EDIT = new RegExp(`^([A-Za-z0-9_.*]+)(?:\\[([a-z0-9_:;.\\-]*)\\])?(?:=(B|mean|blocked|skip)(?:\\[([a-z0-9_:;.\\-]*)\\])?|=(${NUMBER})|\\*(${NUMBER}))$`);
const HINT = "write a step, a slice and =NUMBER, *NUMBER, =B, =blocked, =skip: decoder.1.cross.head2=0";
const MOST = 1e4;
/** What scores of blocked keys are set to: a quarter of the lowest 32-bit float. */
const BLOCKED = -(2 - 2 ** -23) * 2 ** 125;

function parse(text: string): Edit {
  const [, step, slice = "", word, other = "", value, factor] = EDIT.exec(text.trim()) ?? [];
  if (!step || (other && word !== "B")) throw new Refused(`the edit ${text.slice(0, 80)} is malformed`, HINT);
  const number = Number(value ?? factor ?? 0);
  if (Math.abs(number) > MOST) throw new Refused(`the number of an edit must be from ${-MOST} to ${MOST}, not ${number}`);
  return { step, slice, kind: (word as Kind | undefined) ?? (value === undefined ? "scale" : "set"), number, other };
}

export const usable = (node: TraceNode) => node.editable;

/** The last step of a stream's embedding. */
const embedded = (nodes: readonly TraceNode[], stream: string) => nodes.findLast((node) => node.stack === stream && node.editable)?.id ?? "";

function withoutAlias({ step, slice }: Edit, nodes: readonly TraceNode[]): [string, string] {
  const isPreNorm = (nodes.find(({ id }) => /\.self\.(norm|residual)$/.test(id))?.id ?? "").endsWith(".norm");
  const [, place, alias, index] = /^(.+)\.(head|neuron|branch|state)(\d*)$/.exec(step) ?? [];
  if (alias === "branch" && !index) return [`${place}.out`, slice];
  if (alias === "state" && !index) return [`${place}.ff.${isPreNorm ? "residual" : "norm"}`, slice];
  if ((alias === "head" || alias === "neuron") && index) return [`${place}.${alias === "head" ? "context" : "hidden"}`, [`${alias === "head" ? "head" : "hidden"}:${index}`, slice].filter(Boolean).join(";")];
  if (step === "memory") return [nodes.findLast(({ id }) => id === "encoder.norm" || /^encoder\.\d+\.ff\.(norm|residual)$/.test(id))?.id ?? step, slice];
  if (/^(embedding|source|target)$/.test(step)) return [embedded(nodes, step === "embedding" ? "text" : step), slice];
  return [step, slice];
}

/** The edit for each step that it names. */
function resolve(edit: Edit, nodes: readonly TraceNode[]): Edit[] {
  const [step, slice] = withoutAlias(edit, nodes), parts = step.split(".").map((part) => new RegExp(`^${part.replaceAll("*", ".*")}$`));
  const found = nodes.filter(({ id }) => {
    const own = id.split(".");
    return own.length === parts.length && parts.every((part, i) => part.test(own[i]!));
  });
  if (!found.length) throw new Refused(`no step is called ${edit.step}`);
  for (const node of found) {
    if (node.op === "mask") throw new Refused(`${node.id} cannot be edited, as heads share it`, "block scores: encoder.0.self.scores[key:0]=blocked");
    if (!node.editable) throw new Refused(`${node.id} is only recorded, and the forward pass does not use it`);
    if (edit.kind === "blocked" && node.site !== "scores") throw new Refused(`only scores can be blocked, not ${node.id}`, "as in: encoder.0.self.scores[key:0]=blocked");
    if (edit.kind === "skip" && !/^(encoder|decoder)\.([0-9]+|\*)\.state$/.test(edit.step)) throw new Refused(`only a whole layer can be skipped, not ${edit.step}`, "as in: encoder.1.state=skip");
    if (edit.kind === "mean") throw new Refused("=mean averages over the texts of the run, which this page does not hold", "use =0, or =B with a second text");
    if (node.value !== "f32" && edit.kind !== "set") throw new Refused(`${node.id} holds no decimal numbers, so it can only be set`, "as in: …=0");
  }
  return found.map(({ id }) => ({ ...edit, step: id, slice }));
}

/** The residual stream that a layer reads, given the one that it writes. */
function stateBefore(id: string, nodes: readonly TraceNode[]): string {
  const [stack, layer, block, step] = id.split(".");
  if (Number(layer)) return `${stack}.${Number(layer) - 1}.${block}.${step}`;
  return embedded(nodes, nodes.find((node) => node.id === `${stack}.0.self.residual`)!.axes.find((axis) => axis.stream)!.stream!);
}

const weightsOf = (scores: string) => `${scores.slice(0, scores.lastIndexOf(".") + 1)}weights`;
const namesOf = (node: TraceNode) => node.axes.map(({ name }) => name);

/** Edits of one text, which replace steps as they are computed. */
export class Edits {
  readonly texts: string[];
  private plan = new Map<string, { number: number; edit: Edit; other: Steps | null }[]>();
  private before = new Map<string, string>();
  private states: Steps = new Map();
  private blocked = new Map<string, number[]>();
  private fired = new Set<number>();
  private changed = new Set<number>();

  /** `first` act before, as those of an edited text that is edited again. */
  constructor(edits: readonly string[], private nodes: readonly TraceNode[], other: { nodes: readonly TraceNode[]; steps: Steps } | null = null) {
    this.texts = edits.map((text) => text.trim());
    edits.forEach((text, number) => {
      for (const edit of resolve(parse(text), nodes)) {
        const node = this.node(edit.step), here = this.places(node, edit.slice, node.axes.map(({ size }) => size));
        if (edit.kind === "B") {
          const theirs = other?.nodes.find(({ id }) => id === edit.step);
          if (!theirs) throw new Refused(`${text}: there is no second text with the step ${edit.step}`, "give a second text, whose values are taken");
          const taken = this.places(theirs, edit.other || edit.slice, theirs.axes.map(({ size }) => size));
          if (taken.length !== here.length) throw new Refused(`${text}: the slice has ${here.length} numbers here and ${taken.length} in the second text`, "name a slice of the second text that is as large: =B[token:0-3]");
        }
        this.plan.set(edit.step, [...(this.plan.get(edit.step) ?? []), { number, edit, other: other?.steps ?? null }]);
        if (edit.kind === "skip") this.before.set(edit.step, stateBefore(edit.step, nodes));
      }
    });
    this.other = other?.nodes ?? [];
  }

  private other: readonly TraceNode[];
  private node = (id: string) => this.nodes.find((node) => node.id === id)!;
  private places = (node: TraceNode, slice: string, shape: readonly number[]) => sliceOffsets([...shape], namesOf(node), slice);

  /** The steps that an edit replaces or follows. */
  get steps(): string[] {
    return [...this.plan.keys()];
  }

  get unchanged(): string[] {
    return this.texts.filter((_, number) => !this.changed.has(number));
  }

  /** An edit whose step was not reached. */
  get idle(): string | undefined {
    return this.texts.find((_, number) => !this.fired.has(number));
  }

  /** An edit that names positions of a stream, which fits only a pass over all its tokens. */
  ofPositions(stream: StreamName): string | undefined {
    for (const [step, planned] of this.plan) for (const { number, edit } of planned) {
      const axes = this.node(step).axes.filter((axis) => axis.stream === stream).map(({ name }) => name as string);
      if (axes.length && (edit.kind === "B" || edit.slice.split(";").some((part) => axes.includes(part.split(":")[0]!)))) return this.texts[number];
    }
    return undefined;
  }

  get applied(): WhatIf["applied"] {
    const found: WhatIf["applied"] = [], blocked: WhatIf["applied"] = [];
    for (const [step, planned] of this.plan) for (const { number, edit: { slice, kind, number: of } } of planned) {
      found.push({ edit: number, step, slice, kind, number: of, source: kind === "skip" ? this.before.get(step)! : step });
      if (kind === "blocked") blocked.push({ edit: number, step: weightsOf(step), slice, kind: "set", number: 0, source: weightsOf(step) });
    }
    return [...found, ...blocked];
  }

  tap = (id: string, value: Values): Values => {
    for (const { number, edit, other } of this.plan.get(id) ?? []) {
      const edited = this.apply(edit, value, other);
      this.fired.add(number);
      if (edited.data.length !== value.data.length || Array.prototype.some.call(edited.data, (x, i) => x !== value.data[i])) this.changed.add(number);
      value = edited;
    }
    if ([...this.before.values()].includes(id)) this.states.set(id, value);
    const none = this.blocked.get(id);
    if (!none) return value;
    const data = Float32Array.from(value.data);
    for (const at of none) data[at] = 0;
    return { ...value, data };
  };

  private apply({ step, slice, kind, number, other: theirSlice }: Edit, value: Values, other: Steps | null): Values {
    if (kind === "skip") return this.states.get(this.before.get(step)!)!;
    const places = this.places(this.node(step), slice, value.shape);
    const data = (value.data as TensorValue["data"]).slice() as Float32Array;
    if (kind === "B") {
      const theirs = other!.get(step)!, taken = this.places(this.other.find(({ id }) => id === step)!, theirSlice || slice, theirs.shape);
      places.forEach((at, i) => (data[at] = theirs.data[taken[i]!]!));
    } else for (const at of places) data[at] = kind === "scale" ? data[at]! * number : kind === "set" ? number : BLOCKED;
    if (kind === "blocked") this.blocked.set(weightsOf(step), [...(this.blocked.get(weightsOf(step)) ?? []), ...places]);
    return { ...value, data };
  }
}

/** The steps that do not depend on any of these. */
export function unaffected(nodes: readonly TraceNode[], steps: Steps, edited: readonly string[]): Steps {
  const changed = new Set(edited);
  for (const { id, inputs } of nodes) if (inputs.some((one) => changed.has(one))) changed.add(id);
  return new Map([...steps].filter(([id]) => !changed.has(id)));
}
