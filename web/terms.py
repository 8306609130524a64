"""Print `src/terms.ts`: the terms that the page explains, with their definitions from docs/reference/glossary.md.

`make web` writes the file; `make web-check` and a test fail when it differs from the glossary.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

GLOSSARY = Path(__file__).parents[1] / "docs" / "reference" / "glossary.md"
WORDS = {
    "padding": r"\[PAD\] token",
    "positional encoding": "position vector",
    "query, key, value": "query, key, value|quer(?:y|ies)|key",
}
"""What stands for a term on the page where that is not its name: a regular expression, which an "s" may follow.

"value" alone is not among them, since most values on the page are any numbers."""
TERMS = (
    "attention",
    "causal mask",
    "completeness",
    "comprehensiveness",
    "cross-attention",
    "embedding",
    "feed-forward block",
    "head",
    "integrated gradients",
    "LayerNorm",
    "leave-one-out",
    "log-probability",
    "logit",
    "padding",
    "positional encoding",
    "quantity",
    "query, key, value",
    "residual stream",
    "rotary position embedding",
    "softmax",
    "sufficiency",
    "token",
)
HEADER = """\
/** Made by `make web` from docs/reference/glossary.md, and the list of terms in web/terms.py: change it there. */

/** The terms that the page explains: the name, a regular expression of what stands for it, and the definition. */
export const TERMS: readonly (readonly [name: string, words: string, definition: string])[] = ["""


def definitions(text: str) -> dict[str, str]:
    """Return the definition of each term as plain text: links lose their addresses, citations in parentheses go."""
    found = {}
    for name, lines in re.findall(r"^(\S.*)\n: (.+(?:\n  .+)*)", text, re.MULTILINE):
        plain = re.sub(r"\s+\(\[[^\]]+\]\([^)]*\)[^)]*\)", "", " ".join(lines.split()))
        found[name] = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", plain).replace("`", "")
    return found


def terms_ts() -> str:
    """Return the module. Of two terms that begin alike the longer is first."""
    known = definitions(GLOSSARY.read_text(encoding="utf-8"))
    rows = []
    for name in sorted(TERMS, key=lambda name: (-len(name), name)):
        rows.append(f"  {json.dumps([name, WORDS.get(name, name), known[name]], ensure_ascii=False)},")
    return "\n".join([HEADER, *rows, "];", ""])


if __name__ == "__main__":
    sys.stdout.buffer.write(terms_ts().encode("utf-8"))
