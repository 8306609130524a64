/** A few words to choose one of, in a row; each carries `data-NAME` with its value. */

export interface ChoicesProps<T extends string> {
  name: string;
  label: string;
  options: readonly (readonly [value: T, words: string])[];
  chosen: T | null;
  onChoose: (value: T) => void;
}

export function Choices<T extends string>({ name, label, options, chosen, onChoose }: ChoicesProps<T>) {
  return (
    <span class="choices" role="group" aria-label={label}>
      {options.map(([value, words]) => (
        <button key={value} type="button" class="quiet" {...{ [`data-${name}`]: value }} aria-pressed={value === chosen} onClick={() => onChoose(value)}>
          {words}
        </button>
      ))}
    </span>
  );
}
