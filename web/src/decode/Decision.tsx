/**
 * A classifier's one decision, taken apart: the pooled vector times the head's weights is a sum over tokens, plus a
 * bias, and becomes a probability. Every part is the model's own number; the sum is checked against its logit.
 */
import { hrefTo, route, setParams, useTensor } from "../state";
import type { Manifest, Prediction } from "../types";
import { contributions, softmax, type Contributions } from "./pooling";
import { label, percent, plain, signed } from "./numbers";
import { After } from "./PairBars";
import { Sigmoid } from "./Sigmoid";
import { TokenShares } from "./TokenShares";

export function Decision({ manifest }: { manifest: Manifest }) {
  const { params } = route.value;
  const prediction = manifest.predictions[0];
  if (!prediction) return <p>The model gave no prediction.</p>;
  const temperature = number(params["heat"], 1);
  const best = prediction.top[0]!;
  const chosen = prediction.top.find((c) => String(c.id) === params["class"]) ?? best;
  const rival = prediction.top.find((c) => c.id !== chosen.id)!;
  const logits = [...prediction.top].sort((a, b) => a.id - b.id);
  const p = softmax(logits.map((c) => c.logit), temperature);
  const binary = logits.length === 2;
  return (
    <>
      <header class="screen-head">
        <h1>Decode</h1>
        <p>
          A classifier does not write, it decides once: the vectors of all tokens are pooled into one, one linear layer turns that into
          {binary ? " a single logit" : ` ${logits.length} logits`}, and {binary ? "the logistic function" : "softmax"} turns {binary ? "it" : "them"} into probabilities.
        </p>
      </header>
      <div class="decision-columns">
        <TakenApart manifest={manifest} prediction={prediction} chosen={chosen.id} rival={rival.id} />
        <section aria-labelledby="probability-title">
          <h2 id="probability-title">From {binary ? "logit" : "logits"} to probability</h2>
          {binary && temperature > 0 && <Sigmoid logit={logits[1]!.logit - logits[0]!.logit} temperature={temperature} names={[logits[1]!.piece, logits[0]!.piece]} />}
          <label class="knob">
            <span class="knob-name">Temperature</span>
            <output class="knob-value">{temperature.toFixed(2)}</output>
            <input type="range" min={0} max={4} step={0.05} value={temperature} data-role="knob-temperature"
              onInput={(e) => setParams({ heat: Number(e.currentTarget.value) === 1 ? null : e.currentTarget.value })} />
            <span class="knob-says">
              {temperature === 1 ? "As the model was trained." : temperature === 0 ? "All on the largest logit." : temperature < 1 ? "Logits are divided by less than 1: surer." : "Logits are divided by more than 1: less sure. The order of the classes never changes."}
            </span>
          </label>
          <Classes prediction={prediction} p={p} chosen={chosen.id} temperature={temperature} />
        </section>
      </div>
    </>
  );
}

interface ClassesProps {
  prediction: Prediction;
  /** By class id. */
  p: number[];
  chosen: number;
  temperature: number;
}

function Classes({ prediction, p, chosen, temperature }: ClassesProps) {
  const many = prediction.top.length > 2;
  return (
    <>
      <ol class="classes" aria-label="Classes">
        {prediction.top.map((c, rank) => (
          <li key={c.id} class="class" data-chosen={c.id === chosen} data-heated={temperature !== 1}>
            <button type="button" class="class-pick" disabled={!many} aria-pressed={many ? c.id === chosen : undefined}
              title={many ? "take this class’s logit apart" : undefined} onClick={() => setParams({ class: c.id })}>
              <span class="class-name">{label(c.piece).replace(/▁/g, " ")}</span>
              <span class="pair-track"><span class="pair-before" style={{ width: `${100 * Math.exp(c.log_prob)}%` }} />
                {temperature !== 1 && <After range={[p[c.id]!, p[c.id]!]} width={(q) => `${100 * q}%`} />}</span>
              <span class="class-p" data-role={rank === 0 ? "probability" : undefined} data-value={rank === 0 ? p[c.id] : undefined}>{percent(p[c.id]!)}</span>
              <span class="class-logit">logit {plain(c.logit, 3)}</span>
            </button>
          </li>
        ))}
      </ol>
      {!many && <p class="quiet">Two classes share one logit: that of {label(prediction.top.find((c) => c.id === 0)?.piece ?? "the first")} is pinned to 0.</p>}
    </>
  );
}

interface ApartProps {
  manifest: Manifest;
  prediction: Prediction;
  chosen: number;
  rival: number;
}

