/** Tests which words of a text are terms, and that each term is found by its name. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TERMS } from "../src/terms";
import { termsIn } from "../src/views/Terms";

const found = (text: string, seen?: Set<number>) =>
  termsIn(text, seen).flatMap((piece) => (typeof piece === "string" ? [] : [`${piece[1]}: ${TERMS[piece[0]]![0]}`]));

test("a term is found by its name or by the words that stand for it", () => {
  const byName = TERMS.map(([name]) => [name, found(name.replace("padding", "[PAD] token").replace("positional encoding", "position vector"))]);
  assert.deepEqual(byName.filter(([, pieces]) => pieces!.length !== 1), []);
  assert.deepEqual(found("Queries and KEYS of a head"), ["Queries: query, key, value", "head: head"]);
});

test("of a term the first place is marked, and none that was seen before", () => {
  const seen = new Set<number>();
  assert.deepEqual(termsIn("a token, two tokens", seen).filter((piece) => typeof piece === "string"), ["a ", ", two tokens"]);
  assert.deepEqual(found("one more token and its logit", seen), ["logit: logit"]);
});

test("nothing of the text is lost, and a part of a word is no term", () => {
  const text = "Self-attention ahead: the keyboard, negative values, softmaximal. Rotary position embedding";
  assert.equal(termsIn(text).map((piece) => (typeof piece === "string" ? piece : piece[1])).join(""), text);
  assert.deepEqual(found(text), ["Rotary position embedding: rotary position embedding"]);
});
