/** The Step screen. */
export function StepScreen() {
  return <h1>Step</h1>;
}
