/** What is outside the first view: the other screens, the help, the tour and "Share", in a bundle that `app.tsx` loads. */
import learn from "../styles/learn.css";
import tour from "../styles/tour.css";
import training from "../styles/training.css";
import { adopt } from "../views/Terms";

export { AttentionScreen as attention } from "./attention/screen";
export { CompareScreen as compare } from "./compare/screen";
export { DecodeScreen as decode } from "./decode/screen";
export { LearnScreen as learn } from "./learn/screen";
export { StepScreen as step } from "./step/screen";
export { Help as help, Share as share } from "./tour/dialogs";
export { Tour as tour } from "./tour/Tour";
export { TrainingScreen as training } from "./training/screen";
export { WhyScreen as why } from "./why/screen";

for (const sheet of [learn, tour, training]) adopt(sheet);
