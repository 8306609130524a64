/** The way of the encoder's output into every cross-attention, drawn over the columns where they stand side by side. */
import { useEffect, useRef, useState } from "preact/hooks";

export function MemoryLines({ layers }: { layers: number }) {
  const overlay = useRef<SVGSVGElement>(null);
  const [paths, setPaths] = useState<string[]>([]);
  useEffect(() => {
    const frame = overlay.current?.parentElement;
    if (!frame) return;
    const measure = () => {
      const origin = frame.getBoundingClientRect();
      const from = frame.querySelector("[data-memory]")?.getBoundingClientRect();
      const column = frame.querySelector(".flow-decoder")?.getBoundingClientRect();
      if (!from || !column || column.top > from.bottom) return setPaths([]); // one below the other: words say it
      const gutter = column.left - origin.left - 22;
      const [x, y] = [from.right - origin.left + 8, from.top + from.height / 2 - origin.top];
      setPaths([...frame.querySelectorAll(".flow-from-memory")].map((strip) => {
        const to = strip.getBoundingClientRect();
        const height = to.top + to.height / 2 - origin.top;
        return `M${x} ${y}H${gutter}V${height}H${to.left - origin.left - 7}`;
      }));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(frame);
    measure();
    return () => observer.disconnect();
  }, [layers]);
  return (
    <svg ref={overlay} class="flow-memory" aria-hidden="true">
      <marker id="into" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L6 3L0 6z" /></marker>
      {paths.map((path) => <path key={path} d={path} class="flow-way" marker-end="url(#into)" />)}
    </svg>
  );
}
