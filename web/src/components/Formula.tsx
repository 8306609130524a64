/** The formula of a step in MathML, which browsers typeset themselves, with the paper's letters. */
import type { ComponentChildren } from "preact";
import { leaf } from "../steps";
import { PROBABILITIES } from "../check";
import type { TraceNode } from "../types";

type Kids = { children?: ComponentChildren };
const Row = ({ children }: Kids) => <mrow>{children}</mrow>;
const V = ({ children }: Kids) => <mi mathvariant="italic">{children}</mi>;
const Fn = ({ children }: Kids) => <mi mathvariant="normal">{children}</mi>;
const Eq = () => <mo>=</mo>;
const Op = ({ children }: Kids) => <mo>{children}</mo>;
const Sub = ({ of, by }: { of: ComponentChildren; by: ComponentChildren }) => <msub><mi>{of}</mi><mi>{by}</mi></msub>;
const T = ({ of }: { of: ComponentChildren }) => <msup>{of}<mi mathvariant="normal">T</mi></msup>;
const Parens = ({ children }: Kids) => <mrow><mo>(</mo>{children}<mo>)</mo></mrow>;

const NAMES: Record<string, ComponentChildren> = {
  q_proj: <Sub of="W" by="Q" />, k_proj: <Sub of="W" by="K" />, v_proj: <Sub of="W" by="V" />, out: <Sub of="W" by="O" />,
  w_in: <Sub of="W" by="1" />, w_gate: <Sub of="W" by="G" />, logits: <V>E</V>, head: <V>w</V>,
};
const LEFT: Record<string, string> = { q_proj: "Q", k_proj: "K", v_proj: "V", w_gate: "g", w_in: "h", logits: "z", head: "z" };

const wave = (by: string, name: string) => (
  <mtr><mtd>
    <Sub of="p" by={`t,${by}`} /><Eq /><Fn>{name}</Fn><Op>&#x2061;</Op>
    <mfrac><V>t</V><msup><mn>10000</mn><mrow><mn>2</mn><V>i</V><Op>/</Op><V>d</V></mrow></msup></mfrac>
  </mtd></mtr>
);

