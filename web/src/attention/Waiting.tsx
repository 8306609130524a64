/** What has not arrived of the weights that are wanted, or why it will not. */

import type { AttentionLayer } from "./heads";
import type { Fetched } from "./useWeights";

export function Waiting({ fetched, wanted }: { fetched: Fetched; wanted: AttentionLayer[] }) {
  const [failed] = wanted.filter((layer) => fetched.errors.has(layer.weights));
  if (failed) return <p class="note note-bad">{`${failed.weights}: ${fetched.errors.get(failed.weights)}`}</p>;
  const here = wanted.filter((layer) => fetched.layers.has(layer.weights)).length;
  return here < wanted.length ? <p class="note">{`Fetching the weights: ${here} of ${wanted.length} blocks …`}</p> : null;
}
