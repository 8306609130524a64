/** The screens of effects, in a bundle that `app.tsx` loads when one is opened. They show parts of the other screens. */
import "./later";

export { CompareScreen as compare } from "./compare/screen";
export { WhyScreen as why } from "./why/screen";
