/**
 * The frame around the six screens: the name, the screens' links, the text that is traced and its answer,
 * and what went wrong. Each screen is one file in screens/ and renders its own content only.
 */
import type { ComponentType } from "preact";
import { Answer } from "./components/Answer";
import { Help } from "./components/Help";
import { TextForm } from "./components/TextForm";
import { SCREENS, type Screen } from "./hash";
import { useKeys } from "./keys";
import { AttentionScreen } from "./screens/attention";
import { CompareScreen } from "./screens/compare";
import { DecodeScreen } from "./screens/decode";
import { FlowScreen } from "./screens/flow";
import { StepScreen } from "./screens/step";
import { WhyScreen } from "./screens/why";
import { useSignals } from "./signals";
import { busy, go, hrefTo, manifest, problem, route, runFacts } from "./state";
import { theme, toggleTheme } from "./theme";

const TITLES: Record<Screen, { name: string; component: ComponentType }> = {
  flow: { name: "Flow", component: FlowScreen },
  step: { name: "Step", component: StepScreen },
  attention: { name: "Attention", component: AttentionScreen },
  decode: { name: "Decode", component: DecodeScreen },
  why: { name: "Why", component: WhyScreen },
  compare: { name: "Compare", component: CompareScreen },
};

export function App() {
  useKeys();
  useSignals();
  const { screen } = route.value;
  const { component: Component } = TITLES[screen];
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
      <main id="main" tabIndex={-1} data-screen={screen} aria-busy={busy.value !== null}>
        {manifest.value && <Answer />}
        {manifest.value ? <Component /> : <p class="waiting">{busy.value ? `${busy.value} …` : "Nothing is traced yet."}</p>}
        <p class="visually-hidden" role="status">{busy.value ?? ""}</p>
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
          {TITLES[name].name}
        </a>
      ))}
    </nav>
  );
}

function Problems() {
  const told = problem.value;
  if (!told) return null;
  return (
    <div role="alert" class="problem">
      <p><strong>{told.message}</strong> {told.hint}</p>
      <button type="button" class="quiet" onClick={() => (problem.value = null)}>Close</button>
    </div>
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
