/**
 * Attention: which token takes from which. All heads as small pictures, one in full as a matrix and as lines; for a
 * translator the alignment of its words; and where information moved over all layers, which is not why.
 */
import { AlignmentView } from "../attention/AlignmentView";
import { FlowView } from "../attention/FlowView";
import { HeadsView } from "../attention/HeadsView";
import { viewOf, type View, type ViewName } from "../attention/view";
import { manifest, route, setParams } from "../state";

const NAMES: Record<ViewName, string> = { heads: "Heads", alignment: "Alignment", flow: "Where information moved" };

export function AttentionScreen() {
  const trace = manifest.value;
  if (!trace) return null;
  const { params } = route.value;
  const view = viewOf(trace, params);
  if (!view) return <p class="note">This trace holds no attention weights.</p>;
  const cross = view.groups.find((group) => group.kind === "cross");
  return (
    <div class="attention">
      <h1 class="visually-hidden">Attention</h1>
      <Toolbar view={view} />
      {view.name === "heads" && <HeadsView manifest={trace} view={view} />}
      {view.name === "alignment" && cross && <AlignmentView manifest={trace} cross={cross} params={params} hide={view.hide} />}
      {view.name === "flow" && <FlowView manifest={trace} groups={view.groups} hide={view.hide} />}
    </div>
  );
}

function Toolbar({ view }: { view: View }) {
  const cross = view.groups.some((group) => group.kind === "cross");
  const show = (name: ViewName) => setParams({ view: name === "heads" ? null : name, cell: null }, { push: true });
  return (
    <div class="attention-bar">
      <span class="choices" role="group" aria-label="Kind of attention">
        {view.groups.map((group) => (
          <button
            key={group.kind} type="button" class="quiet" data-kind={group.kind}
            aria-pressed={view.name === "heads" && group === view.group}
            onClick={() => setParams({ view: null, node: (group.layers[view.layer.layer] ?? group.layers[0])!.weights, cell: null }, { push: true })}
          >
            {group.title}
          </button>
        ))}
      </span>
      <span class="choices" role="group" aria-label="Derived from it">
        {(["alignment", "flow"] as const).filter((name) => name === "flow" || cross).map((name) => (
          <button key={name} type="button" class="quiet" data-view={name} aria-pressed={view.name === name} onClick={() => show(name)}>
            {NAMES[name]}
          </button>
        ))}
      </span>
      <label class="attention-hide">
        <input type="checkbox" checked={view.hide} onChange={(event) => setParams({ hide: event.currentTarget.checked ? 1 : null })} />
        Hide special tokens
      </label>
    </div>
  );
}
