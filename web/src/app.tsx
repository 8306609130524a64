/**
 * The frame around the six screens: navigation, the text form, the answer and error messages. Each screen is a folder
 * in screens/.
 */
import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { FlowScreen } from "./screens/flow/screen";
import { type Screen, SCREENS } from "./state/address";
import { framed } from "./state/frame";
import { useKeys } from "./state/keys";
import { busy, go, hrefTo, manifest, problems, reportError, route, runFacts } from "./state/page";
import { signal, useValue } from "./state/signals";
import { theme, toggleTheme } from "./state/theme";
import type { Manifest } from "./types";
import { EditBar } from "./views/EditBar";
import { Answer, Message, TextForm } from "./views/Text";

const NAMES: Record<Screen, string> = {
  flow: "Flow", step: "Step", attention: "Attention", decode: "Decode", why: "Why", compare: "Compare",
};

/** The loaded screens; the others are in a second bundle, loaded when one is opened. */
const screens = signal<Partial<Record<Screen, ComponentType<{ trace: Manifest }>>>>({ flow: FlowScreen });

export function App() {
  useKeys();
  if (useValue(framed)) return <><Problems /><Main /></>;
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to the content</a>
      <Header />
      <TextForm />
      <Problems />
      <Main />
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
      <a class="brand" href={hrefTo("flow")} onClick={lead("flow")}>Glassformer</a>
      <nav aria-label="Screens">
        {SCREENS.map((name, index) => (
          <a
            key={name} data-nav={name} href={hrefTo(name)} onClick={lead(name)} title={`Key ${index + 1}`}
            aria-current={name === screen ? "page" : undefined}
          >
            {NAMES[name]}
          </a>
        ))}
      </nav>
      <div class="top-tools">
        <span class="run-name">{run}</span>
        <Help />
        <button type="button" class="quiet" onClick={toggleTheme}>{dark ? "Light" : "Dark"}</button>
      </div>
    </header>
  );
}

function Main() {
  const screen = useValue(route, (now) => now.screen);
  const here = useValue(screens, (all) => screen in all);
  const waits = useValue(busy) ?? (here ? null : `Opening ${NAMES[screen]}`);
  const traced = useValue(manifest, Boolean);
  const content = useMemo(() => <Content screen={screen} />, [screen]); // not rerendered while loading
  return (
    <main id="main" tabIndex={-1} data-screen={screen} aria-busy={waits !== null}>
      {content}
      {!(traced && here) && <p class="waiting">{waits ? `${waits} …` : "Nothing has been traced yet."}</p>}
      <p class="visually-hidden" role="status">{waits}</p>
    </main>
  );
}

function Content({ screen }: { screen: Screen }) {
  const trace = useValue(manifest);
  const Component = useValue(screens)[screen];
  useEffect(() => {
    if (!Component) import("./screens/later").then((later) => (screens.value = { ...screens.value, ...later }), reportError);
  }, [Component]);
  const answered = !useValue(framed);
  return trace && <>{answered && <Answer trace={trace} />}{answered && <EditBar />}{Component && <Component trace={trace} />}</>;
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

/** The keyboard shortcuts, in a modal dialog. */
function Help() {
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

const lead = (screen: Screen) => (event: MouseEvent) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return; // opens a new tab
  event.preventDefault();
  go(screen);
};

function skip(event: MouseEvent) {
  event.preventDefault(); // the hash holds the page's address
  document.getElementById("main")?.focus();
}
