/** A token's piece with its word mark, ▁, drawn quietly: it stands for a space and is no letter. */
import { label } from "./numbers";

export function Piece({ piece }: { piece: string }) {
  const shown = label(piece);
  if (!shown.includes("▁") || shown === "▁") return <bdi>{shown}</bdi>;
  const [first = "", ...rest] = shown.split("▁");
  return (
    <bdi>
      {first}
      {rest.map((part, i) => <span key={i}><span class="word-mark">▁</span>{part}</span>)}
    </bdi>
  );
}
