import { NEUTRAL, type SamplingParams } from "../tensors/filters";
import type { Manifest } from "../types";
import { hasSource } from "./generation";

/** The sampling parameters that a trace was decoded with, which the Decode screen begins with. */
export function samplingOf(manifest: Manifest): SamplingParams {
  const { settings: { temperature, top_k, top_p, min_p }, kind } = manifest.decode;
  return !hasSource(manifest) || kind === "sample" ? { temperature, topK: top_k, topP: top_p, minP: min_p } : NEUTRAL;
}
