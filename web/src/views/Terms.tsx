/** Terms in running text: each is a button with a dotted underline, which shows the definition from the glossary. */
import { type ComponentChild, type ComponentChildren, Fragment } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { TERMS } from "../terms";

/** Each term as a group of its own, in the order of TERMS, so that the group says which one was found. */
const ANY = new RegExp(`(?<![\\w-])(?:${TERMS.map(([, words]) => `((?:${words})s?)`).join("|")})(?![\\w-])`, "gi");

/** The text in pieces, of which the terms are pairs of the index in TERMS and the word. A term in `seen` stays text, and is added to it. */
export function termsIn(text: string, seen = new Set<number>()): (string | [number, string])[] {
  const pieces: (string | [number, string])[] = [];
  let end = 0;
  for (const match of text.matchAll(ANY)) {
    const { index, 0: word } = match;
    const term = match.findIndex((group, i) => i > 0 && group !== undefined) - 1;
    if (seen.has(term)) continue;
    seen.add(term);
    pieces.push(text.slice(end, index), [term, word]);
    end = index + word.length;
  }
  return [...pieces, text.slice(end)].filter(Boolean);
}

const flat = (one: ComponentChildren): ComponentChild[] =>
  (Array.isArray(one) ? one.flatMap(flat) : one && typeof one === "object" && "type" in one && one.type === Fragment ? flat(one.props.children) : [one as ComponentChild]);

/** Shows the terms in those children that are text, each where it occurs first, except those that `after` has. */
export function Terms({ children, after = "" }: { children: ComponentChildren; after?: string }) {
  const seen = new Set<number>();
  termsIn(after, seen);
  return <>{flat(children).map((part) => typeof part !== "string" ? part
    : termsIn(part, seen).map((piece) => typeof piece === "string" ? piece : <Term key={piece.join()} term={piece[0]} word={piece[1]} />))}</>;
}

let made = 0;

/** A term. The definition is in the document also while it is hidden, as the description of the button. */
function Term({ term, word }: { term: number; word: string }) {
  const [id] = useState(() => `term-${++made}`);
  const [open, setOpen] = useState(false);
  const name = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLSpanElement>(null);
  const hide = () => setOpen(false);
  useLayoutEffect(() => {
    const [button, shown] = [name.current, box.current];
    if (!open || !button || !shown?.isConnected) return;
    const put = () => place(button, shown);
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.preventDefault(); // it closes this alone, not the tour
      hide();
    };
    const onPress = ({ target }: Event) => button.parentNode!.contains(target as Node) || hide();
    const listeners = [["keydown", onKey], ["pointerdown", onPress], ["scroll", put]] as [string, EventListener][];
    shown.showPopover();
    put();
    for (const [kind, listener] of listeners) addEventListener(kind, listener, true);
    return () => {
      for (const [kind, listener] of listeners) removeEventListener(kind, listener, true);
      if (shown.isConnected) shown.hidePopover();
    };
  }, [open]);
  return (
    <span
      class="term" onPointerEnter={({ pointerType }) => pointerType === "mouse" && setOpen(true)}
      onPointerLeave={({ pointerType }) => pointerType === "mouse" && document.activeElement !== name.current && hide()}
    >
      <button ref={name} type="button" class="term-name" aria-describedby={id} data-open={open || undefined} onFocus={() => setOpen(true)} onBlur={hide} onClick={() => setOpen(true)}>{word}</button>
      <span ref={box} id={id} class="term-box" role="tooltip" popover="manual"><b>{TERMS[term]![0]}</b>{TERMS[term]![2]}</span>
    </span>
  );
}

/** Puts the box under the term, or above it where there is no room, whole inside the window. */
function place(term: Element, box: HTMLElement) {
  const { left, top, bottom } = term.getBoundingClientRect();
  const { offsetWidth, offsetHeight } = box;
  const below = bottom + offsetHeight <= innerHeight;
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - offsetWidth - 8))}px`;
  box.style.top = `${below ? bottom : Math.max(0, top - offsetHeight)}px`;
}
