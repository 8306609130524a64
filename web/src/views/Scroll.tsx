/** A box that scrolls where its content is too large, and can then be reached and scrolled by keyboard. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function Scroll({ class: name, label, children }: { class: string; label: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useLayoutEffect(() => {
    const { scrollWidth, clientWidth, scrollHeight, clientHeight } = box.current!;
    setScrolls(scrollWidth > clientWidth || scrollHeight > clientHeight);
  });
  return <div ref={box} class={name} tabIndex={scrolls ? 0 : undefined} role="group" aria-label={label}>{children}</div>;
}
