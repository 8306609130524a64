/** The keyboard shortcuts, in a modal dialog, and the way to the tour; and the style sheet of both. */
import { useEffect, useRef } from "preact/hooks";
import { guide, openTour } from "../../state/guide";
import sheet from "../../styles/tour.css";
import { adopt } from "../../views/Terms";

/** Adds the style sheet to the document. */
export const useStyles = () => adopt(sheet);

const KEYS: [string, string][] = [
  ["1 … 6", "open a screen"],
  ["Space", "next step (Step), mask a word (Why)"],
  ["Shift Space", "previous step"],
  ["Enter", "arithmetic of the selected cell"],
  ["[ ]", "previous layer, next layer"],
  [", .", "previous head, next head"],
  ["← ↑ → ↓", "move to another cell or token"],
  ["x b k", "on Attention: switch off the head, block the selected key, next kind of attention"],
  ["w", "edit by hand"],
  ["z v", "undo the last edit; show before, after or the difference"],
  ["?", "show this help"],
];

export function Help() {
  useStyles();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={() => guide.value === "help" && (guide.value = null)}>
      <h2 id="help-title">Keys</h2>
      <dl>
        {KEYS.map(([key, does]) => (
          <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
        <button type="button" class="quiet" data-role="tour" onClick={() => openTour("tour")}>Take the tour</button>
      </form>
    </dialog>
  );
}
