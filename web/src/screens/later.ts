/** Screens outside the first view, in a bundle that `app.tsx` loads when one is opened. */
// The first view and the screens of effects share it: named here, it is in the bundle that all of them share.
import "../views/Text";

export { AttentionScreen as attention } from "./attention/screen";
export { DecodeScreen as decode } from "./decode/screen";
export { StepScreen as step } from "./step/screen";
