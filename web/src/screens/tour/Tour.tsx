/**
 * The tour: a card beside the page. Each step asks for a prediction, then for something to do on the page, which it
 * waits for, then says what there is to compare with. The focus moves to the card with each; Escape ends the tour.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { paramsFromRequest } from "../../state/address";
import { openTour } from "../../state/guide";
import { base, edited, go, isChanged, route, setParams, source } from "../../state/page";
import { useResource } from "../../state/resource";
import { computed, useValue } from "../../state/signals";
import type { Manifest } from "../../types";
import { Terms } from "../../views/Terms";
import { planOf, type TourStep } from "./steps";

export function Tour() {
  const now = useValue(base);
  const [trace, setTrace] = useState<Manifest | null>(now);
  const first = trace ?? now;
  useEffect(() => setTrace(first), [first]);
  const { value: plan, error } = useResource(first && `tour/${first.id}`, () => planOf(first!));
  const [{ index, phase, guess }, setState] = useState<State>(BEGIN);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) end();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const begin = () => {
    setTrace(now);
    setState(BEGIN);
  };
  const step = plan?.steps[index], last = index + 1 === plan?.steps.length;
  const place = step ? `Tour, ${index + 1} of ${plan.steps.length}` : "";
  const limits = index === 0 && plan?.limits.map((one) => <p key={one} class="note" data-role="tour-limit">{one}</p>);
  const shown = { step: step!, place, guess };
  return (
    <aside class="tour" aria-label="Tour" onKeyDown={(event) => event.key !== "Escape" && event.stopPropagation()}>
      {now && first && now.request.text !== first.request.text ? <Card place="" title="You traced another text"><p><button type="button" onClick={begin}>Begin the tour with it</button></p></Card>
        : !step ? <Card place="" title="The tour"><p>{plan ? "There is nothing to show of this text." : error?.message ?? "Choosing what to show …"}</p>{limits}</Card>
        : phase === "do" ? <Task key={`${index}do`} {...shown} onDone={() => setState({ index, phase: "see", guess })} />
        : phase === "see" ? (
          <Result key={`${index}see`} {...shown} last={last}>
            <button type="button" data-role="tour-next" onClick={() => (last ? end() : setState({ ...BEGIN, index: index + 1 }))}>{last ? "Finish" : "Next step"}</button>
          </Result>
        ) : (
          <Card key={`${index}ask`} place={place} title={step.title}>
            {limits}
            <p><Terms>{step.question}</Terms></p>
            <div class="tour-options" role="group" aria-label="What do you expect?">
              {[...step.options, "I do not know"].map((option, i) => (
                <button key={i} type="button" data-option={i} onClick={() => { open(step, first!); setState({ index, phase: "do", guess: i }); }}><bdi>{option}</bdi></button>
              ))}
            </div>
          </Card>
        )}
    </aside>
  );
}

/** A step is at "ask", "do" or "see". */
interface State {
  index: number;
  phase: "ask" | "do" | "see";
  guess: number;
}
const BEGIN: State = { index: 0, phase: "ask", guess: -1 };

function end() {
  openTour(null);
  document.getElementById("main")?.focus();
}

const PARAMS = ["show", "view", "why", "method", "class", "foil", "erased", "sampling", "heat", "position", "beam", "cell", "hide", "sort", "head", "node", "layer", "arithmetic", "numbers", "param"];

/** Opens the screen of a step without edits, forced tokens and masked words. */
function open({ screen, params }: TourStep, { request }: Manifest) {
  // A saved page holds the traces that it holds: its address names no text.
  const text = source.live ? paramsFromRequest(request) : { show: source.stored.some(isChanged) ? "before" : null };
  go(screen, { ...Object.fromEntries(PARAMS.map((name) => [name, null])), ...text, ...params });
}

/** The content of the card. Its heading takes the focus when it appears. */
function Card({ place, title, children }: { place: string; title: string; children: ComponentChildren }) {
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

interface Shown {
  step: TourStep;
  place: string;
  guess: number;
}

const state = computed([route, base, edited], () => ({ route: route.value, base: base.value, edited: edited.value }));

/** Waits for the reader to do something with the page, or does it. */
function Task({ step: { task, control, todo, options, done, screen }, place, guess, onDone }: Shown & { onDone: () => void }) {
  const isDone = useValue(state, ({ route }) => route.screen === screen
    && (done?.() ?? Object.entries(task).every(([name, value]) => route.params[name] === String(value))));
  useEffect(() => { if (isDone) onDone(); }, [isDone]);
  useMarked(control);
  const said = options[guess];
  return (
    <Card place={place} title="Try it">
      <p>{said ? <>You expect: <b><bdi>{said}</bdi></b>. </> : null}<Terms>{todo}</Terms></p>
      <div class="tour-row">
        <button type="button" data-role="do-it" onClick={() => (typeof task === "function" ? task() : setParams(task))}>Do it for me</button>
        <button type="button" class="quiet" data-role="to-control" onClick={() => document.querySelector<HTMLElement>(control)?.focus()}>Go to the control</button>
      </div>
    </Card>
  );
}

/** What the reader finds, and what to compare it with. */
function Result({ step, place, guess, last, children }: Shown & { last: boolean; children: ComponentChildren }) {
  const { value: found, error } = useResource("found", async () => step.found());
  useMarked(found?.at ?? null);
  if (!found && !error) return null;
  const title = !found || !step.options[guess] ? "What you see" : found.right === guess ? "As you expected" : "Not as you expected";
  return (
    <Card place={place} title={title}>
      {found ? <>
        {found.right !== guess && <p>It is: <b><bdi>{step.options[found.right]}</bdi></b>.</p>}
        <p data-role="found"><Terms>{found.words}</Terms></p><p class="note"><Terms after={found.words}>{found.compare}</Terms></p>
      </> : <p data-role="found">{error!.message}</p>}
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
