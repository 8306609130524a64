/** Parts that most screens are made of: a section with its title, a form, a choice from a list. */
import type { ComponentChildren, ComponentProps } from "preact";
import { useId } from "preact/hooks";

/** A section that is named by its heading. */
export function Section({ title, children, ...attributes }: { title: ComponentChildren; children: ComponentChildren; class?: string; "data-role"?: string }) {
  const id = useId();
  return <section aria-labelledby={id} {...attributes}><h2 id={id}>{title}</h2>{children}</section>;
}

/** A form whose values this page uses itself. */
export const Form = ({ send, ...props }: Omit<ComponentProps<"form">, "onSubmit"> & { send: () => void }) => (
  <form {...props} onSubmit={(event) => { event.preventDefault(); send(); }} />
);

interface SelectProps {
  /** The text before it; without one `attributes` hold the name. */
  label?: ComponentChildren;
  value: string | number;
  options: readonly (readonly [value: string | number, words: string])[];
  onChoose: (value: string) => void;
  attributes?: Record<string, string>;
}

export function Select({ label, value, options, onChoose, attributes }: SelectProps) {
  const list = (
    <select {...attributes} value={value} onChange={({ currentTarget }) => onChoose(currentTarget.value)}>
      {options.map(([one, words]) => <option key={one} value={one}>{words}</option>)}
    </select>
  );
  return label ? <label>{label} {list}</label> : list;
}
