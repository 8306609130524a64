/**
 * The page's address: `#/step?node=encoder.0.self.weights&head=2`. Which screen, what it shows and the
 * text that is traced all live there, so that a reload, a pasted link and the Back button show the same.
 */
import type { DecodeSettings, TraceRequest } from "./types";

export const SCREENS = ["flow", "step", "attention", "decode", "why", "compare"] as const;
export type Screen = (typeof SCREENS)[number];

export interface Route {
  screen: Screen;
  params: Record<string, string>;
}

export function parseHash(hash: string): Route {
  const match = /^#?\/?([a-z]*)(?:\?(.*))?$/s.exec(hash);
  const name = match?.[1] as Screen;
  const params: Record<string, string> = {};
  for (const [key, value] of new URLSearchParams(match?.[2] ?? "")) params[key] = value;
  return { screen: SCREENS.includes(name) ? name : "flow", params };
}

export function formatHash({ screen, params }: Route): string {
  const query = new URLSearchParams(Object.entries(params)).toString();
  return `#/${screen}${query ? `?${query}` : ""}`;
}

const SETTINGS: (keyof DecodeSettings)[] = [
  "sample", "beam_size", "n_best", "length_penalty", "max_new_tokens", "temperature", "top_k", "top_p", "min_p",
  "decode_seed",
];

/** The trace request in the address, under `prefix` ("" for the page's own, "o." for the one compared with). */
export function requestOf(params: Record<string, string>, prefix = ""): TraceRequest | null {
  const get = (name: string) => params[prefix + name];
  const text = get("text");
  if (text === undefined) return null;
  const request: TraceRequest = { text };
  const target = get("target");
  if (target !== undefined) request.target = target;
  const forced = get("prefix");
  if (forced) request.prefix = forced.split(".").map(Number).filter(Number.isInteger);
  const pad = Number(get("pad") ?? 0);
  if (pad > 0) request.pad = pad;
  const checkpoint = get("checkpoint");
  if (checkpoint) request.checkpoint = checkpoint;
  const start = Number(get("window") ?? 0);
  if (start > 0) request.window_start = start;
  const decode: Record<string, number | boolean> = {};
  for (const name of SETTINGS) {
    const value = get(name);
    if (value !== undefined) decode[name] = name === "sample" ? value === "1" : Number(value);
  }
  if (Object.keys(decode).length) request.decode = decode as Partial<DecodeSettings>;
  return request;
}

/** The same the other way: what to set (and, as null, to remove) so that the address names `request`. */
export function paramsOf(request: TraceRequest | null, prefix = ""): Record<string, string | null> {
  const decode = request?.decode ?? {};
  const out: Record<string, string | null> = {
    text: request ? request.text : null,
    target: request?.target ?? null,
    prefix: request?.prefix?.length ? request.prefix.join(".") : null,
    pad: request?.pad ? String(request.pad) : null,
    checkpoint: request?.checkpoint ?? null,
    window: request?.window_start ? String(request.window_start) : null,
  };
  for (const name of SETTINGS) {
    const value = decode[name];
    out[name] = value === undefined ? null : String(Number(value));
  }
  return Object.fromEntries(Object.entries(out).map(([name, value]) => [prefix + name, value]));
}
