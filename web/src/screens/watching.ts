/** The Training screen, in a bundle that `app.tsx` loads when it is opened. It shows parts of the other screens. */
import "./later";

export { TrainingScreen as training } from "./training/screen";
