/** Made by `make web` from explain/request.py: the fields of `TraceRequest` and of `DecodeConfig`: change it there. */
import type { DecodeSettings, TraceRequest } from "./types";

export type FieldKind = "text" | "number" | "flag" | "numbers" | "words" | "settings";

export const REQUEST_FIELDS: Record<keyof TraceRequest, FieldKind> = {
  text: "text",
  target: "text",
  prefix: "numbers",
  decode: "settings",
  pad: "number",
  checkpoint: "text",
  member: "number",
  edits: "words",
  other_text: "text",
  label: "text",
  answer: "text",
  learn_steps: "number",
  lr: "number",
  optimizer: "text",
};

export const SETTING_FIELDS: Record<keyof DecodeSettings, FieldKind> = {
  beam_size: "number",
  length_penalty: "number",
  n_best: "number",
  max_new_tokens: "number",
  sample: "flag",
  temperature: "number",
  top_k: "number",
  top_p: "number",
  min_p: "number",
  decode_seed: "number",
};
