/**
 * Starts the page. Everything it shows comes from `state.ts`; everything it knows, from `source.ts`.
 */
import { render } from "preact";
import { App } from "./app";
import { start } from "./state";
import { initTheme } from "./theme";
import "./styles/index.css";

initTheme();
const root = document.getElementById("app");
if (root) render(<App />, root);
void start();
