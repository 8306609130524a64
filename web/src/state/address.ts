/**
 * The page's address: `#/step?node=encoder.0.self.weights&head=2`. It holds the screen, its parameters and the traced
 * text, so that reloading, links and the Back button work.
 */
import type { DecodeSettings, TraceRequest } from "../types";

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

const whole = (text: string | undefined) => Math.max(0, Math.floor(Number(text))) || undefined;

/** The trace request in the address: `prefix` is "" for the first trace, "o." for the second. */
export function requestFromParams(params: Record<string, string>, prefix = ""): TraceRequest | null {
  const get = (name: string) => params[prefix + name];
  const text = get("text");
  if (text === undefined) return null;
  const settings = SETTINGS.flatMap((name) => {
    const value = get(name);
    return value === undefined ? [] : [[name, name === "sample" ? value === "1" : Number(value)]];
  });
  const request: TraceRequest = {
    text,
    target: get("target"),
    prefix: get("prefix") ? get("prefix")?.split(".").map(Number).filter(Number.isInteger) : undefined,
    pad: whole(get("pad")),
    checkpoint: get("checkpoint") || undefined,
    member: whole(get("member")),
    window_start: whole(get("window")),
    decode: settings.length ? (Object.fromEntries(settings) as Partial<DecodeSettings>) : undefined,
  };
  return JSON.parse(JSON.stringify(request)) as TraceRequest; // without undefined fields
}

/** The inverse: the parameters to set, or with null to remove. */
export function paramsFromRequest(request: TraceRequest | null, prefix = ""): Record<string, string | null> {
  const { text, target, prefix: forced, pad, checkpoint, member, window_start, decode } = request ?? {};
  const out: Record<string, unknown> = { text, target, prefix: forced?.join(".") || null, pad: pad || null, checkpoint, member, window: window_start || null };
  for (const name of SETTINGS) out[name] = decode?.[name] === undefined ? null : Number(decode[name]);
  return Object.fromEntries(Object.entries(out).map(([name, value]) => [prefix + name, value == null ? null : String(value)]));
}
