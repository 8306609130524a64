/**
 * The frame around the six screens: the name, the screens' links, the text that is traced and its answer,
 * and what went wrong. Each screen is one file in screens/ and renders its own content only.
 */
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Answer } from "./components/Answer";
import { Help } from "./components/Help";
import { TextForm } from "./components/TextForm";
import { SCREENS, type Screen } from "./hash";
import { useKeys } from "./keys";
import { FlowScreen } from "./screens/flow";
import { signal, useSignals } from "./signals";
import { busy, go, hrefTo, manifest, problems, report, route, runFacts } from "./state";
import { theme, toggleTheme } from "./theme";

const NAMES: Record<Screen, string> = {
  flow: "Flow", step: "Step", attention: "Attention", decode: "Decode", why: "Why", compare: "Compare",
};

/** The screens that are here; the others come in a second bundle, the first time that one of them is opened. */
const screens = signal<Partial<Record<Screen, ComponentType>>>({ flow: FlowScreen });

function useScreen(name: Screen): ComponentType | undefined {
  const Component = screens.value[name];
  useEffect(() => {
    if (!Component) import("./screens/later").then((later) => (screens.value = { ...screens.value, ...later }), report);
  }, [Component]);
  return Component;
}

export function App() {
  useKeys();
  useSignals();
  const { screen } = route.value;
  const Component = useScreen(screen);
  const waits = busy.value ?? (Component ? null : `Opening ${NAMES[screen]}`);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to the content</a>
      <header class="top">
        <a class="brand" href={hrefTo("flow")} onClick={follow("flow")}>Glassformer</a>
        <Nav current={screen} />
        <div class="top-tools">
          <span class="run-name">{runFacts.value?.model.run}</span>
          <Help />
          <button type="button" class="quiet" onClick={toggleTheme}>{theme.value === "dark" ? "Light" : "Dark"}</button>
        </div>
      </header>
      <TextForm />
      <Problems />
      <main id="main" tabIndex={-1} data-screen={screen} aria-busy={waits !== null}>
        {manifest.value && <Answer />}
        {manifest.value && Component ? <Component /> : <p class="waiting">{waits ? `${waits} …` : "Nothing is traced yet."}</p>}
        <p class="visually-hidden" role="status">{waits}</p>
      </main>
    </>
  );
}

function Nav({ current }: { current: Screen }) {
  return (
    <nav aria-label="Screens">
      {SCREENS.map((name, index) => (
        <a
          key={name} data-nav={name} href={hrefTo(name)} onClick={follow(name)} title={`Key ${index + 1}`}
          aria-current={name === current ? "page" : undefined}
        >
          {NAMES[name]}
        </a>
      ))}
    </nav>
  );
}

function Problems() {
  return (
    <>
      {problems.map((problem, i) => problem.value && (
        <div key={i} role="alert" class="problem">
          <p><strong>{problem.value.message}</strong> {problem.value.hint}</p>
          <button type="button" class="quiet" onClick={() => (problem.value = null)}>Close</button>
        </div>
      ))}
    </>
  );
}

const follow = (screen: Screen) => (event: MouseEvent) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return; // a new tab, as anywhere
  event.preventDefault();
  go(screen);
};

function skip(event: MouseEvent) {
  event.preventDefault(); // the hash is the page's address
  document.getElementById("main")?.focus();
}
