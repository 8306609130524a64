/**
 * The frame around the screens: navigation, the text form, the answer and error messages. Each screen is a file in screens/.
 */
import { type ComponentType, render } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { FlowScreen } from "./screens/flow";
import { noServer } from "./sources/source";
import { useKeys } from "./state/keys";
import { busy, framed, manifest, problems, reportError, route, runFacts, type Screen, SCREENS, source, start, work } from "./state/page";
import { guide, offered, openTour, theme, toggleTheme } from "./state/settings";
import { effect, signal, useValue } from "./state/signals";
import { capital } from "./tensors/format";
import type { Manifest } from "./types";
import { EditBar } from "./views/EditBar";
import { Answer, Message, TextForm } from "./views/Text";
import { linkTo } from "./views/interaction";

/** Whether this is the script of a saved page (`build.mjs`). In a frame, as in a notebook, such a page has no address to link to. */
declare const SAVED: boolean;

type Parts = Record<Screen, ComponentType<{ trace: Manifest }>> & Record<"help" | "tour" | "share", ComponentType>;

/** What is loaded: all but Flow is in a bundle of its own. It is fetched when it is needed, or while nothing else is done, so that it is there after the server has ended, too. */
const loaded = signal<Partial<Parts>>({ flow: FlowScreen });
function loadAll() {
  const parts: Promise<Omit<Parts, "flow">> = import("./screens/later");
  parts.then((more) => (loaded.value = { flow: FlowScreen, ...more }), () => reportError(noServer()));
}

effect(route, ({ screen }) => screen in loaded.value || loadAll());
effect(guide, (open) => open && !(open in loaded.value) && loadAll());

function App() {
  useKeys();
  useEffect(() => {
    if (!SAVED) setTimeout(loadAll, 2000);
  }, []);
  if (useValue(framed)) return <><Problems /><Main /><Work /></>;
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to the content</a>
      <Header />
      <Offer />
      <TextForm />
      <Problems />
      <Main />
      <Work />
      <Guide />
    </>
  );
}

/** Links keep the parameters of the address. */
function Header() {
  const { screen } = useValue(route);
  const dark = useValue(theme) === "dark";
  const run = useValue(runFacts)?.model.run;
  return (
    <header class="top">
      <a class="brand" {...linkTo("flow")}>Glassformer</a>
      <nav aria-label="Screens">
        {SCREENS.filter((name) => name !== "training" || source.hasTraining).map((name, index) => (
          <a
            key={name} data-nav={name} {...linkTo(name)} title={`Press ${index + 1}`}
            aria-current={name === screen ? "page" : undefined}
          >
            {capital(name)}
          </a>
        ))}
      </nav>
      <div class="top-tools">
        <span class="run-name">{run}</span>
        {SAVED && parent !== window ? null : <button type="button" class="quiet" onClick={() => (guide.value = "share")}>Share</button>}
        <button type="button" class="quiet" onClick={() => (guide.value = "help")}>Keys</button>
        <button type="button" class="quiet" onClick={toggleTheme}>{dark ? "Light" : "Dark"}</button>
      </div>
    </header>
  );
}

function Main() {
  const screen = useValue(route, (now) => now.screen);
  const here = useValue(loaded, (all) => screen in all);
  const waits = useValue(busy) ?? (here ? null : `Opening ${capital(screen)}`);
  const traced = useValue(manifest, Boolean) || screen === "training"; // which shows the log
  const content = useMemo(() => <Content screen={screen} />, [screen]); // not rerendered while loading
  return (
    <main id="main" tabIndex={-1} data-screen={screen} aria-busy={waits !== null}>
      {content}
      {!(traced && here) && <p class="waiting">{waits ? `${waits} …` : "No text is traced yet."}</p>}
      <p class="visually-hidden" role="status">{waits}</p>
    </main>
  );
}

function Content({ screen }: { screen: Screen }) {
  const trace = useValue(manifest);
  const Component = useValue(loaded, (all) => all[screen]);
  const answered = !useValue(framed);
  if (screen === "training") return Component ? <Component trace={trace!} /> : null;
  return trace && <>{answered && <Answer trace={trace} />}{answered && <EditBar />}{Component && <Component trace={trace} />}</>;
}

/** How long work goes, and what ends it. */
function Work() {
  const now = useValue(work);
  return now && (
    <p class="work" role="status">
      <progress value={now.share} aria-label="Share of the work that is done" /> about {Math.max(1, Math.round(now.seconds))} s left
      <button type="button" data-role="stop" onClick={now.stop}>Stop</button>
    </p>
  );
}

function Problems() {
  return (
    <>
      {useValue(problems).map((problem, i) => (
        <div key={i} role="alert" class="problem">
          <p><Message error={problem.value!} /></p>
          <button type="button" class="quiet" onClick={() => (problem.value = null)}>Close</button>
        </div>
      ))}
    </>
  );
}

/** What the tour is, once. */
const Offer = () => useValue(offered) && (
  <aside class="offer note">
    New here?
    <button type="button" class="quiet" data-role="tour" onClick={() => openTour("tour")}>Take the tour</button>
    <button type="button" class="quiet" data-role="no-tour" onClick={() => openTour(null)}>No thanks</button>
  </aside>
);

/** The help, the tour or "Share". */
function Guide() {
  const open = useValue(guide);
  const Part = useValue(loaded, (all) => all[open!]);
  return Part && <Part />;
}

function skip(event: MouseEvent) {
  event.preventDefault(); // the hash holds the page's address
  document.getElementById("main")?.focus();
}

/** In a frame the page sends the height of its content to the document around it, which may choose the theme. */
if (framed.value) {
  document.documentElement.dataset.frame = "";
  addEventListener("message", ({ source, data }: MessageEvent<{ glassformer?: { theme?: string } } | null>) => {
    const asked = source === parent ? data?.glassformer?.theme : undefined;
    if (asked === "light" || asked === "dark") theme.value = asked;
  });
  const height = () => parent.postMessage({ glassformer: { height: Math.ceil(document.body.getBoundingClientRect().height) } }, "*"); // no secret
  if (parent !== window) new ResizeObserver(height).observe(document.body);
}
const root = document.getElementById("app");
if (root) render(<App />, root);
void start();
