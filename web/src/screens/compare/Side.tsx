/** One of two traces: its checkpoint, its answer and its tokens. Tokens that the other trace lacks are marked. */
import type { Manifest } from "../../types";
import { Tokens } from "../../views/Tokens";
import { checkpointName, differingTokens } from "./pair";

export interface SideProps {
  name: "A" | "B";
  of: Manifest;
  other: Manifest;
  /** Its own answer, where the trace has A's tokens. */
  own?: string;
}

export function Side({ name, of, other, own }: SideProps) {
  const marks = (stream: Manifest["streams"][number]) =>
    differingTokens(stream.ids, other.streams.find((one) => one.name === stream.name)?.ids ?? []).map((differs) => (differs ? "≠" : null));
  return (
    <section class="compare-side" data-side={name} aria-label={`Side ${name}`}>
      <p>{name} <span class="note">{checkpointName(of.model.checkpoint, of.model.step)}</span></p>
      <p class="compare-answer">
        <strong><bdi>{own ?? of.answer.headline}</bdi></strong>
        <span class="answer-detail">{own === undefined ? of.answer.detail : "its own output; below, it reads A’s tokens"}</span>
      </p>
      {of.streams.map((stream) => (
        <div key={stream.name} class="compare-tokens">
          <Tokens stream={stream} label={`${name}: tokens of the ${stream.name}`} marks={marks(stream)} />
        </div>
      ))}
    </section>
  );
}
