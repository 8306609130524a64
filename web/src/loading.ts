/** A place that something is loaded into: what is there, what the page waits for, and what went wrong. */
import { Problem } from "./problem";
import { signal } from "./signals";

export interface Told {
  message: string;
  hint: string;
}

export const tell = (error: unknown): Told => ({
  message: error instanceof Error ? error.message : String(error), hint: error instanceof Problem ? error.hint : "",
});

/** Of what is asked for, only the last is shown: an answer that comes later than the next question is dropped. */
export class Place<T> {
  value = signal<T | null>(null);
  /** What is waited for, in words; null: nothing. */
  busy = signal<string | null>(null);
  problem = signal<Told | null>(null);
  private last = 0;

  /** What is there stays until the answer comes. `ask` null: it is taken away, and what is on its way, too. */
  async load(words: string, ask: (() => Promise<T>) | null) {
    const mine = ++this.last;
    this.problem.value = null;
    this.busy.value = ask && words;
    if (!ask) this.value.value = null;
    try {
      const answer = ask && (await ask());
      if (mine === this.last) this.value.value = answer;
    } catch (error) {
      if (mine === this.last) this.problem.value = tell(error);
    } finally {
      if (mine === this.last) this.busy.value = null;
    }
  }
}
