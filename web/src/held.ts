/** Steadiness: what is asked for anew leaves its place empty for a moment, and nothing around it should jump. */
import { useRef } from "preact/hooks";

/** For an element whose content is awaited: it stays as high as it was, and is not flat the first time. */
export function useHeld(waiting: boolean) {
  const ref = useRef<HTMLDivElement>(null);
  return { ref, style: { minHeight: waiting ? `${Math.max(48, ref.current?.clientHeight ?? 0)}px` : "" } };
}
