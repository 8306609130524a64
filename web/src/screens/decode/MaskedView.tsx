/** The predictions of a masked language model: at each position the most probable tokens, given the text on both sides. */
import { useScreenKeys } from "../../state/keys";
import { route, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { count, percent, visible } from "../../tensors/format";
import { predictionIndex } from "../../trace/generation";
import type { Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { OutputTokens } from "../../views/Tokens";

const BARS = 14;

export function MaskedView({ manifest }: { manifest: Manifest }) {
  const { predictions, generation, model, streams } = manifest;
  const index = predictionIndex(manifest, useValue(route).params["position"]);
  const prediction = predictions[index];
  const goTo = (i: number): void => setParams({ position: predictions[i]?.position ?? 0 });
  useScreenKeys((event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || (event.target instanceof Element && event.target.closest("input, nav"))) return false;
    goTo(Math.max(0, Math.min(predictions.length - 1, index + by)));
    return true;
  });
  if (!prediction) return <p>There is no prediction, because the text is empty.</p>;
  const { actual, top } = prediction;
  const at = prediction.position ?? 0;
  const masked = generation.masked?.includes(at);
  return (
    <>
      <h1>Decode</h1>
      <p>
        A masked language model predicts each token from the text on both sides of it: a probability for each of the {count(model.vocab_size)} tokens
        of the vocabulary. Those at [MASK] fill in the text.
      </p>
      <OutputTokens manifest={manifest} index={index} label="Text" onStep={goTo} />
      <section aria-labelledby="masked-title">
        <h2 id="masked-title">
          {masked ? "Masked token" : "Token"} {at} of {streams[0]!.pieces.length}{!masked && <>: <bdi>{visible(streams[0]!.pieces[at])}</bdi></>}
        </h2>
        <p aria-live="polite" data-role="probability" data-value={Math.exp((actual ?? top[0])?.log_prob ?? NaN)}>
          {actual
            ? <><b><bdi>{visible(actual.piece)}</bdi></b>: {percent(Math.exp(actual.log_prob))}, rank {count(actual.rank + 1)} of {count(model.vocab_size)}. The model reads this token, so it need not predict it.</>
            : masked ? <><b><bdi>{visible(top[0]?.piece)}</bdi></b>: {percent(Math.exp(top[0]?.log_prob ?? NaN))}.</> : "This token is never predicted."}
        </p>
        <Bars label="Most probable tokens" bars={top.slice(0, BARS).map((one) => ({
          key: one.id, label: one.piece, value: Math.exp(one.log_prob), strong: one.id === (actual ?? top[0])?.id,
        }))} />
      </section>
      {manifest.edited && <p class="note">The probabilities are those with your edits.</p>}
    </>
  );
}
