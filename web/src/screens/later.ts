/** What is outside the first view: the other screens, the help, the tour and "Share", in a bundle that `app.tsx` loads. */
export { AttentionScreen as attention } from "./attention";
export { CompareScreen as compare } from "./compare";
export { DecodeScreen as decode } from "./decode";
export { LearnScreen as learn } from "./learn";
export { StepScreen as step } from "./step";
export { Help as help, Share as share } from "./dialogs";
export { Tour as tour } from "./tour";
export { TrainingScreen as training } from "./training";
export { WhyScreen as why } from "./why";
