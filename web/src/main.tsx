/** Starts the page. */
import { render } from "preact";
import { App } from "./app";
import { startFrame } from "./state/frame";
import { start } from "./state/page";
import { initTheme } from "./state/theme";

initTheme();
startFrame();
const root = document.getElementById("app");
if (root) render(<App />, root);
void start();
