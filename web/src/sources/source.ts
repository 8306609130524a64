/**
 * Where the page's numbers come from: a server beside the model (`live.ts`) or the data inlined in an exported file
 * (`file.ts`). Everything else knows the interface `Source` alone.
 */
import type { TensorValue } from "../tensors/tensor";
import type { Reads } from "../trace/stepData";
import type { Alignments, AttributeRequest, Attribution, DecodeLog, Erased, EraseRequest, Manifest, RunInfo, Stream, TraceRequest } from "../types";

export interface Source extends Reads {
  /** Traces an exported page was saved with; none with a server. */
  readonly stored: readonly Manifest[];
  /** What found no room in an exported page, a sentence each; nothing with a server. */
  readonly dropped: readonly string[];
  run(): Promise<RunInfo>;
  trace(request: TraceRequest): Promise<Manifest>;
  /** The same tensor if it is here already. */
  peek(traceId: string, id: string, slice?: string): TensorValue | null;
  /** Where a translation's alignment can be read, the best place first. */
  alignment(traceId: string): Promise<Alignments>;
  attribute(request: AttributeRequest): Promise<Attribution>;
  erase(request: EraseRequest): Promise<Erased>;
  decode(request: TraceRequest): Promise<{ decode: DecodeLog; answer: Manifest["answer"]; streams: Stream[] }>;
}

/** A problem in words for the reader: what happened and, perhaps, what to do. */
export class Problem extends Error {
  constructor(message: string, readonly hint = "", readonly status = 0) {
    super(message);
  }
}
