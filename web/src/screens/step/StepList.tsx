/** The list of steps, grouped by layer and block; on small screens a menu. */
import { useEffect, useRef } from "preact/hooks";
import { setParams } from "../../state/page";
import { groupsOf } from "../../trace/list";
import { title } from "../../trace/steps";
import type { TraceNode } from "../../types";
import { stepLink } from "../../views/interaction";

export function StepList({ steps, current }: { steps: TraceNode[]; current: string }) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    const link = list.current?.querySelector<HTMLElement>("[aria-current]");
    const box = list.current;
    if (!link || !box || box.scrollHeight <= box.clientHeight) return;
    const [top, height] = [link.offsetTop - box.offsetTop, box.clientHeight];
    if (top < box.scrollTop + 40 || top > box.scrollTop + height - 60) box.scrollTop = top - height / 3;
  }, [current]);
  const groups = groupsOf(steps);
  return (
    <>
      <label class="step-pick">
        <span class="visually-hidden">Step</span>
        <select value={current} onChange={(event) => setParams({ node: event.currentTarget.value, cell: null }, { push: true })}>
          {groups.map((group, i) => (
            <optgroup key={i} label={group.name}>
              {group.steps.map((step) => <option key={step.id} value={step.id}>{title(step)}</option>)}
            </optgroup>
          ))}
        </select>
      </label>
      <nav ref={list} class="step-list" aria-label="Steps">
        {groups.map((group, i) => (
          <section key={i}>
            <h2>{group.name}</h2>
            <ol>
              {group.steps.map((step) => (
                <li key={step.id}>
                  <a {...stepLink(step)} aria-current={step.id === current ? "step" : undefined}>{title(step).replace(/\./g, "$&\u200b")}</a>
                </li>
              ))}
            </ol>
          </section>
        ))}
      </nav>
    </>
  );
}
