/** The screens that are not looked at first: `app.tsx` loads them, and all that only they need, when one is opened. */
export { AttentionScreen as attention } from "./attention";
export { CompareScreen as compare } from "./compare";
export { DecodeScreen as decode } from "./decode";
export { StepScreen as step } from "./step";
export { WhyScreen as why } from "./why";
