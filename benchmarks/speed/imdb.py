"""Part e: seconds of training until 83.06% of IMDB's test reviews are told right, the accuracy a tutorial published.

Only updates count: neither reading, nor tokenizing, nor looking at the test set. The test set decides when to stop,
for both, so this measures time and not how good a model is.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.speed.child import Child, ChildError
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.registry import PEERS
from benchmarks.speed.table import EXTRAPOLATED, Figure, Section, busy, rounded
from benchmarks.speed.training import log, wait_for_quiet

ACCURACY = 0.8306
OUR_EPOCHS, OUR_EVERY = 0.5, 0.5
"""Our schedule's length in epochs; seconds of training between two looks at the test set."""
TUTORIAL_EPOCHS = 7
"""Epochs after which a restatement of the tutorial's model came to the accuracy, about, in an earlier trial; only
--whole trains it again and says how many there are."""
BATCHES = 60
"""Of the tutorial, to tell its speed."""
COLUMNS = ("implementation", "training seconds to 83.06%", "how", "remarks")


def run_imdb(options: Options) -> Section:
    """Measure the table of part e."""
    section = Section("(e) IMDB: seconds of training to 83.06% on the test set", COLUMNS)
    ours = our_seconds(options, section) if "ours" in options.peers else None
    if "tutorial" in options.peers:
        tutorial_seconds(options, section, ours)
    section.notes.append(
        f"Ours: the recipe `imdb` with a schedule of {OUR_EPOCHS} epochs, one seed per run; every {OUR_EVERY} s of "
        "training it is scored on part of the test set, and on all of it near the target. Only steps are timed."
    )
    return section


def our_seconds(options: Options, section: Section) -> float | None:
    """Return the median seconds of several seeds of our run."""
    found: list[dict[str, Any]] = []
    others: list[float | None] = []
    for seed in range(1, min(options.repeats, 3) + 1):
        if not options.anyway:
            wait_for_quiet(options.wait)
        spec = {"seed": seed, "epochs": OUR_EPOCHS, "every": OUR_EVERY, "accuracy": ACCURACY}
        with (
            OtherLoad() as load,
            Child(PEERS["ours"].python, "benchmarks.speed.peers.ours_imdb", spec, options.variables) as child,
        ):
            try:
                found.append(child.answer())
            except ChildError as error:
                section.rows.append(["glassformer", "–", "", f"not run: {error}"])
                return None
        others.append(load.cores)
        log(f"glassformer, seed {seed}: {found[-1]}, others {load.cores or 0:.2f} cores")
    shown, remark = busy(others, options.anyway)
    missed = sum(not answer["reached"] for answer in found)
    remarks = [remark] if remark else []
    remarks += [f"{missed} of {len(found)} seeds did not reach it"] if missed else []
    seconds = Figure([answer["seconds"] for answer in found])
    preparing = Figure([answer["preparing"] for answer in found])
    how = f"measured, {len(found)} seeds; {preparing.text()} s of reading and tokenizing excluded"
    section.rows.append(["glassformer", seconds.text() if shown and not missed else "–", how, "; ".join(remarks)])
    section.facts.append({"peer": "glassformer", "runs": found, "others": others})
    return None if missed else seconds.median


def tutorial_seconds(options: Options, section: Section, ours: float | None) -> None:
    """Measure the tutorial's speed, for a part and extrapolated, or for the entire training."""
    peer = PEERS["tutorial"]
    if reason := peer.why_not():
        section.rows.append([peer.title, "–", "", f"not run: {reason}"])
        return
    with ExitStack() as closing, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder) / "imdb.npz"
        n_reviews = save_reviews(data)
        spec = {"data": str(data), "seed": 1, "accuracy": ACCURACY}
        child = closing.enter_context(Child(peer.python, "benchmarks.speed.peers.tutorial", spec, options.variables))
        child.answer()
        found, others = [], list[float | None]()
        for _ in range(options.repeats):
            if not options.anyway:
                wait_for_quiet(options.wait)
            with OtherLoad() as load:
                found.append(child.request(batches=BATCHES))
            others.append(load.cores)
        shown, remark = busy(others, options.anyway)
        speed = Figure([answer["reviews"] / answer["seconds"] for answer in found])
        seconds = TUTORIAL_EPOCHS * n_reviews / speed.median
        how = (
            f"extrapolated: {speed.text()} reviews/s, so {rounded(n_reviews / speed.median)} s per epoch, times the "
            f"{TUTORIAL_EPOCHS} epochs it needs"
        )
        section.facts.append({"peer": peer.title, "rounds": found, "others": others})
        if options.whole:
            answer = child.request(whole=True)
            seconds, how = (
                answer["seconds"],
                f"measured to the end: {answer['epochs']} epochs to {answer['accuracy']:.2%}",
            )
            section.facts.append({"peer": peer.title, "whole": answer})
    ratio = "" if ours is None or not shown else f"{seconds / ours:,.0f} × ours"
    remarks = "; ".join(text for text in (ratio, remark) if text)
    section.rows.append([peer.title, rounded(seconds) if shown else "–", how, remarks])
    if ours is not None and shown:
        text = f"{peer.title}: {rounded(seconds)} s{'' if options.whole else f' {EXTRAPOLATED}'}"
        work = "training to 83.06% of IMDB, without reading and tokenizing"
        section.summary.append((work, f"{rounded(ours)} s", text, f"{seconds / ours:,.0f} ×"))


def save_reviews(path: Path) -> int:
    """Write IMDB as the tutorial reads it, 200 ids a review; how many reviews it trains on."""
    from glassformer.config.recipes import load_recipe
    from glassformer.data.datasets.local_files import load_text_data
    from glassformer.tasks import task_class

    config = load_recipe("imdb-tutorial")
    kind = task_class(config.task)
    data = load_text_data(kind.schema, config.data)
    task, arrays = kind.from_data(config, data), {}
    for prefix, split in (("", data.train), ("test_", data.test or data.valid)):
        corpus = task.encode(split, training=False)
        rows = np.zeros((len(corpus), config.text.max_len), np.int32)
        for i in range(len(corpus)):
            rows[i, : len(corpus.ids[i])] = corpus.ids[i]
        arrays |= {f"{prefix}ids": rows, f"{prefix}labels": np.asarray(corpus.labels)}
    np.savez(path, **arrays)
    return len(arrays["ids"])