function TakenApart({ manifest, prediction, chosen, rival }: ApartProps) {
  const stream = manifest.streams[0]!;
  const pooled = manifest.nodes.find((one) => one.op === "pool");
  const head = manifest.nodes.find((one) => one.op === "linear" && one.inputs[0] === pooled?.id);
  const x = useTensor(pooled?.inputs[0] ?? null, "", manifest);
  const weight = useTensor(head?.params["weight"] ?? null, "", manifest);
  const bias = useTensor(head?.params["bias"] ?? null, "", manifest);
  const how = String(pooled?.attrs["how"] ?? "");
  const names = new Map(prediction.top.map((c) => [c.id, label(c.piece)]));
  const rows = weight.value?.shape[0] ?? 0;
  const binary = rows === 1;
  const quantity = binary ? `the logit of ${names.get(1)}` : `logit of ${names.get(chosen)} minus logit of ${names.get(rival)}`;
  const told = (id: number): number => prediction.top.find((c) => c.id === id)?.logit ?? NaN;
  const model = binary ? told(1) - told(0) : told(chosen) - told(rival);
  const error = x.error ?? weight.error ?? bias.error;
  let parts: Contributions | null = null;
  if (x.value && weight.value && (bias.value || !head?.params["bias"]) && x.value.shape[0] === stream.ids.length) {
    const width = weight.value.shape[1] ?? 0;
    const w = Array.from({ length: width }, (_, j) => weight.value!.data[(binary ? 0 : chosen) * width + j]! - (binary ? 0 : weight.value!.data[rival * width + j]!));
    const b = bias.value ? (binary ? bias.value.data[0]! : bias.value.data[chosen]! - bias.value.data[rival]!) : 0;
    parts = contributions(x.value.data, stream.padding.map((pad) => !pad), how, w, b);
  }
  return (
    <section aria-labelledby="apart-title">
      <h2 id="apart-title">What each token adds to {quantity}</h2>
      <p>{SENTENCES[how] ?? ""} The parts and the bias sum to the logit.</p>
      {parts ? <TokenShares stream={stream} parts={parts} /> : <p class="quiet" role={error ? "alert" : undefined}>{error ?? (manifest.window ? "Only a window of this long text is shown, so the sum cannot be taken apart here." : pooled ? "Fetching the vectors." : "The pooled vector is not in this page.")}</p>}
      {parts && <Sum parts={parts} model={model} quantity={quantity} exported={x.value?.dtype === "f16"} />}
      <p class="quiet">
        This is arithmetic, not an explanation: through attention each of these vectors has already read the other tokens. What the answer
        hangs on is under <a href={hrefTo("why")} data-role="to-why">Why</a>.
      </p>
    </section>
  );
}

const SENTENCES: Record<string, string> = {
  mean: "The pooled vector is the mean of the token vectors x₁ … xₙ, so the logit w · mean(x) + b is a sum: token t adds w · xₜ / n.",
  max: "Each feature of the pooled vector is the largest among the tokens, so it belongs to the token that holds it: token t adds w · xₜ over its features.",
  "mean+max": "The pooled vector is the mean and the largest of each feature side by side: token t adds its share of the mean and the features where it is the largest.",
  first: "The pooled vector is that of the first token, so all of the logit comes from there.",
};

function Sum({ parts, model, quantity, exported }: { parts: Contributions; model: number; quantity: string; exported: boolean }) {
  const positive = parts.tokens.filter((v) => v > 0).reduce((a, b) => a + b, 0);
  const negative = parts.tokens.filter((v) => v < 0).reduce((a, b) => a + b, 0);
  const off = Math.abs(parts.logit - model);
  const ok = off <= (exported ? 5e-3 : 1e-4) * Math.max(1, positive - negative);
  return (
    <div class="sum" data-role="arithmetic">
      <p class="sum-line">
        <span><b>{signed(positive, 3)}</b> tokens for</span>
        <span><b>{signed(negative, 3)}</b> tokens against</span>
        <span><b>{signed(parts.bias, 3)}</b> bias</span>
        <span class="sum-total">= <b>{plain(parts.logit, 3)}</b> {quantity}</span>
      </p>
      <p class="check" data-check="decision" data-state={ok ? "ok" : "bad"} data-delta={off}>
        {ok ? "Added up in your browser; the model’s own number differs by" : "The sum disagrees with the model’s own number by"} {off.toExponential(1).replace("-", "−")}.
      </p>
    </div>
  );
}

const number = (text: string | undefined, otherwise: number): number => {
  const value = Number(text);
  return text === undefined || !Number.isFinite(value) || value < 0 ? otherwise : value;
};
