/** The lines of our source that compute a step, the one that does it marked. */
import type { SourceLine } from "../types";

export function CodeView({ source }: { source: SourceLine }) {
  const rows = source.code.replace(/\n$/, "").split("\n");
  return (
    <figure class="code" data-role="code">
      <figcaption>{source.file}, line {source.mark}</figcaption>
      <pre tabIndex={0} aria-label={`Source code, ${source.file}`}>
        {rows.map((row, i) => {
          const line = source.line + i;
          const marked = line === source.mark;
          const content = <><span class="code-number" aria-hidden="true">{line}</span>{row}{"\n"}</>;
          return marked ? <mark key={i} data-line={line}>{content}</mark> : <span key={i} data-line={line}>{content}</span>;
        })}
      </pre>
    </figure>
  );
}
