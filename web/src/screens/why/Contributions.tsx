/** The parts whose sum is a logit difference: what each adds by itself, and what is missing without it. */
import { route, setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { useValue } from "../../state/signals";
import { capital, nodeLocation, signed, tiny, visible } from "../../tensors/format";
import { isClassifier, isMasked, predictionIndex } from "../../trace/generation";
import { title } from "../../trace/steps";
import type { Contribution, Manifest } from "../../types";
import { Scroll } from "../../views/Matrix";
import { OutputTokens } from "../../views/Tokens";
import { Terms } from "../../views/Terms";
import { isNumber } from "../../views/Vector";
import { SweepState, Try } from "./Sweeps";

const ROWS = 24;

export function ContributionsView({ trace }: { trace: Manifest }) {
  const index = isClassifier(trace) ? 0 : predictionIndex(trace, useValue(route).params["position"]);
  const request = { trace: trace.id, kind: "contributions", prediction: index } as const;
  const { value, error, stale } = useResource(JSON.stringify(request), () => source.sweep(request), { within: trace.id });
  const position = value?.position ?? 0;
  const ordered = [...value?.parts ?? []].sort((a, b) => Math.abs(b.direct) - Math.abs(a.direct));
  const rest = ordered.slice(ROWS).reduce((sum, part) => sum + part.direct, 0);
  const limit = Math.abs(ordered[0]?.direct ?? 1) || 1;
  const numeric = isNumber(trace);
  const digits = numeric ? 3 : 2;
  return (
    <>
      <p><Terms>
        The residual stream is a sum, so {numeric ? "the number" : "a logit"} is one too: each head, block and bias adds a part (direct), with the norms as they
        were in this pass. Switching a part off also changes what later parts compute (total); with opposite signs, later parts make up for it.
      </Terms></p>
      {!isClassifier(trace) && !isMasked(trace) && !numeric && (
        <OutputTokens manifest={trace} index={index} label="Output token" onStep={(i) => setParams({ position: trace.predictions[i]!.position })} />
      )}
      {!value ? <SweepState error={error} /> : (
        <div data-stale={stale} aria-busy={stale}>
          <p data-role="contributions" data-value={value.difference}>
            {numeric
              ? `${capital(value.target)} minus ${value.contrast}`
              : <>Logit of <b><bdi>{visible(value.target)}</bdi></b> minus that of <b><bdi>{visible(value.contrast)}</bdi></b></>}
            {value.position === null ? "" : `, after position ${position}`}: <b>{signed(value.difference, digits)}</b>.
            The parts sum to it within {tiny(Math.abs(value.error))}.
          </p>
          <Scroll class="sweep-scroll" label="Contributions">
            <table class="sweep sweep-contributions" aria-label="Contributions">
              <thead><tr><th scope="col">Part</th><th scope="col">Direct</th><th scope="col">Total</th><th scope="col"><span class="visually-hidden">Direct, as a bar</span></th></tr></thead>
              <tbody>
                {ordered.slice(0, ROWS).map((part) => (
                  <tr key={part.name} data-part={part.name} data-direct={part.direct}>
                    <th scope="row">{part.edit ? <Try edits={[part.edit]} words={partName(part, trace)} /> : <span class="sweep-part">{partName(part, trace)}</span>}</th>
                    <td class="sweep-number">{signed(part.direct, digits)}</td>
                    <td class="sweep-number">{part.total !== null && signed(part.total, digits)}</td>
                    <td class="sweep-bar"><SignedBar share={part.direct / limit} /></td>
                  </tr>
                ))}
                {ordered.length > ROWS && (
                  <tr>
                    <th scope="row"><span class="sweep-part">{ordered.length - ROWS} others</span></th>
                    <td class="sweep-number">{signed(rest, digits)}</td>
                    <td />
                    <td class="sweep-bar"><SignedBar share={rest / limit} /></td>
                  </tr>
                )}
              </tbody>
            </table>
          </Scroll>
        </div>
      )}
    </>
  );
}

function SignedBar({ share }: { share: number }) {
  return <span class="bar-track term-signed" aria-hidden="true"><span class={share < 0 ? "bar-fill minus" : "bar-fill plus"} style={{ width: `${Math.min(1, Math.abs(share)) * 50}%` }} /></span>;
}

/** "Decoder layer 0, self-attention, head 2", "Decoder layer 0, self-attention, output projection: bias". */
function partName({ name }: Contribution, { nodes }: Manifest): string {
  const [, block, head] = /^((?:encoder|decoder)\.\d+\.(?:self|cross|ff))(?:\.head(\d+))?$/.exec(name) ?? [];
  const of = block && nodes.find(({ id }) => id.startsWith(`${block}.`));
  if (of) return `${nodeLocation(of)}${head === undefined ? "" : `, head ${head}`}`;
  const id = name.replace(/^edit of /, "");
  const node = nodes.find((one) => one.id === id || Object.values(one.params).includes(id));
  if (!node) return name;
  const words = node.id === "logits" ? nodeLocation(node) : `${nodeLocation(node)}, ${title(node).toLowerCase()}`;
  return id !== name ? `Edit: ${words}` : node.id === id ? words : `${words}: ${id.split(".").at(-1)}`;
}
