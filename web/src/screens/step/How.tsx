/** How a step is computed: its formula, its inputs, and its source lines. */
import type { VNode } from "preact";
import { shapeText } from "../../tensors/format";
import { formula, piecesOf, sentence } from "../../trace/descriptions";
import { title } from "../../trace/steps";
import type { Manifest, ModelInfo, SourceLine, TraceNode } from "../../types";
import { stepLink } from "../../views/interaction";
import { Terms, termsIn } from "../../views/Terms";

/**
 * Converts a formula in a subset of TeX to MathML: \frac{a}{b}, \sqrt{a}, {groups}, x_sub^sup (in this order), ~ for a
 * space. Single letters are italic, words upright.
 */
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
    return /\p{L}/u.test(token) ? <mi mathvariant={token === "T" ? "normal" : undefined}>{token}</mi> : <mo {...(/[=+∓·←]/.test(token) && { form: "infix" })}>{token}</mo>;
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

export function Formula({ node, model }: { node: TraceNode; model: ModelInfo }) {
  return (
    <div class="formula">
      {formula(node, model).split("\n").map((line) => (
        <div key={line}>{piecesOf(line).map((piece, i) => <math key={i} displaystyle>{typeset(piece)}</math>)}</div>
      ))}
    </div>
  );
}

/** Terms that the formula of an operation is about, between " · ". */
const TERMS: Partial<Record<TraceNode["op"], string>> = {
  lookup: "embedding", positions: "positional encoding", layer_norm: "LayerNorm", dot: "query, key, value", softmax: "softmax", mix: "query, key, value · attention",
};

function termsOf({ op, attrs, block }: TraceNode): string {
  if (op === "mask") return attrs.kind === "causal" ? "causal mask" : "padding";
  return TERMS[op] ?? (block === "ff" ? "feed-forward block" : block === "cross" ? "cross-attention" : "");
}

/** The inputs and parameters of the step, and the terms that its title and description do not name. */
export function From({ step, trace }: { step: TraceNode; trace: Manifest }) {
  const inputs = trace.nodes.filter((one) => step.inputs.includes(one.id));
  const said = new Set<number>();
  termsIn(`${title(step)} ${sentence(step, trace)}`, said);
  const terms = termsOf(step).split(" · ").filter((name) => termsIn(name, new Set(said)).some((piece) => typeof piece !== "string")).join(" · ");
  return (
    <dl class="step-from">
      {inputs.length > 0 && (
        <div><dt>Inputs</dt><dd>{inputs.map((input, i) => <span key={input.id}>{i > 0 && ", "}<a {...stepLink(input)}>{title(input)}</a></span>)}</dd></div>
      )}
      {Object.entries(step.params).map(([role, id]) => (
        <div key={role}><dt>{role === "bias" ? "Bias" : "Weight"}</dt><dd><code>{id}</code> {shapeText(trace.params[id]?.axes.map((axis) => axis.size) ?? [])}</dd></div>
      ))}
      {terms && <div><dt>Terms</dt><dd><Terms>{terms}</Terms></dd></div>}
    </dl>
  );
}

/** Source code, with the line that computes the step highlighted. */
export function CodeView({ source }: { source: SourceLine }) {
  return (
    <figure class="code" data-role="code">
      <figcaption>{source.file}, line {source.mark}</figcaption>
      <pre>
        {source.code.trimEnd().split("\n").map((row, i) => {
          const line = source.line + i;
          const Row = line === source.mark ? "mark" : "span";
          // A long line wraps, further in than it begins.
          return <Row key={i} data-line={line} style={{ "--indent": row.search(/\S|$/) + 4 }}><span class="code-number" aria-hidden="true">{line}</span>{row}{"\n"}</Row>;
        })}
      </pre>
    </figure>
  );
}
