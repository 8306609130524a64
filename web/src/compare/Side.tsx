/** One of two traces: what it was asked, what it answered, and its tokens, with those marked that the other lacks. */

import { Tokens } from "../components/Tokens";
import type { Manifest, StreamName } from "../types";
import { checkpointName } from "./pair";

export interface SideProps {
  name: "A" | "B";
  of: Manifest;
  /** By stream, the tokens that the other side does not have. */
  differs: Partial<Record<StreamName, boolean[]>>;
  /** What it writes when it is left to itself; null where the answer shown is its own. */
  own?: string | null;
}

export function Side({ name, of, differs, own = null }: SideProps) {
  const { checkpoint, step } = of.model;
  return (
    <section class="compare-side" data-side={name} aria-label={`Side ${name}`}>
      <p class="compare-name">
        {name}
        <span class="note"> {checkpointName(checkpoint, step)}</span>
      </p>
      <p class="compare-answer" dir="auto"><strong>{own ?? of.answer.headline}</strong><span class="answer-detail">{own === null ? of.answer.detail : "left to itself; below it is given A's tokens"}</span></p>
      {of.streams.map((stream) => (
        <div key={stream.name} class="compare-tokens">
          <Tokens
            stream={stream} window={of.window} label={`${name}: tokens of the ${stream.name}`}
            marks={(differs[stream.name] ?? []).slice(of.window?.[0] ?? 0).map((differ) => (differ ? "≠" : null))}
          />
        </div>
      ))}
    </section>
  );
}
