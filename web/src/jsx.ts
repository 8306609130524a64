/** What JSX compiles to; `build.mjs` adds this import to every file. */
export { Fragment, h } from "preact";
