/** The Learn screen, in a bundle that `app.tsx` loads when it is opened. It shows parts of the other screens. */
import "./later";

export { LearnScreen as learn } from "./learn/screen";
