"""A run, or an export of one, as `glassformer.load` gives it: translations, seconds of each sentence, and of all."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.peers.serving import answer, own_stdout

import glassformer


def main() -> None:
    """Translate, then measure a round at each request."""
    answers = own_stdout()
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    precision = {"precision": "fp32"} if spec["is_run"] else {}
    model: Any = glassformer.load(spec["folder"], device="cpu", **precision)
    texts = spec["texts"]
    answer(answers, {"translations": [one["translation"] for one in model.predict(texts)]})
    for _ in sys.stdin:
        few = texts[: spec["n_single"]]
        figures = [
            1000 * statistics.median(seconds(model, [text], beam_size=1) for text in few),
            1000 * statistics.median(seconds(model, [text]) for text in few),
            len(texts) / seconds(model, texts, beam_size=1),
            len(texts) / seconds(model, texts),
        ]
        answer(answers, {"figures": figures})


def seconds(model: Any, texts: Sequence[str], **options: Any) -> float:
    """Return the seconds that translating takes."""
    began = time.perf_counter()
    model.predict(texts, **options)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