function body(node: TraceNode): ComponentChildren {
  const name = leaf(node);
  const letter = name[0] === "q" ? "q" : name[0] === "k" ? "k" : "v";
  switch (node.op) {
    case "ids":
      return <Row><Sub of="t" by="1" /><Op>,</Op><Sub of="t" by="2" /><Op>,</Op><Op>…</Op><Op>,</Op><Sub of="t" by="L" /><Eq /><mtext>tokenizer</mtext><Parens><mtext>text</mtext></Parens></Row>;
    case "lookup":
      return <Row><Sub of="x" by="t" /><Eq /><V>E</V><Op>[</Op><Sub of="id" by="t" /><Op>]</Op></Row>;
    case "scale":
      return node.block
        ? <Row><V>S</V><Eq /><mfrac><mrow><V>Q</V><T of={<mi>K</mi>} /></mrow><msqrt><Sub of="d" by="head" /></msqrt></mfrac></Row>
        : <Row><Sub of="x" by="t" /><Op>·</Op><msqrt><V>d</V></msqrt></Row>;
    case "positions":
      if (node.attrs.scheme !== "sinusoidal") return <Row><Sub of="p" by="t" /><Eq /><V>P</V><Op>[</Op><V>t</V><Op>]</Op></Row>;
      return <mtable columnalign="left">{wave("2i", "sin")}{wave("2i+1", "cos")}</mtable>;
    case "add":
      return name === "residual"
        ? <Row><V>x</V><Op>←</Op><V>x</V><Op>+</Op><Fn>{node.block === "ff" ? "FeedForward" : "Attention"}</Fn><Parens><V>x</V></Parens></Row>
        : <Row><Sub of="x" by="t" /><Eq /><Sub of="x" by="t" /><Op>+</Op><Sub of="p" by="t" /></Row>;
    case "layer_norm":
      return <Row><V>y</V><Eq /><mfrac><mrow><V>x</V><Op>−</Op><V>μ</V></mrow><msqrt><mrow><msup><V>σ</V><mn>2</mn></msup><Op>+</Op><V>ε</V></mrow></msqrt></mfrac><Op>·</Op><V>γ</V><Op>+</Op><V>β</V></Row>;
    case "rms_norm":
      return <Row><V>y</V><Eq /><mfrac><V>x</V><msqrt><mrow><Fn>mean</Fn><Parens><msup><V>x</V><mn>2</mn></msup></Parens><Op>+</Op><V>ε</V></mrow></msqrt></mfrac><Op>·</Op><V>γ</V></Row>;
    case "linear": {
      const weight = node.block === "ff" && name === "out" ? <Sub of="W" by="2" /> : (NAMES[name] ?? <V>W</V>);
      return <Row><V>{LEFT[name] ?? "y"}</V><Eq /><V>x</V><T of={weight} />{node.params.bias && <Row><Op>+</Op><V>b</V></Row>}</Row>;
    }
    case "split_heads":
      return <Row><msubsup><mi>{letter}</mi><V>t</V><mrow><Parens><V>h</V></Parens></mrow></msubsup><Eq /><Sub of={letter} by="t" /><Op>[</Op><V>h</V><V>E</V><Op>:</Op><Parens><V>h</V><Op>+</Op><mn>1</mn></Parens><V>E</V><Op>]</Op></Row>;
    case "rotate":
      return <Row><msub><msup><mi>{letter}</mi><Op>′</Op></msup><V>j</V></msub><Eq /><Sub of={letter} by="j" /><Fn>cos</Fn><Op>&#x2061;</Op><Sub of="θ" by="t,j" /><Op>∓</Op><Sub of={letter} by="j±E/2" /><Fn>sin</Fn><Op>&#x2061;</Op><Sub of="θ" by="t,j" /></Row>;
    case "dot":
      return <Row><V>P</V><Eq /><V>Q</V><T of={<mi>K</mi>} /></Row>;
    case "mask":
      return node.attrs.kind === "causal"
        ? <Row><Sub of="M" by="t,s" /><Eq /><Op>[</Op><V>s</V><Op>≤</Op><V>t</V><Op>]</Op></Row>
        : <Row><Sub of="M" by="s" /><Eq /><Op>[</Op><Sub of="t" by="s" /><Op>≠</Op><mtext>[PAD]</mtext><Op>]</Op></Row>;
    case "softmax": {
      const z = node.id === PROBABILITIES;
      const numerator = (by: string) => <msup><V>e</V>{z ? <Sub of="z" by={by} /> : <Sub of="S" by={`t,${by}`} />}</msup>;
      return <Row>{z ? <Sub of="p" by="i" /> : <Sub of="A" by="t,s" />}<Eq /><mfrac>{numerator(z ? "i" : "s")}<mrow><munder><Op>∑</Op><V>{z ? "j" : "r"}</V></munder>{numerator(z ? "j" : "r")}</mrow></mfrac></Row>;
    }
    case "mix":
      return <Row><V>C</V><Eq /><V>A</V><V>V</V></Row>;
    case "concat_heads":
      return <Row><V>C</V><Eq /><Op>[</Op><Sub of="C" by="1" /><Op>;</Op><Op>…</Op><Op>;</Op><Sub of="C" by="H" /><Op>]</Op></Row>;
    case "relu":
      return <Row><Fn>max</Fn><Parens><mn>0</mn><Op>,</Op><V>h</V></Parens></Row>;
    case "gelu":
      return <Row><V>h</V><Op>·</Op><Fn>Φ</Fn><Parens><V>h</V></Parens></Row>;
    case "swiglu":
      return <Row><mfrac><V>g</V><mrow><mn>1</mn><Op>+</Op><msup><V>e</V><mrow><Op>−</Op><V>g</V></mrow></msup></mrow></mfrac><Op>·</Op><V>h</V></Row>;
    case "pool":
      if (node.attrs.how === "mean") return <Row><V>c</V><Eq /><mfrac><mn>1</mn><V>L</V></mfrac><munder><Op>∑</Op><V>t</V></munder><Sub of="x" by="t" /></Row>;
      if (node.attrs.how === "max") return <Row><V>c</V><Eq /><munder><Fn>max</Fn><V>t</V></munder><Sub of="x" by="t" /></Row>;
      if (node.attrs.how === "first") return <Row><V>c</V><Eq /><Sub of="x" by="1" /></Row>;
      return <Row><V>c</V><Eq /><Op>[</Op><Fn>mean</Fn><Sub of="x" by="t" /><Op>;</Op><Fn>max</Fn><Sub of="x" by="t" /><Op>]</Op></Row>;
    case "pin_zero":
      return <Row><V>z</V><Eq /><Parens><mn>0</mn><Op>,</Op><V>s</V></Parens></Row>;
  }
}

export function Formula({ node }: { node: TraceNode }) {
  return <div class="formula"><math display="block">{body(node)}</math></div>;
}
