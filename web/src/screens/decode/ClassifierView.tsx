/**
 * The prediction of a classifier: the contribution of each token to a logit, and the probabilities. The sum of the
 * contributions is compared with the model's logit.
 */
import { hrefTo, route, setParams } from "../../state/page";
import { useTensor } from "../../state/resource";
import { useValue } from "../../state/signals";
import { number, percent, signed, tiny, visible } from "../../tensors/format";
import { contributions, type Contributions } from "../../tensors/pooling";
import { softmax } from "../../tensors/walk";
import type { Candidate, Labels, Manifest, Prediction, Stream } from "../../types";
import { Bars } from "../../views/Bars";
import { Tokens } from "../../views/Tokens";
import { SamplingSlider } from "./Sampling";

export function ClassifierView({ manifest }: { manifest: Manifest }) {
  const { params } = useValue(route);
  const prediction = manifest.predictions[0];
  if (!prediction) return <p>This trace has no prediction.</p>;
  const { temperature: fitted } = manifest;
  const initial = 1;
  const temperature = Math.max(0, Number(params["heat"] ?? initial) || 0);
  const heat = (value: number) => setParams({ heat: value === initial ? null : value });
  const chosen = prediction.top.find((c) => String(c.id) === params["class"]) ?? prediction.top[0]!;
  const logits = [...prediction.top].sort((a, b) => a.id - b.id);
  const p = softmax(logits.map((c) => c.logit), temperature);
  const [first] = logits;
  const binary = logits.length === 2;
  return (
    <>
      <h1>Decode</h1>
      <p>
        {manifest.labels?.each[0]!.threshold === null ? "A tag is predicted from the vector of the word’s first token" : "A classifier pools the token vectors into one"}, a linear layer maps that
        to {binary ? "a single logit" : `${logits.length} logits`}, and {binary ? "the logistic function" : "softmax"} gives probabilities.
      </p>
      <div class="columns">
        <ContributionsSection manifest={manifest} prediction={prediction} chosen={chosen} binary={binary} />
        <section aria-labelledby="probability-title">
          <h2 id="probability-title">From {binary ? "logit" : "logits"} to probability</h2>
          <SamplingSlider param="temperature" value={Number(temperature.toFixed(3))} onInput={heat} />
          {fitted && <p class="note">Fitted on validation: <button class="quiet" data-role="fitted" onClick={() => heat(fitted)}>{number(fitted)}</button></p>}
          <Bars
            label="Classes" bars={prediction.top.map((c, rank) => ({
              key: c.id, label: c.piece, value: p[c.id]!, text: percent(p[c.id]!), note: `logit ${number(c.logit)}`, strong: c === chosen,
              before: temperature === 1 ? undefined : Math.exp(c.log_prob),
              attributes: {
                ...(rank === 0 && { "data-role": "probability", "data-value": p[c.id]! }),
                ...(!binary && { "aria-pressed": c === chosen, title: "show the contributions to this class’s logit", onClick: () => setParams({ class: c.id }) }),
              },
            }))}
          />
          {binary && <p class="note">Two classes share one logit: the logit of {visible(first!.piece)} is fixed at 0.</p>}
        </section>
      </div>
      {manifest.labels?.each[0]!.threshold != null && <LabelsSection labels={manifest.labels} />}
    </>
  );
}

/** All labels that a text may have, the most probable first, with their thresholds. */
function LabelsSection({ labels: { shown, each } }: { labels: Labels }) {
  const order = each.map((label, i) => ({ ...label, i })).sort((a, b) => b.probability - a.probability).slice(0, 20);
  return (
    <section aria-labelledby="labels-title" data-role="labels">
      <h2 id="labels-title">Each label by itself</h2>
      <p>Each is a decision of its own, on the same vector; this page looks at {each[shown]!.name}. A label is answered from its threshold on, chosen on validation.</p>
      <Bars
        label="Labels" bars={order.map(({ name, probability, threshold, i }) => ({
          key: i, label: name, value: probability, text: percent(probability), note: `threshold ${percent(threshold!)}`, strong: probability >= threshold!,
        }))}
      />
    </section>
  );
}

