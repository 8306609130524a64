/**
 * "Share": a link to what is shown, and the page as one file. A saved page has the link alone: it cannot make a file.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { base, edited, edits, hrefTo, other, paramsFromRequest, probeTexts, route, runFacts, source } from "../state/page";
import { useResource } from "../state/resource";
import { guide, openTour } from "../state/settings";
import { useValue } from "../state/signals";

declare const SAVED: boolean;

/** Offers a file of the browser's own to its downloads; the policies of the page allow this, as nothing is fetched. */
function download(html: string, name: string) {
  const url = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // a browser may ask first where to put it
}

/** What is stored: the text with its edits, the second text, and this screen without what would name another text. */
function toSave() {
  const texts = { ...paramsFromRequest({ text: "" }), ...paramsFromRequest({ text: "" }, "o.") };
  const view = hrefTo(route.value.screen, Object.fromEntries(Object.keys(texts).map((name) => [name, null])));
  const training = route.value.screen === "training" ? { training: probeTexts.value ?? [] } : {};
  return { request: (edited.value ?? base.value)!.request, other: other.value?.request ?? null, view, ...training };
}

export function Share() {
  return (
    <Dialog name="share" title="Share this view">
      <Link />
      {!SAVED && <Save />}
      <form method="dialog"><button type="submit" class="quiet">Close</button></form>
    </Dialog>
  );
}

function Link() {
  const field = useRef<HTMLInputElement>(null);
  const [said, setSaid] = useState("");
  const copy = async () => {
    field.current!.select();
    try {
      await navigator.clipboard.writeText(location.href);
      setSaid("Copied.");
    } catch {
      setSaid("This browser does not let the page copy: the link is selected, copy it with Ctrl+C or ⌘C."); // or has no clipboard here
    }
  };
  const where = !SAVED
    ? "It opens this screen, text and edits in this browser, while the command runs that serves the page. For another browser or computer, save the page."
    : location.protocol === "file:"
      ? "It opens this screen on this computer, while the file lies where it is now."
      : "It opens this screen for everyone who can open this page.";
  return (
    <section>
      <h3>Link</h3>
      <p>{where}</p>
      <p class="row">
        <input ref={field} type="text" readOnly aria-label="Link to this view" value={location.href} />
        <button type="button" data-role="copy-link" onClick={copy}>Copy link</button>
      </p>
      <p role="status" data-role="copied">{said}</p>
    </section>
  );
}

function Save() {
  const [times, setTimes] = useState(0);
  const { value: done, error } = useResource(times ? `save ${times}` : null, async () => {
    const file = await source.ask("save", toSave());
    const name = `${runFacts.value!.model.run.replace(/[^\p{L}\p{N}_-]+/gu, "-") || "page"}.html`;
    download(file.page, name);
    return { ...file, name };
  });
  const n = useValue(edits).length;
  const traced = useValue(n ? edited : base) !== null;
  const holds = ["this text", n ? `its ${n === 1 ? "edit" : `${n} edits`}` : "", useValue(other) ? "the second text of Compare" : "", route.value.screen === "training" ? "the curves and answers of the training" : ""].filter(Boolean);

  const waits = times > 0 && !done && !error;
  return (
    <section>
      <h3>File</h3>
      <p>
        One HTML file that opens in any browser, without this program and without a network. It holds {new Intl.ListFormat("en-GB").format(holds)}, with the numbers of each step
        and the weights that fit, and begins at this screen. Other texts, other settings and new edits need this program.
      </p>
      <p><button type="button" data-role="save-page" disabled={waits || !traced} onClick={() => setTimes(times + 1)}>Save page</button></p>
      <p role="status" data-role="saved">
        {waits && "Computing the attributions of the words, for up to 10 seconds …"}
        {done && `${done.name} was given to the browser's downloads: ${(new Blob([done.page]).size / 1e6).toFixed(1)} MB.`}
        {error && [error.message, error.hint].filter(Boolean).join(": ")}
      </p>
      {done && done.dropped.length > 0 && (
        <details data-role="lacks">
          <summary>What the file lacks</summary>
          <ul>{done.dropped.map((sentence) => <li key={sentence}>{sentence}</li>)}</ul>
        </details>
      )}
    </section>
  );
}

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
function Dialog({ name, title, children }: { name: "help" | "share"; title: string; children: ComponentChildren }) {
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
