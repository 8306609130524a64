/**
 * From text to ids and back, as the `tokenizer.json` of a run says: words, characters, byte-pair merges over characters or
 * bytes, and WordPiece. Every token knows the characters of the text that it stands for.
 */

/** Characters of a text, counted by code points, from the first to before the second. */
export type Span = [number, number];

/** A character after normalisation, and what it came from. */
interface Letter {
  text: string;
  span: Span;
}

interface Content {
  normalizer: Part | null;
  pre_tokenizer: Part | null;
  decoder: Part | null;
  added_tokens: { id: number; content: string; special: boolean }[];
  model: {
    type: "WordLevel" | "WordPiece" | "BPE";
    vocab: Record<string, number>;
    merges?: (string | [string, string])[];
    unk_token?: string | null;
    byte_fallback?: boolean;
    ignore_merges?: boolean;
    continuing_subword_prefix?: string | null;
    max_input_chars_per_word?: number;
  };
}
type Part = { type: string } & Record<string, any>;

/** The pattern of GPT-2's words. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const SPACE = /^\p{White_Space}$/u;
const HAN = /^[\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\u{20000}-\u{2A6DF}\u{2A700}-\u{2CEAF}\u{2F800}-\u{2FA1F}]$/u;

/** A regular expression in the syntax of Oniguruma, whose classes are those of Unicode. */
function pattern(source: string): RegExp {
  const text = source.replaceAll("\\w", "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]").replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}");
  return new RegExp(text, "gv");
}
const literal = (text: string) => new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gu");
const patternOf = ({ Regex, String: text }: { Regex?: string; String?: string }) => (Regex === undefined ? literal(text!) : pattern(Regex));

const textOf = (letters: readonly Letter[]) => letters.map(({ text }) => text).join("");

/** The matches of a pattern as ranges of letters. */
function ranges(letters: readonly Letter[], regex: RegExp): Span[] {
  const starts = new Map<number, number>();
  let length = 0;
  letters.forEach(({ text }, i) => {
    starts.set(length, i);
    length += text.length;
  });
  starts.set(length, letters.length);
  return Array.from(textOf(letters).matchAll(regex)).filter(([found]) => found).map((match): Span => [starts.get(match.index)!, starts.get(match.index + match[0].length)!]);
}

const whole = (letters: readonly Letter[]): Span => [letters[0]?.span[0] ?? 0, letters.at(-1)?.span[1] ?? 0];
const each = (letters: readonly Letter[], f: (text: string) => string) => letters.flatMap(({ text, span }) => Array.from(f(text), (one): Letter => ({ text: one, span })));

function normalised(letters: Letter[], part: Part | null): Letter[] {
  switch (part?.type) {
    case undefined: return letters;
    case "Sequence": return (part!.normalizers as Part[]).reduce(normalised, letters);
    case "Lowercase": return each(letters, (text) => text.toLowerCase());
    case "Prepend": return letters.length ? [{ text: part!.prepend, span: [letters[0]!.span[0], letters[0]!.span[1]] }, ...letters] : letters;
    case "Replace": {
      const found: Letter[] = [];
      let at = 0;
      for (const [start, end] of ranges(letters, patternOf(part!.pattern))) {
        const span = whole(letters.slice(start, end));
        found.push(...letters.slice(at, start), ...Array.from(part!.content as string, (text): Letter => ({ text, span })));
        at = end;
      }
      return [...found, ...letters.slice(at)];
    }
    case "BertNormalizer": {
      const { clean_text: cleans, handle_chinese_chars: parts, lowercase, strip_accents: strips } = part!;
      let found = letters;
      if (cleans) found = found.filter(({ text }) => text === "\t" || text === "\n" || text === "\r" || !/^[\0\uFFFD\p{Cc}\p{Cf}\p{Co}\p{Cs}]$/u.test(text)).map((one) => (SPACE.test(one.text) ? { ...one, text: " " } : one));
      if (parts) found = found.flatMap((one) => (HAN.test(one.text) ? [{ ...one, text: " " }, one, { ...one, text: " " }] : [one]));
      if (strips ?? lowercase) found = each(found, (text) => text.normalize("NFD").replace(/\p{Mn}/gu, ""));
      return lowercase ? each(found, (text) => text.toLowerCase()) : found;
    }
    case "NFC": case "NFD": case "NFKC": case "NFKD":
      return ranges(letters, /\P{M}?\p{M}*/gu).flatMap(([start, end]) => {
        const some = letters.slice(start, end), span = whole(some);
        return Array.from(textOf(some).normalize(part!.type), (text): Letter => ({ text, span }));
      });
  }
  throw new RangeError(`the page does not know the normalizer ${part!.type}`);
}

