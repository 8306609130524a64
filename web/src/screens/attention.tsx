/** The Attention screen. */
export function AttentionScreen() {
  return <h1>Attention</h1>;
}
