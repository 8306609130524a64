/** The keys, in a dialog that the browser itself makes modal. */
import { useRef } from "preact/hooks";

const KEYS: [string, string][] = [
  ["1 … 6", "the screens"],
  ["Space", "the next step (Step), erase a word (Why)"],
  ["Shift Space", "the step before"],
  ["Enter", "the arithmetic of the chosen cell"],
  ["[ ]", "the layer before, the next"],
  [", .", "the head before, the next"],
  ["← ↑ → ↓", "another cell, another token"],
  ["?", "this help"],
];

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button type="button" class="quiet" onClick={() => dialog.current?.showModal()}>Keys</button>
      <dialog ref={dialog} class="help" aria-labelledby="help-title">
        <h2 id="help-title">Keys</h2>
        <dl>
          {KEYS.map(([key, does]) => (
            <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>
          ))}
        </dl>
        <form method="dialog"><button type="submit">Close</button></form>
      </dialog>
    </>
  );
}
