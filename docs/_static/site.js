// What the theme leaves out for keyboards and screen readers.
document.addEventListener("DOMContentLoaded", () => {
  // Wide code and tables can be scrolled by keyboard only if they can have the focus.
  for (const box of document.querySelectorAll("pre, .table-wrapper")) box.tabIndex = 0;
  // A heading of the contents needs a level.
  for (const caption of document.querySelectorAll("[role=heading]:not([aria-level])")) caption.ariaLevel = "2";
});
