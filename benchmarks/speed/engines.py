"""Part j: one translator answered by torch and by what it can be exported to: scores, throughput, delay, cold start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.speed.child import Child, environment
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.startup import timed
from benchmarks.speed.table import Figure, Section, busy, rounded
from benchmarks.speed.training import log, wait_for_quiet

N_SINGLE = 60
"""Sentences translated one at a time in a round."""
ENGINES = (("ctranslate2", None), ("ctranslate2", "int8"), ("onnx", None))
FACTS = "glassformer.json"
COLUMNS = ("engine", "BLEU, validation", "greedy, ms", "beam, ms", "greedy, sentences/s", "beam, sentences/s")


def run_engines(options: Options) -> Section:
    """Measure the table of part j."""
    import glassformer
    from glassformer.data.datasets.local_files import load_text_data

    section = Section("(j) a translator answered by other engines", (*COLUMNS, "first answer, s", "remarks"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = options.checkpoint or train_translator(Path(folder), options)
        run: Any = glassformer.load(path, device="cpu", precision="fp32")
        valid = load_text_data(run.task.schema, run.task.config.data).valid
        texts = valid.text[: options.sentences]
        folders = {"torch, fp32": path}
        for target, quantization in ENGINES:
            name, out = f"{target}, {quantization or 'fp32'}", Path(folder) / f"{target}-{quantization}"
            log(f"exporting for {name}")
            run.export(target, out, quantization=quantization)
            folders[name] = out
        with ExitStack() as closing:
            children = {name: closing.enter_context(child_of(out, texts, options)) for name, out in folders.items()}
            truth = valid.answers[: len(texts)]
            scores = {name: bleu_of(child.answer()["translations"], truth, run) for name, child in children.items()}
            found, others = measured(options, children, folders, texts[0])
    beam = run.task.config.decode.beam_size
    for name, rounds in found.items():
        shown, remark = busy(others[name], options.anyway)
        figures = [Figure([one[column] for one in rounds]).text() if shown else "–" for column in range(5)]
        section.rows.append([name, f"{scores[name]:.2f}", *figures, remark])
        section.facts.append({"engine": name, "bleu": scores[name], "rounds": rounds, "others": others[name]})
    section.notes.append(
        f"{run.task.config.model.n_layers} layers of d {run.task.config.model.d_model}, beam {beam}, "
        f"{len(texts):,} sentences in bulk, {N_SINGLE} one at a time (their median). The first answer is that of "
        "`glassformer predict FOLDER TEXT` in a new process."
    )
    return section


def child_of(folder: Path, texts: Sequence[str], options: Options) -> Child:
    """Return a process of its own, since the threads of two libraries in one process get in each other's way."""
    is_run = not (folder / FACTS).is_file()
    spec = {"folder": str(folder), "is_run": is_run, "texts": list(texts), "n_single": N_SINGLE}
    return Child(Path(sys.executable), "benchmarks.speed.peers.ours_engine", spec, options.variables)


def measured(
    options: Options, children: dict[str, Child], folders: dict[str, Path], text: str
) -> tuple[dict[str, list[list[float]]], dict[str, list[float | None]]]:
    """Return for each engine the five figures of every round, and the load of others."""
    found: dict[str, list[list[float]]] = {name: [] for name in children}
    others: dict[str, list[float | None]] = {name: [] for name in children}
    for i in options.rounds():
        for name, child in children.items():
            if not options.anyway:
                wait_for_quiet(options.wait)
            command = [sys.executable, "-m", "glassformer", "predict", str(folders[name]), text]
            command += ["--engine", "torch"] if name.startswith("torch") else []
            with OtherLoad() as load:
                figures = [*child.request()["figures"], timed(command, options)]
            others[name].append(load.cores)
            found[name].append(figures)
            log(f"round {i + 1}, {name}: {', '.join(map(rounded, figures))}, others {load.cores or 0:.2f} cores")
    return found, others


def bleu_of(translations: Sequence[str], answers: Sequence[str], run: Any) -> float:
    """Return the BLEU of translations."""
    from glassformer.evaluate.translation import score

    return float(score(translations, answers, n_bootstrap=0, tokenize=run.task.config.decode.bleu_tokenize)["bleu"])


def train_translator(folder: Path, options: Options) -> Path:
    """Train on generated dates for a short time; return the run folder."""
    command = [sys.executable, "-m", "glassformer", "train", "dates", "--steps", "2" if options.tiny else "100"]
    command += ["--n-dates", "400" if options.tiny else "4000", "--out", str(folder / "run")]
    log("training a small translator")
    finished = subprocess.run(command, capture_output=True, text=True, env=environment(options.variables))
    if finished.returncode:
        raise SystemExit(f"part j could not train its model: {finished.stderr.strip().splitlines()[-1]}")
    return folder / "run"
