/**
 * Decode: how numbers become an answer. For a classifier, the one decision taken apart; for a model that writes,
 * every step's distribution, the search, and what another token would have led to.
 */
import { Decision } from "../decode/Decision";
import { Writing } from "../decode/Writing";
import { manifest } from "../state";

export function DecodeScreen() {
  const current = manifest.value;
  if (!current) return null;
  return current.model.task === "classify" ? <Decision key={current.id} manifest={current} /> : <Writing manifest={current} />;
}