/** Visible characters for the 256 bytes, as GPT-2 writes them. */
const BYTES = (() => {
  const shown = (byte: number) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(shown(byte) ? byte : next++));
})();
const BYTE_OF = new Map(BYTES.map((text, byte) => [text, byte]));
const [utf8, fromUtf8, strict] = [new TextEncoder(), new TextDecoder("utf-8", { ignoreBOM: true }), new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })];

function words(letters: Letter[], part: Part | null): Letter[][] {
  switch (part?.type) {
    case undefined: return [letters];
    case "Sequence": return (part!.pretokenizers as Part[]).reduce((all, one) => all.flatMap((some) => words(some, one)), [letters]);
    case "Split": {
      const found = ranges(letters, patternOf(part!.pattern));
      if (part!.behavior === "Removed" && part!.invert) return found.map(([start, end]) => letters.slice(start, end));
      if (part!.behavior !== "Isolated") break;
      const edges = [...new Set([0, ...found.flat(), letters.length])];
      return edges.slice(1).map((end, i) => letters.slice(edges[i]!, end));
    }
    case "ByteLevel": {
      const given = part!.add_prefix_space && letters.length && !SPACE.test(letters[0]!.text) ? [{ text: " ", span: [letters[0]!.span[0], letters[0]!.span[0]] as Span }, ...letters] : letters;
      const split = part!.use_regex === false ? [given] : ranges(given, pattern(GPT2)).map(([start, end]) => given.slice(start, end));
      return split.map((some) => some.flatMap(({ text, span }) => Array.from(utf8.encode(text), (byte): Letter => ({ text: BYTES[byte]!, span }))));
    }
    case "BertPreTokenizer":
      return ranges(letters, /[\p{P}$+<=>^`|~]|[^\p{P}$+<=>^`|~\p{White_Space}]+/gu).map(([start, end]) => letters.slice(start, end));
  }
  throw new RangeError(`the page does not know the pre-tokenizer ${part!.type}`);
}

export interface Token {
  id: number;
  span: Span;
}

export class Tokenizer {
  private content: Content;
  private texts = new Map<number, string>();
  private ids: Map<string, number>;
  private ranks: Map<string, number>;
  private unknown: number;
  private extra: RegExp | null;
  private known = new Map<string, { id: number; n: number }[]>();

