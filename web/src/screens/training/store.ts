/** The training as the server sends it, asked for again and again while the screen is open; and the probe texts. */
import { probeTexts, runFacts, source, start } from "../../state/page";
import { type ErrorMessage, signal, toErrorMessage } from "../../state/signals";
import type { ControlRequest, ProbeAnswer, TrainingNow } from "../../types";
import { extended, type History, nothing } from "./series";

/** Milliseconds between two questions while the training runs, and where nothing moves or nobody looks. */
const LIVE = 1000, QUIET = 5000;
export const MAX_PROBES = 8;

export const now = signal<TrainingNow | null>(null);
export const history = signal<History>(nothing());
/** Why the last question was not answered. */
export const failure = signal<ErrorMessage | null>(null);
/** The position of the reading line on the horizontal axis; null: at the newest step. */
export const cursor = signal<number | null>(null);
const texts = probeTexts;
/** Why the run has no texts to begin with. */
export const missing = signal<string | null>(null);

let timer = 0;
let open = 0;

async function ask() {
  const id = open;
  try {
    const after = history.value.curve.step.at(-1) ?? 0;
    let received = await source.training(after);
    let next = extended(history.value, received);
    if (!next) {
      received = await source.training(0);
      next = extended(nothing(), received)!;
    }
    history.value = next;
    now.value = received;
    failure.value = null;
    if (source.live && !runFacts.value && received.snapshots.length) await start(); // the first weights are there
  } catch (error) {
    failure.value = toErrorMessage(error);
  }
  if (id !== open || !source.live) return;
  const goes = !failure.value && ["running", "paused", "waiting"].includes(now.value?.state ?? "");
  timer = window.setTimeout(ask, goes && !document.hidden ? LIVE : QUIET);
}

/** Asks at once, and again and again until the function that it returns is called. */
export function follow(): () => void {
  const again = () => {
    clearTimeout(timer);
    open++;
    void ask();
  };
  const seen = () => document.hidden || again();
  again();
  document.addEventListener("visibilitychange", seen);
  return () => {
    clearTimeout(timer);
    open++;
    document.removeEventListener("visibilitychange", seen);
  };
}

/** Asks the training for something. */
export async function control(action: ControlRequest["action"]) {
  try {
    await source.control!(action);
    failure.value = null;
  } catch (error) {
    failure.value = toErrorMessage(error);
  }
  clearTimeout(timer);
  open++;
  timer = window.setTimeout(ask, 100); // a step may take less
}

/** Loads the texts to begin with, once. */
export async function loadTexts() {
  if (texts.value) return;
  try {
    const found = await source.probes();
    [texts.value, missing.value] = [texts.value ?? found.texts, found.missing];
  } catch (error) {
    missing.value = toErrorMessage(error).message;
  }
}

/** Answers by text and snapshot; those of checkpoints that the run has since removed stay. */
const known = new Map<string, Promise<ProbeAnswer>>();

export function answerOf(text: string, checkpoint: string): Promise<ProbeAnswer> {
  const key = `${checkpoint}\n${text}`;
  const found = known.get(key) ?? source.probe({ text, checkpoint });
  known.set(key, found);
  found.catch(() => known.delete(key));
  return found;
}
