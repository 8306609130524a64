/** Which edits of a refused request can be applied, and the message about the others. */
import { Problem } from "../sources/source";
import { capital } from "../tensors/format";
import type { TraceRequest } from "../types";
import { type ErrorMessage, toErrorMessage } from "./signals";

export interface Sorted {
  applied: string[];
  refused: string[];
  message: ErrorMessage;
}

/** Letters of an edit that a message shows. */
const LETTERS = 80;

/**
 * Sorts the edits of a request that failed: each is tried in turn, with those before it that can be applied. Where the
 * server did not refuse the request but failed in another way, as when it does not respond, none is tried.
 */
export async function sortEdits(request: TraceRequest, error: unknown, trace: (request: TraceRequest) => Promise<unknown>): Promise<Sorted> {
  const edits = request.edits ?? [];
  const message = toErrorMessage(error);
  const isRefusal = error instanceof Problem && error.status === 400;
  if (!isRefusal) return { applied: [], refused: [...edits], message };
  const applied: string[] = [];
  const refused: [edit: string, error: unknown][] = [];
  for (const edit of edits) {
    const next = [...applied, edit];
    const failed = next.length === edits.length ? error : await trace({ ...request, edits: next }).then(() => null, (reason: unknown) => reason);
    if (failed === null) applied.push(edit);
    else refused.push([edit, failed]);
  }
  const names = refused.map(([edit]) => (edit.length > LETTERS ? `${edit.slice(0, LETTERS)}…` : edit)).join(", ");
  const why = toErrorMessage(refused[0]?.[1] ?? error);
  return { applied, refused: refused.map(([edit]) => edit), message: { message: `Not applied: ${names}. ${capital(why.message)}`, hint: why.hint } };
}
