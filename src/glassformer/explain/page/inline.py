"""Inline scripts, styles and data of the page into one HTML file, with a policy that blocks everything else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from glassformer.errors import GlassformerError
from glassformer.explain.page.responses import to_json


def inline_page(index: str, script: str, style: str, data: Mapping[str, Any]) -> str:
    """Return the page with its script, style and data inside, and a policy that blocks everything else."""
    if re.search(r"</script|<!--", script, re.IGNORECASE) or "</style" in style.lower():
        raise GlassformerError("the built page would end its own script or style", "build it again: make web")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'none'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = _swap(r"<link\b[^>]*app\.css[^>]*>", f"<style>{style}</style>", index)
    html = _swap(r"<script\b[^>]*app\.js[^>]*>\s*</script>", "", html)
    html = _swap(r"<meta charset=[^>]*>", f'<meta charset="utf-8">\n{meta}', html)
    # The data before the script, and both at the end, where all that the script looks for exists.
    inlined = (
        f'<script type="application/json" id="glassformer-data">{escape_json(to_json(data))}</script>\n'
        f"<script>{script}</script>\n</body>"
    )
    return _swap(r"</body>", inlined, html)


def escape_json(text: str) -> str:
    """Return JSON that is safe inside a script element: it cannot end the element or open another.

    It is ASCII, since one character beyond Latin-1 makes Chromium store all 20 MB in two bytes per character.
    """
    return re.sub(r"[<>&]", lambda match: f"\\u{ord(match[0]):04x}", re.sub(r"[^\0-\x7f]+", _in_ascii, text))


def _in_ascii(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _hash(content: str) -> str:
    """Return a Content-Security-Policy source that allows exactly this inline content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")


def _swap(pattern: str, replacement: str, text: str) -> str:
    """Replace the single match of a pattern."""
    swapped, n_places = re.subn(pattern, lambda match: replacement, text, flags=re.IGNORECASE)
    if n_places != 1:
        raise GlassformerError(f"the built page matches {pattern} {n_places} times", "build it again: make web")
    return swapped


def size_of(data: Any) -> int:
    """Return the size of this data in the file, in bytes."""
    return len(escape_json(to_json(data)))
