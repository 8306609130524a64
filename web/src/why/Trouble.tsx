/** What kept an answer from coming, in words. */
export function Trouble({ error }: { error: { message: string; hint: string } | null }) {
  return error && <p role="alert" class="warning">{error.message} {error.hint}</p>;
}
