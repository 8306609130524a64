/** The Flow screen. */
export function FlowScreen() {
  return <h1>Flow</h1>;
}
