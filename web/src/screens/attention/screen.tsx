/**
 * The Attention screen: all heads as small heat maps and one in full, the alignment of a translation, and attention
 * rollout.
 */
import { route, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { type View, viewOf } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { AlignmentView } from "./AlignmentView";
import { FlowView } from "./FlowView";
import { HeadsView } from "./HeadsView";

export function AttentionScreen({ trace }: { trace: Manifest }) {
  const view = viewOf(trace, useValue(route).params);
  if (!view) return <p class="note">This trace holds no attention weights.</p>;
  return (
    <>
      <h1 class="visually-hidden">Attention</h1>
      <Toolbar view={view} />
      {view.name === "heads" && <HeadsView manifest={trace} view={view} />}
      {view.name === "alignment" && <AlignmentView manifest={trace} cross={view.cross!} hide={view.hide} />}
      {view.name === "flow" && <FlowView manifest={trace} view={view} />}
    </>
  );
}

function Toolbar({ view: { name, groups, group, cross, layer, hide } }: { view: View }) {
  return (
    <div class="attention-bar">
      <Choices
        name="kind" label="Kind of attention" options={groups.map(({ kind, title }) => [kind, title] as const)} chosen={name === "heads" ? group.kind : null}
        onChoose={(kind) => {
          const { layers } = groups.find((one) => one.kind === kind)!;
          setParams({ view: null, node: (layers[layer.layer] ?? layers[0]!).weights, cell: null }, { push: true });
        }}
      />
      <Choices
        name="view" label="Derived views" chosen={name} onChoose={(view) => setParams({ view, cell: null }, { push: true })}
        options={[...(cross ? [["alignment", "Alignment"] as const] : []), ["flow", "Rollout"]]}
      />
      <label class="attention-hide">
        <input type="checkbox" checked={hide} onChange={(event) => setParams({ hide: event.currentTarget.checked ? 1 : null })} />
        Hide special tokens
      </label>
    </div>
  );
}
