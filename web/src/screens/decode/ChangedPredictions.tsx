/** The Decode screen of a difference: how the probability of each class or next token changes, after minus before. */
import { passesOf } from "../../sources/difference";
import { route } from "../../state/page";
import { useValue } from "../../state/signals";
import { count, percent, points, visible } from "../../tensors/format";
import { changesOf } from "../../trace/changes";
import { isClassifier, isMasked, outputStream, predictionIndex } from "../../trace/generation";
import type { Manifest } from "../../types";
import { Bars } from "../../views/Bars";
import { PositionPicker } from "../../views/Choices";

const BARS = 14;

export function ChangedPredictions({ manifest }: { manifest: Manifest }) {
  const { before } = passesOf(manifest)!;
  const index = predictionIndex(manifest, useValue(route).params["position"]);
  const prediction = manifest.predictions[index];
  if (!prediction) return <p>There is no prediction, because the text is empty.</p>;
  const all = changesOf(before.predictions[index], prediction, "probability");
  const largest = [...all].sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, BARS);
  const position = prediction.position ?? 0;
  const decided = isClassifier(manifest);
  return (
    <>
      <h1>Decode</h1>
      <p>How your edits change the probability of each {decided ? "class" : "token"}, in percentage points (pp), after minus before.</p>
      {!decided && <PositionPicker trace={manifest} position={position} />}
      <h2>{decided ? "Classes" : <>{isMasked(manifest) ? "At" : "After"} <i><bdi>{visible(outputStream(manifest).pieces[position])}</bdi></i></>}</h2>
      <div class="decode-changes"><Bars
        label="Changes of the probabilities" signs limit={Math.abs(largest[0]?.change ?? 0) || 1}
        bars={largest.map(({ id, piece, change, before: was, after }) => ({
          key: id, label: piece, value: change, text: points(change), note: `${percent(was)} → ${percent(after)}`,
        }))}
      /></div>
      {!decided && all.length < manifest.model.vocab_size && (
        <p class="note">The largest changes of the {all.length} tokens of {count(manifest.model.vocab_size)} that are among the 50 most probable both before and after.</p>
      )}
      <p class="note">{!decided && !isMasked(manifest) && "The tokens, and how they were decoded, are those without your edits. "}For the probabilities themselves, show before or after.</p>
    </>
  );
}
