/** The lines of our source that compute a step, the one that does it marked and in sight. */
import { useLayoutEffect, useRef } from "preact/hooks";
import type { SourceLine } from "../types";

export function CodeView({ source }: { source: SourceLine }) {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    const [pre, mark] = [box.current, box.current?.querySelector("mark")];
    if (pre && mark) pre.scrollTop = mark.offsetTop - pre.offsetTop - (pre.clientHeight - mark.offsetHeight) / 2;
  }, [source]);
  return (
    <figure class="code" data-role="code">
      <figcaption>{source.file}, line {source.mark}</figcaption>
      <pre ref={box} tabIndex={0} aria-label={`Source code, ${source.file}`}>
        {source.code.trimEnd().split("\n").map((row, i) => {
          const line = source.line + i;
          const Row = line === source.mark ? "mark" : "span";
          return <Row key={i} data-line={line}><span class="code-number" aria-hidden="true">{line}</span>{row}{"\n"}</Row>;
        })}
      </pre>
    </figure>
  );
}
