/**
 * What the screens show in place of classes or tokens: of a bare encoder, whose output is the pooled vector of a text,
 * and of a model whose answer is a number.
 */
import { go, source } from "../state/page";
import { useResource } from "../state/resource";
import { isEmbedder } from "../trace/generation";
import type { Manifest } from "../types";

/** Whether the answer is a number. */
export const isNumber = (trace: Manifest) => isEmbedder(trace) && trace.nodes.some(({ id }) => id === "logits");

/** Why there is nothing on this screen. */
export function NoAnswer({ title, what, trace }: { title: string; what: string; trace: Manifest }) {
  if (isNumber(trace)) {
    return (
      <>
        <h1>{title}</h1>
        <p data-role="no-answer">The answer is a number, with no probability: <b>{trace.answer.headline}</b> = {trace.answer.detail}. That is the mean of the training numbers plus their standard deviation × the output.</p>
        <p><button type="button" class="link" onClick={() => go("step", { node: "logits" })}>Open the output</button></p>
      </>
    );
  }
  return (
    <>
      <h1>{title}</h1>
      <p data-role="no-answer">
        This model is a bare encoder: its output is one vector, and there is no answer to {what}.
        Every number up to the vector is on Flow, Attention and Step, and an edit shows how far the vector turns.
      </p>
      <p><button type="button" class="link" onClick={() => go("step", { node: "pooled" })}>Open the vector</button></p>
      <p class="note">A classifier that begins from it has an answer: <code>glassformer train classify --train-file data.csv --init-from RUN</code></p>
    </>
  );
}

/** How alike the vectors of two texts are. */
export function Vectors({ a, b }: { a: Manifest; b: Manifest }) {
  const { value } = useResource(`${a.id} ${b.id} pooled`, () => Promise.all([a, b].map(({ id }) => source.tensor(id, "pooled"))));
  const [va, vb] = value?.map(({ data }) => data) ?? [];
  const dot = (x: ArrayLike<number>, y: ArrayLike<number>) => Array.from(x).reduce((sum, one, i) => sum + one * y[i]!, 0);
  return (
    <section>
      <h2>Vectors of A and B</h2>
      <p data-role="cosine">
        {va && vb ? <>Cosine: <b>{(dot(va, vb) / Math.sqrt(dot(va, va) * dot(vb, vb))).toFixed(3)}</b>. It is 1 where both vectors have the same direction, and 0 where they are orthogonal.</> : "…"}
      </p>
      <p class="note">This model gives no probabilities to compare.</p>
    </section>
  );
}
