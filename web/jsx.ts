/** What JSX compiles to; `build.mjs` adds this import to every file. The names are such as no variable has. */
export { Fragment as JsxFragment, h as jsxElement } from "preact";