  constructor(content: Content) {
    this.content = content;
    const { vocab, merges, unk_token: unknown } = content.model;
    this.ids = new Map([...Object.entries(vocab), ...content.added_tokens.map(({ content: text, id }): [string, number] => [text, id])]);
    for (const [text, id] of this.ids) this.texts.set(id, text);
    this.ranks = new Map((merges ?? []).map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]));
    this.unknown = (unknown && this.ids.get(unknown)) || 0;
    const extra = content.added_tokens.filter(({ special }) => !special).map(({ content: text }) => text).sort((a, b) => b.length - a.length);
    this.extra = extra.length ? new RegExp(extra.map((text) => literal(text).source).join("|"), "gu") : null;
  }

  encode(text: string): Token[] {
    const letters = Array.from(text, (one, i): Letter => ({ text: one, span: [i, i + 1] }));
    const found = this.extra ? ranges(letters, this.extra) : [];
    const edges = [0, ...found.flat(), letters.length], tokens: Token[] = [];
    for (let i = 0; i + 1 < edges.length; i++) {
      const some = letters.slice(edges[i]!, edges[i + 1]!);
      if (i % 2) tokens.push({ id: this.ids.get(textOf(some))!, span: whole(some) });
      else if (some.length) for (const word of words(normalised(some, this.content.normalizer), this.content.pre_tokenizer)) tokens.push(...this.tokensOf(word));
    }
    return tokens;
  }

  private tokensOf(word: Letter[]): Token[] {
    if (!word.length) return [];
    const text = textOf(word);
    let parts = this.known.get(text);
    if (!parts) {
      if (this.known.size > 10_000) this.known.clear();
      const { type } = this.content.model, letters = word.map((one) => one.text);
      parts = type === "WordLevel" ? [{ id: this.ids.get(text) ?? this.unknown, n: word.length }] : type === "WordPiece" ? this.pieces(letters) : this.merged(letters);
      this.known.set(text, parts);
    }
    let at = 0;
    return parts.map(({ id, n }) => {
      // Bytes of one character that has no token share its place.
      const from = Math.floor(at + 1e-9), span = whole(word.slice(from, from + Math.max(1, Math.round(n))));
      at += n;
      return { id, span };
    });
  }

  private pieces(letters: readonly string[]): { id: number; n: number }[] {
    const { max_input_chars_per_word: longest = 100, continuing_subword_prefix: prefix = "##" } = this.content.model;
    const found: { id: number; n: number }[] = [], unknown = [{ id: this.unknown, n: letters.length }];
    if (letters.length > longest) return unknown;
    for (let start = 0; start < letters.length; ) {
      let end = letters.length, id: number | undefined;
      for (; end > start && id === undefined; end--) id = this.ids.get((start ? prefix : "") + letters.slice(start, end).join(""));
      if (id === undefined) return unknown;
      found.push({ id, n: end + 1 - start });
      start = end + 1;
    }
    return found;
  }

  private merged(letters: readonly string[]): { id: number; n: number }[] {
    const { ignore_merges: isWhole, byte_fallback: spells } = this.content.model;
    const text = letters.join("");
    if (isWhole && this.ids.has(text)) return [{ id: this.ids.get(text)!, n: letters.length }];
    const parts = letters.flatMap((letter) => {
      if (this.ids.has(letter)) return [{ text: letter, n: 1 }];
      const bytes = Array.from(utf8.encode(letter), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
      return spells && bytes.every((byte) => this.ids.has(byte)) ? bytes.map((byte) => ({ text: byte, n: 1 / bytes.length })) : [{ text: "", n: 1 }];
    });
    for (;;) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]!.text} ${parts[i + 1]!.text}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) break;
      parts.splice(at, 2, { text: parts[at]!.text + parts[at + 1]!.text, n: parts[at]!.n + parts[at + 1]!.n });
    }
    return parts.map(({ text: part, n }) => ({ id: this.ids.get(part) ?? this.unknown, n }));
  }

  /** A text as it is cut. */
  normalise = (text: string): string => textOf(normalised(Array.from(text, (one, i): Letter => ({ text: one, span: [i, i + 1] })), this.content.normalizer));

  /** Whether each character is a token. */
  get isOfCharacters(): boolean {
    return this.content.model.type === "WordLevel" && this.content.decoder !== null;
  }

  /** Whether tokens are joined by spaces that belong to none of them. */
  get spaced(): boolean {
    return !this.content.decoder || this.content.decoder.type === "WordPiece";
  }

  /** A stored token as text; bytes that are not whole characters as "<E282>". */
  readable(token: string): string {
    if (this.content.decoder?.type !== "ByteLevel") return token;
    const bytes = Array.from(token, (one) => BYTE_OF.get(one));
    if (bytes.includes(undefined)) return token;
    try {
      return strict.decode(Uint8Array.from(bytes as number[]));
    } catch {
      return `<${bytes.map((byte) => byte!.toString(16).toUpperCase().padStart(2, "0")).join("")}>`;
    }
  }

  /** A token as it is stored. */
  stored = (id: number) => this.texts.get(id) ?? `<no token ${id}>`;

  /** The text of ids, of which none is a special token. */
  decode(ids: readonly number[]): string {
    const tokens = ids.map(this.stored), { decoder, model } = this.content;
    if (!decoder) return tokens.join(" ");
    if (decoder.type === "WordPiece") {
      const parts = tokens.map((token, i) => (token.startsWith(decoder.prefix) ? token.slice(decoder.prefix.length) : i ? ` ${token}` : token));
      return parts.map((part) => (decoder.cleanup ? part.replace(/ ([.?!,]|n't|'m|'s|'ve|'re)/g, "$1") : part)).join("");
    }
    if (decoder.type === "ByteLevel") {
      const added = new Set(this.content.added_tokens.map(({ content }) => content));
      return fromUtf8.decode(Uint8Array.from(tokens.flatMap((token) => (added.has(token) || Array.from(token).some((one) => !BYTE_OF.has(one)) ? Array.from(utf8.encode(token)) : Array.from(token, (one) => BYTE_OF.get(one)!)))));
    }
    if (!model.byte_fallback) return tokens.join("");
    let text = "", bytes: number[] = [];
    const spelled = () => {
      const raw = Uint8Array.from(bytes);
      try {
        text += strict.decode(raw);
      } catch {
        text += "\uFFFD".repeat(raw.length);
      }
      bytes = [];
    };
    for (const token of tokens) {
      const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
      if (byte) bytes.push(parseInt(byte[1]!, 16));
      else {
        if (bytes.length) spelled();
        text += token.replaceAll("▁", " ");
      }
    }
    if (bytes.length) spelled();
    const strips = (decoder.decoders as Part[]).some(({ type }) => type === "Strip");
    return strips && text.startsWith(" ") ? text.slice(1) : text;
  }
}
