/** How a step is computed: its formula, its inputs, and its source lines. */
import type { VNode } from "preact";
import { shapeText } from "../../tensors/format";
import { formula, piecesOf, sentence } from "../../trace/descriptions";
import { nodeOf } from "../../trace/stepData";
import { gradientOf, isGradient, title } from "../../trace/steps";
import type { Manifest, SourceLine, TraceNode } from "../../types";
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

export function Formula({ node }: { node: TraceNode }) {
  return (
    <div class="formula">
      {formula(node).split("\n").map((line) => (
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
  if (op === "mask") return attrs.kind === "causal" ? "causal mask" : attrs.kind === "padding" ? "padding" : "";
  return TERMS[op] ?? (block === "ff" ? "feed-forward block" : block === "cross" ? "cross-attention" : "");
}

/** The inputs and parameters of the step with their gradients, and the terms that its title and description do not name. */
export function From({ step, trace }: { step: TraceNode; trace: Manifest }) {
  const inputs = step.inputs.flatMap((id) => nodeOf(trace, id) ?? []);
  const said = new Set<number>();
  termsIn(`${title(step)} ${sentence(step, trace)}`, said);
  const terms = termsOf(step).split(" · ").filter((name) => termsIn(name, new Set(said)).some((piece) => typeof piece !== "string")).join(" · ");
  const of = isGradient(step) ? nodeOf(trace, gradientOf(step)) : undefined;
  const users = trace.nodes.filter((one) => isGradient(step) && Object.values(one.params).includes(gradientOf(step)));
  const gradient = nodeOf(trace, `${step.id}.grad`);
  return (
    <dl class="step-from">
      {of && <div><dt>Of</dt><dd><Step node={of} /></dd></div>}
      {users.length > 0 && <div><dt>Used by</dt><dd><Steps nodes={users} /></dd></div>}
      {inputs.length > 0 && <div><dt>Inputs</dt><dd><Steps nodes={inputs} /></dd></div>}
      {Object.entries(step.params).map(([role, id]) => {
        const own = nodeOf(trace, `${id}.grad`);
        return (
          <div key={role}><dt>{role === "bias" ? "Bias" : "Weight"}</dt><dd>
            <code>{id}</code> {shapeText(trace.params[id]?.axes.map((axis) => axis.size) ?? [])}{own && <> · <a {...stepLink(own)}>its gradient</a></>}
          </dd></div>
        );
      })}
      {gradient && <div><dt>Gradient</dt><dd><a {...stepLink(gradient)}>of this step</a></dd></div>}
      {terms && <div><dt>Terms</dt><dd><Terms>{terms}</Terms></dd></div>}
    </dl>
  );
}

const Step = ({ node }: { node: TraceNode }) => <a {...stepLink(node)}>{isGradient(node) && "gradient of "}{title(node)}</a>;
const Steps = ({ nodes }: { nodes: TraceNode[] }) => <>{nodes.map((node, i) => <span key={node.id}>{i > 0 && ", "}<Step node={node} /></span>)}</>;

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
