// Wide code can be scrolled by keyboard only if it can have the focus.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) box.tabIndex = 0;
});
