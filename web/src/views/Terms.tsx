/** Terms in running text: each is a button with a dotted underline, which shows the definition from the glossary. */
import { type ComponentChild, type ComponentChildren, Fragment } from "preact";
import { useId, useRef } from "preact/hooks";
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

/** A term. The definition is in the document also while it is hidden, as the description of the button, under which the style sheet places it. */
function Term({ term, word }: { term: number; word: string }) {
  const id = useId(), name = useRef<HTMLButtonElement>(null), box = useRef<HTMLSpanElement>(null);
  const toggle = (open: boolean) => open !== box.current!.matches(":popover-open") && (open ? box.current!.showPopover({ source: name.current! }) : box.current!.hidePopover());
  return (
    <span
      class="term" onPointerEnter={({ pointerType }) => pointerType === "mouse" && toggle(true)}
      onPointerLeave={({ pointerType }) => pointerType === "mouse" && document.activeElement !== name.current && toggle(false)}
    >
      <button ref={name} type="button" class="term-name" aria-describedby={id} onFocus={() => toggle(true)} onBlur={() => toggle(false)} onClick={() => toggle(true)}>{word}</button>
      <span ref={box} id={id} class="term-box" role="tooltip" popover="auto"><b>{TERMS[term]![0]}</b>{TERMS[term]![2]}</span>
    </span>
  );
}
