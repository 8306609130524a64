/** "Recomputed in your browser": a step's numbers made again here, with the largest difference; red when they disagree. */
import { checkNode, type CheckResult } from "../check";
import { exact, tiny } from "../format";
import { manifest, source, useAnswer } from "../state";
import type { TraceNode } from "../types";

const known = new Map<string, CheckResult>();

export function CheckLine({ node, position }: { node: TraceNode; position: number }) {
  const trace = manifest.value;
  const key = `${trace?.id}/${node.id}/${node.axes.at(-1)?.name === "vocab" ? position : ""}`;
  // The numbers first, their check when they are on the screen.
  const asked = useAnswer(trace && !known.has(key) ? key : null, async () => {
    const found = await checkNode(trace!, node, position, source);
    if (found.state !== "unavailable") known.set(key, found);
    return found;
  }, 30);
  const failed: CheckResult | null = asked.error === null ? null : { state: "bad", delta: null, words: asked.error };
  const found = known.get(key) ?? asked.value ?? failed;
  const state = found?.state ?? "pending";
  return (
    <p class={`check check-${state}`} data-check={node.id} data-state={state} data-delta={found?.delta == null ? undefined : exact(found.delta)}>
      <span class="check-mark" aria-hidden="true">{{ pending: "…", ok: "✓", bad: "✗", unavailable: "–" }[state]}</span>
      {words(found)}
    </p>
  );
}

function words(found: CheckResult | null): string {
  if (!found) return "Recomputing in your browser …";
  const what = found.words ? ` (${found.words})` : "";
  if (found.state === "unavailable") return `Not recomputed: ${found.words}.`;
  const delta = found.delta === null ? "" : `, max Δ ${tiny(found.delta)}`;
  if (found.state === "ok") return `Recomputed in your browser${what}${delta}.`;
  return `Recomputed in your browser${what}, and the numbers disagree${delta}.`;
}
