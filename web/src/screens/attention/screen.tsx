/** The Attention screen: all heads as small heat maps and one in full. */
import { route, setParams } from "../../state/page";
import { useValue } from "../../state/signals";
import { type AttentionGroup, type View, viewOf } from "../../trace/heads";
import type { Manifest } from "../../types";
import { Choices } from "../../views/Choices";
import { HeadsView } from "./HeadsView";

export function AttentionScreen({ trace }: { trace: Manifest }) {
  const view = viewOf(trace, useValue(route).params);
  if (!view) return <p class="note">This trace holds no attention weights.</p>;
  return (
    <>
      <h1 class="visually-hidden">Attention</h1>
      <Toolbar view={view} />
      <HeadsView manifest={trace} view={view} onNextKind={() => openKind(view, view.groups[(view.groups.indexOf(view.group) + 1) % view.groups.length]!)} />
    </>
  );
}

function openKind({ layer }: View, { layers }: AttentionGroup) {
  setParams({ node: (layers[layer.layer] ?? layers[0]!).weights, cell: null }, { push: true });
}

function Toolbar({ view }: { view: View }) {
  const { groups, group, hide } = view;
  return (
    <div class="attention-bar">
      <Choices
        name="kind" label="Kind of attention" options={groups.map(({ kind, title }) => [kind, title] as const)} chosen={group.kind}
        onChoose={(kind) => openKind(view, groups.find((one) => one.kind === kind)!)}
      />
      <label class="attention-hide">
        <input type="checkbox" checked={hide} onChange={(event) => setParams({ hide: event.currentTarget.checked ? 1 : null })} />
        Hide special tokens
      </label>
    </div>
  );
}
