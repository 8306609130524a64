/**
 * A classifier's one decision, taken apart: the pooled vector times the head's weights is a sum over tokens, plus a
 * bias, and becomes a probability. Every part is the model's own number; the sum is checked against its logit.
 */
import { Bars } from "../components/Bars";
import { Tokens } from "../components/Tokens";
import { number, percent, signed, tiny, visible } from "../format";
import { hrefTo, route, setParams, useTensor } from "../state";
import type { Candidate, Manifest, Prediction } from "../types";
import { Knob } from "./Knobs";
import { contributions, softmax, type Contributions } from "./pooling";
import { Sigmoid } from "./Sigmoid";

export function Decision({ manifest }: { manifest: Manifest }) {
  const { params } = route.value;
  const prediction = manifest.predictions[0];
  if (!prediction) return <p>The model gave no prediction.</p>;
  const temperature = Math.max(0, Number(params["heat"] ?? 1) || 0);
  const chosen = prediction.top.find((c) => String(c.id) === params["class"]) ?? prediction.top[0]!;
  const logits = [...prediction.top].sort((a, b) => a.id - b.id);
  const p = softmax(logits.map((c) => c.logit), temperature);
  const [first, second] = logits;
  const binary = logits.length === 2;
  return (
    <>
      <h1>Decode</h1>
      <p>
        A classifier decides once: the vectors of all tokens are pooled into one, a linear layer turns that
        into {binary ? "a single logit" : `${logits.length} logits`}, and {binary ? "the logistic function" : "softmax"} makes probabilities.
      </p>
      <div class="columns">
        <TakenApart manifest={manifest} prediction={prediction} chosen={chosen} binary={binary} />
        <section aria-labelledby="probability-title">
          <h2 id="probability-title">From {binary ? "logit" : "logits"} to probability</h2>
          {binary && temperature > 0 && <Sigmoid logit={second!.logit - first!.logit} temperature={temperature} names={[second!.piece, first!.piece]} />}
          <Knob knob="temperature" value={temperature} onInput={(value) => setParams({ heat: value === 1 ? null : value })} />
          <Bars
            label="Classes" bars={prediction.top.map((c, rank) => ({
              key: c.id, label: c.piece, value: p[c.id]!, text: percent(p[c.id]!), note: `logit ${number(c.logit)}`, strong: c === chosen,
              before: temperature === 1 ? undefined : Math.exp(c.log_prob),
              attributes: {
                ...(rank === 0 && { "data-role": "probability", "data-value": p[c.id]! }),
                ...(!binary && { "aria-pressed": c === chosen, title: "take this class’s logit apart", onClick: () => setParams({ class: c.id }) }),
              },
            }))}
          />
          {binary && <p class="note">Two classes share one logit: that of {visible(first!.piece)} is pinned to 0.</p>}
        </section>
      </div>
    </>
  );
}

interface ApartProps {
  manifest: Manifest;
  prediction: Prediction;
  chosen: Candidate;
  /** The head has one row, the logit of class 1, and that of class 0 is pinned to 0. */
  binary: boolean;
}

function TakenApart({ manifest, prediction, chosen, binary }: ApartProps) {
  const stream = manifest.streams[0]!;
  const pooled = manifest.nodes.find((one) => one.op === "pool");
  const head = manifest.nodes.find((one) => one.op === "linear" && one.inputs[0] === pooled?.id);
  const x = useTensor(pooled?.inputs[0] ?? null, "", manifest);
  const weight = useTensor(head?.params["weight"] ?? null, "", manifest);
  const bias = useTensor(head?.params["bias"] ?? null, "", manifest);
  const how = String(pooled?.attrs["how"] ?? "");
  const of = binary ? prediction.top.find((c) => c.id === 1)! : chosen;
  const row = binary ? 0 : chosen.id;
  const quantity = `the logit of ${visible(of.piece)}`;
  let parts: Contributions | null = null;
  if (x.value && weight.value && (bias.value || !head?.params["bias"]) && x.value.shape[0] === stream.ids.length) {
    const width = weight.value.shape[1]!;
    const w = weight.value.data.slice(row * width, (row + 1) * width);
    parts = contributions(x.value.data, stream.padding.map((pad) => !pad), how, w, bias.value?.data[row] ?? 0);
  }
  const error = x.error ?? weight.error ?? bias.error;
  const missing = error ?? (manifest.window ? "Only a window of this long text is here: the sum cannot be taken apart." : "Fetching the vectors.");
  return (
    <section aria-labelledby="apart-title">
      <h2 id="apart-title">What each token adds to {quantity}</h2>
      <p>{SENTENCES[how]} With the bias that makes the logit.</p>
      {parts
        ? <Parts manifest={manifest} parts={parts} model={of.logit} quantity={quantity} exported={x.value?.dtype === "f16"} />
        : <p class="note" role={error ? "alert" : undefined}>{missing}</p>}
      <p class="note">
        This is arithmetic, not an explanation: through attention each vector has already read the other tokens. What the answer hangs
        on is under <a href={hrefTo("why")} data-role="to-why">Why</a>.
      </p>
    </section>
  );
}

const SENTENCES: Record<string, string> = {
  mean: "The mean of the token vectors is pooled, so token t adds w · xₜ / n.",
  max: "The largest value of each feature is pooled, and counts for the token that has it.",
  "mean+max": "The mean and the largest value of each feature are pooled side by side; the largest counts for the token that has it.",
  first: "The vector of the first token alone is pooled.",
};

interface PartsProps {
  manifest: Manifest;
  parts: Contributions;
  /** The same by the model's own logits. */
  model: number;
  quantity: string;
  exported: boolean;
}

function Parts({ manifest, parts, model, quantity, exported }: PartsProps) {
  const { tokens, bias, logit } = parts;
  const sizes = tokens.map(Math.abs);
  const off = Math.abs(logit - model);
  const ok = off <= (exported ? 5e-3 : 1e-4) * Math.max(1, sizes.reduce((a, b) => a + b, 0));
  return (
    <>
      <div class="written">
        <Tokens stream={manifest.streams[0]!} weights={tokens} limit={3.5 * Math.max(...sizes)} marks={tokens.map((value) => signed(value, 2))} />
      </div>
      <p data-role="arithmetic">
        {number(logit - bias)} from the tokens {signed(bias)} bias = <b>{number(logit)}</b>, {quantity}
      </p>
      <p class={`check check-${ok ? "ok" : "bad"}`} data-check="decision" data-state={ok ? "ok" : "bad"} data-delta={off}>
        <span class="check-mark" aria-hidden="true">{ok ? "✓" : "✗"}</span>
        {ok ? "Added up in your browser" : "The sum disagrees with the model’s own number"}, Δ {tiny(off)}.
      </p>
    </>
  );
}
