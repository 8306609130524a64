/**
 * The tour: a card beside the page. Each step asks for a prediction, then for something to do on the page, which it
 * waits for, then says what there is to compare with. The focus moves to the card with each; Escape ends the tour.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { openTour } from "../../state/guide";
import { base, edited, route, source } from "../../state/page";
import { computed, toErrorMessage, useValue } from "../../state/signals";
import { useResource } from "../../state/resource";
import type { Manifest } from "../../types";
import type { Result, TourStep } from "./context";
import { type Plan, planOf } from "./plan";
import { Terms } from "../../views/Terms";
import { useStyles } from "./Help";

export function Tour() {
  useStyles();
  const now = useValue(base);
  const [trace, setTrace] = useState<Manifest | null>(now);
  const first = trace ?? now;
  useEffect(() => setTrace(first), [first]);
  const { value: plan, error } = useResource(first && `tour/${first.id}`, () => planOf(first!));
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) end();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const other = now !== null && first !== null && now.request.text !== first.request.text;
  return (
    <aside class="tour" aria-label="Tour" onKeyDown={(event) => event.key !== "Escape" && event.stopPropagation()}>
      {other ? <Card place="" title="You traced another text"><p><button type="button" onClick={() => setTrace(now)}>Begin the tour with it</button></p></Card>
        : plan ? <Steps key={first!.id} plan={plan} />
        : <Card place="" title="The tour"><p>{error ? error.message : "Choosing what to show …"}</p></Card>}
    </aside>
  );
}

function end() {
  openTour(null);
  document.getElementById("main")?.focus();
}

interface CardProps {
  place: string;
  title: string;
  children: preact.ComponentChildren;
}

/** The content of the card. Its heading takes the focus when it appears. */
function Card({ place, title, children }: CardProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  return (
    <>
      <div class="tour-top"><span>{place}</span><button type="button" class="quiet" data-role="end-tour" title="Escape" onClick={end}>End the tour</button></div>
      <h2 ref={heading} tabIndex={-1} aria-describedby="tour-body">{title}</h2>
      <div id="tour-body">{children}</div>
    </>
  );
}

/** A step is at "ask", "do" or "see". */
type Phase = "ask" | "do" | "see";

function Steps({ plan: { steps, limits } }: { plan: Plan }) {
  const [{ index, phase, guess }, setState] = useState<{ index: number; phase: Phase; guess: number }>({ index: 0, phase: "ask", guess: -1 });
  const step = steps[index];
  const place = `Tour, ${index + 1} of ${steps.length}`;
  if (!step) return <Card place="" title="The tour"><p>There is nothing to show of this text.</p>{limits.map((one) => <p key={one} class="note">{one}</p>)}</Card>;
  const say = (phase: Phase, chosen = guess) => setState({ index, phase, guess: chosen });
  if (phase === "ask") {
    return (
      <Card key={`${index}ask`} place={place} title={step.title}>
        {index === 0 && limits.map((one) => <p key={one} class="note" data-role="tour-limit">{one}</p>)}
        <p><Terms>{step.question}</Terms></p>
        <div class="tour-options" role="group" aria-label="What do you expect?">
          {[...step.options, "I do not know"].map((option, i) => (
            <button key={i} type="button" data-option={i} onClick={() => { step.open(); say("do", i); }}><bdi>{option}</bdi></button>
          ))}
        </div>
      </Card>
    );
  }
  if (phase === "do") return <Task key={`${index}do`} step={step} place={place} guess={guess} onDone={() => say("see")} />;
  const last = index === steps.length - 1;
  return (
    <Found key={`${index}see`} step={step} place={place} guess={guess} last={last}>
      {last ? <button type="button" data-role="tour-next" onClick={end}>Finish</button>
        : <button type="button" data-role="tour-next" onClick={() => setState({ index: index + 1, phase: "ask", guess: -1 })}>Next step</button>}
    </Found>
  );
}

const state = computed([route, base, edited], () => ({ route: route.value, base: base.value, edited: edited.value }));

/** Waits for the reader to do something with the page, or does it. */
function Task({ step, place, guess, onDone }: { step: TourStep; place: string; guess: number; onDone: () => void }) {
  const done = useValue(state, () => step.done());
  useEffect(() => { if (done) onDone(); }, [done]);
  useMarked(step.control);
  const said = step.options[guess];
  return (
    <Card place={place} title="Try it">
      <p>{said ? <>You expect: <b><bdi>{said}</bdi></b>. </> : null}<Terms>{step.todo}</Terms></p>
      <div class="tour-row">
        <button type="button" data-role="do-it" onClick={step.doIt}>Do it for me</button>
        <button type="button" class="quiet" data-role="to-control" onClick={() => document.querySelector<HTMLElement>(step.control)?.focus()}>Go to the control</button>
      </div>
    </Card>
  );
}

/** What the reader finds, and what to compare it with. */
function Found({ step, place, guess, last, children }: { step: TourStep; place: string; guess: number; last: boolean; children: preact.ComponentChildren }) {
  const [found, setFound] = useState<Result | string | null>(null);
  useEffect(() => {
    Promise.resolve().then(step.result).then(setFound, (error: unknown) => setFound(toErrorMessage(error).message));
  }, []);
  const result = typeof found === "object" ? found : null;
  useMarked(result?.at ?? null);
  if (found === null) return null;
  const title = !result || !step.options[guess] ? "What you see" : result.right === guess ? "As you expected" : "Not as you expected";
  return (
    <Card place={place} title={title}>
      {result ? <>
        {result.right !== guess && <p>It is: <b><bdi>{step.options[result.right]}</bdi></b>.</p>}
        <p data-role="found"><Terms>{result.words}</Terms></p><p class="note"><Terms after={result.words}>{result.compare}</Terms></p>
      </> : <p data-role="found">{found as string}</p>}
      {last && <p class="note">That was the tour. “Keys” opens it again{source.live ? ", also for a text of your own" : ""}.</p>}
      {children}
    </Card>
  );
}

/** Marks the element that a selector finds, as soon as it is there, and scrolls to it once. */
function useMarked(selector: string | null) {
  useEffect(() => {
    if (!selector) return;
    let marked: Element | null = null;
    const unmark = () => marked?.removeAttribute("data-tour");
    const mark = () => {
      const found = document.querySelector(selector);
      if (found === marked) return;
      unmark();
      found?.setAttribute("data-tour", "control"); // first, since its style says how far from the edge to scroll to
      if (found && !marked) found.scrollIntoView({ block: isLow(found) ? "start" : "nearest" });
      marked = found;
    };
    mark();
    const observer = new MutationObserver(mark);
    observer.observe(document.body, { childList: true, subtree: true });
    return () => {
      observer.disconnect();
      unmark();
    };
  }, [selector]);
}

/** Whether an element is outside the window, or so far down that the card may cover it. */
const isLow = (element: Element) => {
  const { top, bottom } = element.getBoundingClientRect();
  return top < 0 || bottom > innerHeight / 2;
};
