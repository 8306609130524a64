/**
 * Why: which words the answer hangs on, by a method whose error is shown, beside what random rankings would give;
 * and a text whose words can be erased to see for oneself.
 */
import { Explained } from "../why/Explained";
import { manifest } from "../state";

export function WhyScreen() {
  const current = manifest.value;
  return current ? <Explained key={current.id} manifest={current} /> : null;
}
