/**
 * The data source interface, implemented by `live.ts` (a server) and `file.ts` (the data inlined in an exported page).
 */
import type { TensorValue } from "../tensors/tensor";
import type { TensorReader } from "../trace/stepData";
import type {
  AttributeRequest, Attribution, CheckpointsSweep, Contributions, ControlRequest, DecodeLog, Erased, EraseRequest, KeysSweep, LayersSweep, Manifest, PartsSweep, ProbeAnswer, ProbeRequest, ProbeTexts, RunInfo,
  SavedPageFile, StatesSweep, Stream, SweepRequest, TraceRequest, TrainingNow,
} from "../types";

/** The answers to sweeps by kind. */
export interface Sweeps {
  parts: PartsSweep;
  keys: KeysSweep;
  layers: LayersSweep;
  contributions: Contributions;
  states: StatesSweep;
  checkpoints: CheckpointsSweep;
}

export interface Source extends TensorReader {
  /** The traces of an exported page. */
  readonly stored: readonly Manifest[];
  /** What an exported page lacks, to limit its size, a sentence each. */
  readonly dropped: readonly string[];
  /** Where an exported page begins, an address. */
  readonly view?: string;
  run(): Promise<RunInfo>;
  /** The file of a saved page; an exported page has none to offer. */
  save?(what: { request: TraceRequest; other: TraceRequest | null; view: string; training?: string[] }): Promise<SavedPageFile>;
  /** The training so far, its steps after one of them. */
  training(after: number): Promise<TrainingNow>;
  /** Asks the training for something; an exported page cannot. */
  control?(action: ControlRequest["action"]): Promise<unknown>;
  /** Texts for the answers of snapshots. */
  probes(): Promise<ProbeTexts>;
  probe(request: ProbeRequest): Promise<ProbeAnswer>;
  trace(request: TraceRequest): Promise<Manifest>;
  /** The tensor if it is cached, else null. */
  peek(traceId: string, id: string, slice?: string): TensorValue | null;
  attribute(request: AttributeRequest): Promise<Attribution>;
  erase(request: EraseRequest): Promise<Erased>;
  /** Edits made in turn; the answer is of the kind that the request names. */
  sweep<K extends keyof Sweeps>(request: SweepRequest & { kind: K }): Promise<Sweeps[K]>;
  decode(request: TraceRequest): Promise<{ decode: DecodeLog; answer: Manifest["answer"]; streams: Stream[] }>;
}

/** An error for the reader, with a hint. */
export class Problem extends Error {
  constructor(message: string, readonly hint = "", readonly status = 0) {
    super(message);
  }
}

/** What is said where the server has ended. */
export const noServer = () => new Problem("The server does not respond", "check that `glassformer explain` is still running in its terminal");

/** The token of the server, from the address that the command printed. */
export const server = { token: "" };
