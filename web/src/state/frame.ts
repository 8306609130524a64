/**
 * The page inside another document, with `frame=step` in the address: one step alone, without header, form and list; or
 * with `frame=learn` what was learned. It sends the height of its content to the document around it, which may choose the theme.
 */
import { route } from "./page";
import { computed } from "./signals";
import { setTheme } from "./theme";

export const framed = computed([route], () => "frame" in route.value.params);

/** What the frame sends, and what it takes. */
interface FrameMessage {
  glassformer: { height?: number; theme?: string };
}

function send(message: FrameMessage) {
  parent.postMessage(message, "*"); // a height is no secret
}

/** Starts the exchange with the document around the frame, if there is one. */
export function startFrame() {
  if (!framed.value) return;
  document.documentElement.dataset.frame = "";
  if (parent === window) return;
  addEventListener("message", (event: MessageEvent<Partial<FrameMessage> | null>) => {
    const theme = event.source === parent ? event.data?.glassformer?.theme : undefined;
    if (theme === "light" || theme === "dark") setTheme(theme);
  });
  const height = () => send({ glassformer: { height: Math.ceil(document.body.getBoundingClientRect().height) } });
  new ResizeObserver(height).observe(document.body);
}