/** What each token adds to a logit. `binary`: the head has one row, the logit of class 1; that of class 0 is fixed at 0. */
function ContributionsSection({ manifest, prediction, chosen, binary }: { manifest: Manifest; prediction: Prediction; chosen: Candidate; binary: boolean }) {
  const stream = manifest.streams[0]!;
  const pooled = manifest.nodes.find((one) => one.op === "pool");
  const head = manifest.nodes.find((one) => one.op === "linear" && one.inputs[0] === pooled?.id);
  const x = useTensor(pooled?.inputs[0] ?? null, "", manifest);
  const weight = useTensor(head?.params.weight ?? null, "", manifest);
  const bias = useTensor(head?.params.bias ?? null, "", manifest);
  const how = String(pooled?.attrs.how ?? ""), only = pooled?.attrs.token, error = x.error ?? weight.error ?? bias.error;
  const of = binary ? prediction.top.find((c) => c.id === 1)! : chosen, row = binary ? 0 : chosen.id, quantity = `the logit of ${visible(of.piece)}`;
  const why = <>For attributions, see <a href={hrefTo("why")} data-role="to-why">Why</a>.</>;
  let parts: Contributions | null = null;
  if (x.value && weight.value && (bias.value || !head?.params.bias) && x.value.shape[0] === stream.ids.length) {
    const width = weight.value.shape[1]!, w = weight.value.data.slice(row * width, (row + 1) * width);
    parts = contributions(x.value.data, stream.padding.map((pad, i) => (only == null ? !pad : i === only)), how, w, bias.value?.data[row] ?? 0);
  }
  if (manifest.nodes.some((one) => one.id === "pooler")) {
    return <section><h2>Pooler before the head</h2><p class="note">The pooler before the head has an activation, so a logit is no sum over the tokens. {why}</p></section>;
  }
  return (
    <section aria-labelledby="apart-title">
      <h2 id="apart-title">Contribution of each token to {quantity}</h2>
      <p>{only == null ? SENTENCES[how] : "Only the vector of the word’s first token is used."} With the bias, the contributions sum to the logit.</p>
      {parts ? <Parts stream={stream} parts={parts} model={of.logit} quantity={quantity} rounding={x.value?.dtype === "f16" ? 2e-3 : 1e-5} />
        : <p class="note" role={error ? "alert" : undefined}>{error?.message ?? "Loading …"}</p>}
      <p class="note">Contributions are not attributions: through attention, a vector depends on all tokens. {why}</p>
    </section>
  );
}

const SENTENCES: Record<string, string> = {
  mean: "Mean pooling: token t contributes w · xₜ / n.",
  max: "Max pooling: each feature counts for the token with the largest value.",
  "mean+max": "Mean and max pooling, concatenated: each maximum counts for the token with the largest value.",
  first: "First-token pooling: only the vector of the first token is used.",
};

/** `model` is the logit of the model; a saved page rounds to 16-bit floats. */
function Parts({ stream, parts: { tokens, bias, logit, size }, model, quantity, rounding }: { stream: Stream; parts: Contributions; model: number; quantity: string; rounding: number }) {
  const off = Math.abs(logit - model), ok = off <= rounding * size;
  return (
    <>
      <div class="written">
        <Tokens stream={stream} weights={tokens} limit={3.5 * Math.max(...tokens.map(Math.abs))} marks={tokens.map((value) => signed(value, 2))} />
      </div>
      <p data-role="arithmetic">
        {number(logit - bias)} from the tokens {signed(bias)} bias = <b>{number(logit)}</b>, {quantity}
      </p>
      <p class={`check check-${ok ? "ok" : "bad"}`} data-check="decision" data-state={ok ? "ok" : "bad"} data-delta={off}>
        <span class="check-mark" aria-hidden="true">{ok ? "✓" : "✗"}</span>
        {ok ? "Recomputed in your browser" : "The sum differs from the model’s logit"}, Δ {tiny(off)}.
      </p>
    </>
  );
}
