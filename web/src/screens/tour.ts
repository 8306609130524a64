/** The help, the tour and "Share", in a bundle that `app.tsx` loads when one is opened. */
// The tour opens all screens, and shares their code: so that there is one bundle of it, all of them are named here.
import "./effects";

export { Help as help } from "./tour/Help";
export { Share as share } from "./tour/Share";
export { Tour as tour } from "./tour/Tour";
