/** The log of a training, put together from its parts. */
import type { TrainingNow, UpdatePoint, ValidationPoint } from "../../types";

/** What is drawn, from the beginning of the log. */
export interface History {
  generation: number;
  curve: TrainingNow["curve"];
  validations: ValidationPoint[];
  updates: UpdatePoint[];
}

/** More points than this are asked for again, thinned. */
export const MOST_POINTS = 4000;

export const nothing = (generation = 0): History => ({
  generation, curve: { step: [], seconds: [], loss: [], lr: [], grad_norm: [] }, validations: [], updates: [],
});

/** The history with what came after it; null: it must be asked for from the beginning, as the log is another or too long. */
export function extended(history: History, now: TrainingNow): History | null {
  const last = history.curve.step.at(-1) ?? 0;
  if (last && now.generation !== history.generation) return null;
  if (history.curve.step.length + now.curve.step.length > MOST_POINTS && last) return null;
  const curve = Object.fromEntries(
    (Object.keys(history.curve) as (keyof TrainingNow["curve"])[]).map((name) => [name, [...history.curve[name], ...now.curve[name]]]));
  return {
    generation: now.generation,
    curve: curve as unknown as TrainingNow["curve"],
    validations: [...history.validations, ...now.validations],
    updates: [...history.updates, ...now.updates],
  };
}
