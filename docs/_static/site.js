// What the theme leaves out for keyboards and screen readers.
document.addEventListener("DOMContentLoaded", () => {
  // Wide code and tables can be scrolled by keyboard only if they can have the focus.
  for (const box of document.querySelectorAll("pre, .table-wrapper")) box.tabIndex = 0;
  // A heading of the contents needs a level.
  for (const caption of document.querySelectorAll("[role=heading]:not([aria-level])")) caption.ariaLevel = "2";
  const frames = [...document.querySelectorAll("iframe.step-frame")];
  // From disk a frame is of another origin and cannot read the page: it sends its height and receives the theme.
  const theme = () => {
    const chosen = document.body.dataset.theme;
    const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    return { glassformer: { theme: dark ? "dark" : "light" } };
  };
  addEventListener("message", (event) => {
    const frame = frames.find((one) => one.contentWindow === event.source);
    const height = event.data?.glassformer?.height;
    if (!frame || !(height > 0)) return;
    frame.style.height = `${height + 2}px`;
    frame.contentWindow.postMessage(theme(), "*");
  });
  new MutationObserver(() => frames.forEach((one) => one.contentWindow?.postMessage(theme(), "*")))
    .observe(document.body, { attributeFilter: ["data-theme"] });
});
