/** The screens outside the first view, in a bundle that `app.tsx` loads when one is opened. */
export { AttentionScreen as attention } from "./attention/screen";
export { CompareScreen as compare } from "./compare/screen";
export { DecodeScreen as decode } from "./decode/screen";
export { StepScreen as step } from "./step/screen";
export { WhyScreen as why } from "./why/screen";
