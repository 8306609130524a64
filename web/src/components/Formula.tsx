/** A step's formula, written in a small part of TeX in `steps.ts`, as MathML, which browsers typeset themselves. */
import type { VNode } from "preact";
import { formula } from "../steps";
import type { ModelFacts, TraceNode } from "../types";

/** \frac{a}{b}, \sqrt{a}, {groups}, x_sub^sup (in this order), ~ for a space; a letter is slanted, a word upright. */
function typeset(tex: string): VNode {
  const tokens = tex.match(/\\\w+|[a-z]+|\d+|\S/gi) ?? [];
  const given = (token: string) => tokens[0] === token && tokens.shift();
  const row = () => {
    const parts: VNode[] = [];
    while (tokens.length && !given("}")) parts.push(scripted());
    return <mrow>{parts}</mrow>;
  };
  const atom = (): VNode => {
    const token = tokens.shift() ?? "";
    if (token === "{") return row();
    if (token === "\\frac") return <mfrac>{atom()}{atom()}</mfrac>;
    if (token === "\\sqrt") return <msqrt>{atom()}</msqrt>;
    if (token === "~") return <mspace width="0.25em" />;
    if (/\d/.test(token)) return <mn>{token}</mn>;
    return /\p{L}/u.test(token) ? <mi mathvariant={token === "T" ? "normal" : undefined}>{token}</mi> : <mo>{token}</mo>;
  };
  const scripted = (): VNode => {
    const below = /^(∑|max|mean)$/.test(tokens[0] ?? "");
    const base = atom();
    const sub = given("_") && atom();
    const sup = given("^") && atom();
    if (sub && sup) return <msubsup>{base}{sub}{sup}</msubsup>;
    if (sub) return below ? <munder>{base}{sub}</munder> : <msub>{base}{sub}</msub>;
    return sup ? <msup>{base}{sup}</msup> : base;
  };
  return row();
}

export function Formula({ node, model }: { node: TraceNode; model: ModelFacts }) {
  return <div class="formula">{formula(node, model).split("\n").map((line) => <math key={line} display="block">{typeset(line)}</math>)}</div>;
}
