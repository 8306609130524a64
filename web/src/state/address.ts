/**
 * The page's address: `#/step?node=encoder.0.self.weights&head=2`. It holds the screen, its parameters and the traced
 * text, so that reloading, links and the Back button work.
 */
import { type DecodeSettings, type FieldKind, REQUEST_FIELDS, SETTING_FIELDS, type TraceRequest } from "../types";

export const SCREENS = ["flow", "step", "attention", "decode", "why", "compare", "learn", "training"] as const;
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

/** A field of a request as text, and back; null where the text is none. */
function toText(kind: FieldKind, value: unknown): string {
  if (kind === "flag") return value ? "1" : "0";
  return kind === "numbers" ? (value as number[]).join(".") : kind === "words" ? (value as string[]).join(" ") : String(value);
}

function fromText(kind: FieldKind, text: string): unknown {
  if (kind === "flag") return text === "1";
  if (kind === "words") return text.split(" ").filter(Boolean);
  if (kind === "numbers") return text.split(".").map(Number).filter(Number.isInteger);
  return kind === "text" ? text : Number.isFinite(Number(text)) ? Number(text) : null;
}

/** Whether a value is that of an absent field. */
const isAbsent = (value: unknown) => value == null || value === 0 || (Array.isArray(value) && !value.length);

/** The trace request in the address: `prefix` is "" for the first trace, "o." for the second. */
export function requestFromParams(params: Record<string, string>, prefix = ""): TraceRequest | null {
  const get = (name: string) => params[prefix + name];
  if (get("text") === undefined) return null;
  const request: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(REQUEST_FIELDS)) {
    if (kind === "settings") {
      const given = Object.entries(SETTING_FIELDS).flatMap(([setting, one]) => {
        const text = get(setting);
        return text === undefined ? [] : [[setting, fromText(one, text)]];
      });
      if (given.length) request[name] = Object.fromEntries(given);
    } else {
      const text = get(name);
      const value = text === undefined ? null : fromText(kind, text);
      if (!isAbsent(value)) request[name] = value;
    }
  }
  return request as unknown as TraceRequest;
}

/** The inverse: the parameters to set, or with null to remove. */
export function paramsFromRequest(request: TraceRequest | null, prefix = ""): Record<string, string | null> {
  const out: Record<string, string | null> = {};
  for (const [name, kind] of Object.entries(REQUEST_FIELDS)) {
    const value = request?.[name as keyof TraceRequest];
    if (kind !== "settings") out[prefix + name] = isAbsent(value) ? null : toText(kind, value);
    else for (const [setting, one] of Object.entries(SETTING_FIELDS)) {
      const chosen = (value as DecodeSettings | undefined)?.[setting as keyof DecodeSettings];
      out[prefix + setting] = chosen == null ? null : toText(one, chosen);
    }
  }
  return out;
}
