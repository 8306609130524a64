/** The keyboard shortcuts, in a modal dialog, and the way to the tour. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { guide, openTour } from "../../state/guide";

const KEYS: [string, string][] = [
  ["1 … 8", "open a screen"],
  ["Space", "next step (Step), mask a word (Why)"],
  ["Shift Space", "previous step"],
  ["Enter", "arithmetic of the selected cell"],
  ["[ ]", "previous layer, next layer"],
  [", .", "previous head, next head"],
  ["← ↑ → ↓", "move to another cell or token"],
  ["x b k", "on Attention: switch off the head, block the selected key, next kind of attention"],
  ["← →", "on Training: read another step; Space plays the snapshots"],
  ["w", "edit by hand"],
  ["z v", "undo the last edit; show before, after or the difference"],
  ["g", "on Flow and Step: gradients of the answer to learn, or values"],
  ["?", "show this help"],
];

/** A modal dialog, opened at once; closing it also says so in `guide`. */
export function Dialog({ name, title, children }: { name: "help" | "share"; title: string; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby={`${name}-title`} onClose={() => guide.value === name && (guide.value = null)}>
      <h2 id={`${name}-title`}>{title}</h2>
      {children}
    </dialog>
  );
}

export function Help() {
  return (
    <Dialog name="help" title="Keys">
      <dl>
        {KEYS.map(([key, does]) => (
          <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
        <button type="button" class="quiet" data-role="tour" onClick={() => openTour("tour")}>Take the tour</button>
      </form>
    </Dialog>
  );
}
