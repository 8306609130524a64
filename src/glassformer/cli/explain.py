"""The commands that look inside a run: `explain`, `edit`, `findings`, `figure`, `learn` and `watch`.

How layers and heads are counted is said in `glassformer.explain`.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from glassformer.cli.flags import Command, Device, Result, run_folder
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder, is_locked
from glassformer.utils import console
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.formatting import glassformer_command, shortened

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

FINDINGS, FIGURES, PAGES = (".toml",), (".pdf", ".png", ".svg"), (".html", ".htm")
"""Suffixes of what --out names."""
EFFECT = ("position", "target", "before", "after", "log_prob_before", "log_prob_after", "rank_after", "kl")
"""What is printed of the effect of an edit on a prediction."""
N_MATRICES, MAX_CHARS = 12, 80
"""Parameters in the table of `learn`, those with the largest gradients; and characters of an answer."""

CHILD = """\
import os, signal, sys, threading
from glassformer.cli.main import main
def end_with_parent():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_with_parent, daemon=True).start()
if hasattr(os, "nice"):
    os.nice(5)
sys.exit(main(sys.argv[1:]))
"""
"""What the page's process runs: a command that gives way to the training, and ends with who holds its stdin."""


class Look(Command):
    """A command that looks at what a model answers to one text."""

    checkpoint: str = "model"
    """A checkpoint of the run, such as step-00001000, instead of the finished model."""
    member: int = 0
    """Which model of an ensemble, counted from 0."""
    label: str | None = None
    """Of several labels the one to look at, the most probable when absent; of a tagger the word, itself or its number
    from 1, the first that is tagged when absent."""
    device: Device = "auto"
    """Where to compute."""

    def explained(self, run: Any, texts: Sequence[str | None], **request: Any) -> list[Any]:
        """Return the explanations of texts, those after the first for its label; a request has fields of the first."""
        from glassformer.explain import explanation
        from glassformer.explain.one_label import of_same_label

        found, which = list[Any](), {"checkpoint": self.checkpoint, "member": self.member, "label": self.label}
        for text in [text for text in texts if text is not None]:
            try:
                wanted = explanation.TraceRequest(text, **which, **request)
            except UsageError as error:
                message = re.sub("^request: (?:learn_)?(?!text|answer)", "--", error.message)
                raise UsageError(message, error.hint) from error
            wanted = of_same_label(wanted, found[0].subject) if found and wanted.label is None else wanted
            found.append(explanation.explain(run, wanted, trace_id=f"t{len(found) + 1}"))
            request = {}
        return found


def check_suffix(out: str | None, *known: tuple[str, ...]) -> str:
    """Return the suffix of a file to write; raise UsageError for one of another kind."""
    suffix, every = Path(out or "").suffix.lower(), [suffix for each in known for suffix in each]
    if out is not None and suffix not in every:
        raise UsageError(f"--out ends in {suffix or 'nothing'}", f"name a file that ends in {' or '.join(every)}")
    if out is not None and suffix not in FINDINGS and os.path.lexists(out):
        raise UsageError(f"{out} exists", "name a new file, or remove this one")
    return suffix


def loaded(command: Any) -> Any:
    """Return the run that a command looks into, its first word."""
    import glassformer

    run = glassformer.load(run_folder(command.words[0]), device=command.device)
    run.allow_changed_data = getattr(command, "allow_changed_data", False)
    return run


class Served(Command):
    """A command that serves a page."""

    port: int | None = None
    """Port to serve on; the first free one from 8317 on when absent."""
    browser: bool = True
    """Open the page in the browser; --no-browser only prints the address."""

    def serve(self, subject: Any, start: Sequence[Any] = ()) -> None:
        """Serve the page until Ctrl-C, first showing these explanations."""
        from glassformer.explain.page import server

        page = server.PageServer(subject, port=self.port, start=start)
        logger.info(f"the page of {subject.path}, until Ctrl-C: {page.address}")
        console.write_json({"address": page.address}) if self.json else console.write(page.address)
        page.run(self.browser)
        logger.info("the page has ended")


def write_page(out: str, page: str, sentences: Sequence[str]) -> None:
    """Write a page as one file, and log what is to be said of it."""
    atomic_write_text(Path(out), page)
    for sentence in (*sentences, f"written: {out}"):
        logger.info(sentence)


def save_page(out: str, explanation: Any, other: Any = None) -> None:
    """Write the page of an explanation, and of another text to compare with."""
    from glassformer.explain.page.saved_page import saved_page_html

    if explanation.predictions:
        logger.info("weighing the words …")
    page, lacks = saved_page_html(explanation, other=other)
    write_page(out, page, [*explanation.warnings, *lacks])


class Explain(Served, Look):
    """See every step of a run's forward pass on a text of yours, with the real numbers.

    The page is served until Ctrl-C, with --out it is one file, and --json prints the numbers.
    """

    usage: ClassVar = "explain RUN [TEXT]"
    example: ClassVar = 'explain runs/imdb "I loved it"'
    target: str | None = None
    """A translation to look at, instead of the model's own."""
    compare: str | None = None
    """A second text, to look at side by side."""
    out: str | None = None
    """File to write the page with the model to instead of serving it, .html (also -o)."""
    exact: bool = False
    """With --out, weights of 32 bits; otherwise of 16 bits where they take more than 1 MB."""
    model: bool = True
    """With --out, the model; --no-model stores the numbers of the text alone."""

    def run(self) -> Iterator[Result]:
        check_suffix(self.out, PAGES)
        text = next(iter(self.words[1:]), None)
        if len({"exact", "model"} & self.given.keys()) > bool(self.out):
            raise UsageError("--exact or --no-model goes with --out, one of them", "as in: -o page.html --exact")
        whole = ("out", "exact", "checkpoint", "member") if self.out and self.model else ()
        general = "device", "port", "browser", *whole
        if text is None and (names := [name for name in self.given if name not in general]):
            raise UsageError(f"--{names[0]} goes with a text", f"as in: glassformer {self.example}")
        run = loaded(self)
        explained = self.explained(run, [text, self.compare], target=self.target)
        if self.json:
            yield facts(explained), ()
        if self.out and self.model:
            from glassformer.explain.page.model_page import model_page
            from glassformer.interop.check import n_alike

            write_page(self.out, *model_page(run, [one.request for one in explained], n_alike, self.exact))
        elif self.out:
            save_page(self.out, *explained)
        elif not self.json:
            self.serve(run, explained)


def facts(explanations: Sequence[Any]) -> dict[str, Any]:
    """Return the output of --json: {manifest, attribution}, and with --compare the same under "other".

    Of a bare encoder, which has no answer to attribute, the attribution is null.
    """
    from glassformer.explain.attribution import attribute

    first, *others = explanations
    weighed = asdict(attribute(first)) if first.predictions or first.is_number else None
    return {"manifest": first.manifest(), "attribution": weighed} | ({"other": facts(others)} if others else {})


class Edit(Look):
    """Change the forward pass of a text by edits, and print what they change.

    With --out the effect is written, too: .html is the page as one file, .pdf, .png and .svg a figure, and .toml a file
    of findings, to which this one is added and which `glassformer findings` measures again.
    """

    usage: ClassVar = "edit RUN TEXT EDIT [EDIT...]"
    example: ClassVar = 'edit runs/imdb "I loved it" encoder.0.self.head1=0'
    target: str | None = None
    """A translation to look at, instead of the model's own."""
    compare: str | None = None
    """A second text, whose values =B takes."""
    out: str | None = None
    """File for the effect (also -o): .html, .pdf, .png, .svg or .toml."""
    allow_changed_data: bool = False
    """For =mean: average over the validation texts even if they have changed since training."""

    def run(self) -> Iterator[Result]:
        from glassformer.explain.edits.effects import with_edits

        suffix, (text, *edits) = check_suffix(self.out, PAGES, FIGURES, FINDINGS), self.words[1:]
        if suffix in FINDINGS and {"checkpoint", "member", "target", "label"} & self.given.keys():
            message = "findings are of the finished model, of the first of an ensemble, and of its own answer"
            raise UsageError(message, "leave out --checkpoint, --member, --target and --label")
        run = loaded(self)
        explained = self.explained(run, [text, self.compare], target=self.target)
        edited = with_edits(explained[0], edits, *explained[1:])
        yield effect(edited)
        if self.out is not None and suffix in FINDINGS:
            add_finding(run, Path(self.out), explained, edits)
        elif self.out is not None and suffix in FIGURES:
            save_figure(edited, "effect", self.out)
        elif self.out is not None:
            save_page(self.out, edited, *explained[1:])


def effect(edited: Any) -> Result:
    """Return what the model predicts under the edits of an explanation."""
    from glassformer.models.ensemble import members_of

    result = edited.edited
    for warning in edited.warnings:
        logger.warning(warning)
    shown = {
        "of": edited.together
        and f"member {result.member} of {len(members_of(edited.run.model))} alone, which is edited",
        "edit": [f"{text} (changes no number)" if text in result.unchanged else text for text in result.edits],
        "before": result.answer_before,
        "after": result.why_not if result.answer_after is None else result.answer_after,
        "effects": [{name: getattr(one, name) for name in EFFECT} for one in result.effects],
    }
    return result.to_json(), console.lines_of(shown)


def add_finding(run: Any, path: Path, explanations: Sequence[Any], edits: Sequence[str]) -> None:
    """Measure edits and add them to a file of findings on the same weights, or begin one."""
    from glassformer.explain.edits.findings import make_finding, read_findings, write_findings
    from glassformer.explain.subject import MODEL, checkpoint_sha256

    weights, findings = read_findings(path) if path.exists() else (None, [])
    if findings and weights != checkpoint_sha256(run, MODEL):
        raise UsageError(f"{path} holds findings on other weights", "name another file")
    write_findings(path, run, [*findings, make_finding(explanations[0], edits, *explanations[1:])])
    logger.info(f"written: {path}, {len(findings) + 1} in all")


class Findings(Command):
    """Measure each finding of FILE, as `glassformer edit` writes it, again on this run; exit code 1 if one differs."""

    usage: ClassVar = "findings RUN FILE"
    example: ClassVar = "findings runs/demo findings.toml"
    device: Device = "auto"
    """Where to compute."""
    allow_changed_data: bool = False
    """For =mean: average over the validation texts even if they have changed since training."""

    def run(self) -> Iterator[Result]:
        from glassformer.explain.edits.findings import differences, measure_again, read_findings
        from glassformer.explain.subject import MODEL, checkpoint_sha256

        run, file = loaded(self), Path(self.words[1])
        weights, findings = read_findings(file)
        if not (same := weights == checkpoint_sha256(run, MODEL)):
            logger.warning(f"the findings of {file} are on other weights than those of {run.path}")
        measured, of_numbers = [measure_again(run, one) for one in findings], run.task.decision.sd is not None
        differing = [differences(*pair, of_numbers) for pair in zip(findings, measured, strict=True)]
        results = [asdict(now) | {"differences": found} for now, found in zip(measured, differing, strict=True)]
        rows = [f"{'differs' if each['differences'] else 'holds':8}  {each['name']}" for each in results]
        rows = ["\n          ".join([row, *found]) for row, found in zip(rows, differing, strict=True)]
        rows.append(f"{differing.count([])} of {len(measured)} findings hold")
        yield {"same_weights": same, "findings": results}, rows
        raise SystemExit(int(any(differing)))


class Figure(Look):
    """Draw the numbers of a forward pass; KIND is attention or attribution.

    The effect of edits is drawn by `glassformer edit … -o effect.pdf`.
    """

    usage: ClassVar = "figure RUN TEXT KIND"
    example: ClassVar = 'figure runs/imdb "I loved it" attention -o attention.pdf'
    out: str | None = None
    """File to draw into: .pdf, .png or .svg (also -o)."""
    layer: int | None = None
    """Layer of attention, counted from 0; the last when absent."""
    head: int | None = None
    """Head of attention, counted from 0; all heads when absent."""
    target: str | None = None
    """A translation to look at, instead of the model's own."""
    method: Literal["erase", "integrated_gradients"] = "erase"
    """How the words of an attribution are weighed."""

    def run(self) -> Iterator[Result]:
        if self.out is None:
            raise UsageError("figure needs --out, the file to draw into", f"as in: glassformer {self.example}")
        check_suffix(self.out, FIGURES)
        _, text, kind = self.words
        [explained] = self.explained(loaded(self), [text], target=self.target)
        save_figure(explained, kind, self.out, layer=self.layer, head=self.head, method=self.method)
        yield {"out": self.out}, ()


def save_figure(explanation: Any, kind: str, out: str, **drawn: Any) -> None:
    """Write a figure; `drawn` as of `figures.save_figure`."""
    from glassformer.explain import figures

    figures.save_figure(explanation, kind, Path(out), **drawn)
    for message in (*explanation.warnings, f"written: {out}"):
        logger.info(message)


class Learn(Look):
    """Print the loss of an answer and its gradients, and what steps of the optimizer on it change.

    ANSWER is what the text should have: a class, a number, a translation, the next words, or the words at [MASK]. The
    steps are taken in a copy of the model.
    """

    usage: ClassVar = "learn RUN TEXT ANSWER"
    example: ClassVar = 'learn runs/imdb "I loved it" neg --steps 1'
    steps: Annotated[int, Meta(ge=0, le=100)] = 0
    """Steps of the optimizer."""
    lr: float | None = None
    """Learning rate of these steps; the run's when absent. That of Muon's matrices keeps its ratio to it."""
    optimizer: Literal["adamw", "adam", "sgd", "muon"] | None = None
    """Optimizer of these steps; the run's when absent."""
    keep: str | None = None
    """New folder for the model after these steps, with the run's settings, and without a log."""
    out: str | None = None
    """File to write the page to, .html (also -o)."""

    def run(self) -> Iterator[Result]:
        check_suffix(self.out, PAGES)
        if self.keep is not None and not self.steps:
            raise UsageError("--keep writes the model after steps of learning", "add --steps 1")
        _, text, answer = self.words
        steps = {"learn_steps": self.steps, "lr": self.lr, "optimizer": self.optimizer}
        [explained] = self.explained(loaded(self), [text], answer=answer, **steps)
        if self.keep is not None:
            logger.info(f"written: {explained.keep(self.keep)}")
        about = {"text": explained.request.text, "warnings": explained.warnings}
        norms = gradient_norms(explained.base or explained)
        yield about | {"gradients": norms} | asdict(explained.learning), console.lines_of(learned(explained, norms))
        if self.out is not None:
            save_page(self.out, explained)


def learned(after: Any, norms: dict[str, float]) -> dict[str, Any]:
    """Return what is printed of the loss of an answer: before and after the steps, and the largest gradients."""
    facts, learned = after.learning, after.learning.learned
    smoothed = f" (with label smoothing of {facts.smoothing:g}, as in training)" if facts.smoothing else ""
    shown: dict[str, Any] = {"warning": after.warnings, "text": after.request.text, "answer": facts.answer}
    shown["before"] = f"loss {facts.loss:.4f}{smoothed}, {_answered(after.base or after)}"
    if learned is not None:
        shown["after"] = f"loss {learned.loss:.4f}, {_answered(after)}{'' if learned.right else ', not yet learned'}"
        shown |= {"steps": list(map(asdict, learned.steps)), "others": list(map(asdict, learned.others))}
    moved = {} if learned is None else learned.moved
    largest = sorted(norms, key=lambda name: -norms[name])[:N_MATRICES]
    rows = [{"parameter": name, "gradient norm": norms[name], "moved by": moved.get(name)} for name in largest]
    return shown | {"left out": list(facts.left_out), "gradients": rows}


def _answered(explanation: Any) -> str:
    """Return what the model answers; of a text to write the probability of the given one, then its own."""
    from glassformer.explain.learn.learning import own_answer

    detail = explanation.answer["detail"]
    if explanation.decode.kind != "given":
        return f"{shortened(explanation.answer['headline'], MAX_CHARS)} ({detail})"
    own = shortened(own_answer(explanation)["headline"], MAX_CHARS) or "(nothing)"
    return f"{detail}; by itself the model writes {own}"


def gradient_norms(explanation: Any) -> dict[str, float]:
    """Return the norm of the gradient of each parameter."""
    import numpy as np

    records = explanation.records
    names = [name for name in records.params if f"{name}.grad" in records]
    return {name: float(np.linalg.norm(records.tensor(f"{name}.grad"))) for name in names}


class Watch(Served):
    """Show a training in the browser while it runs, from its log and its snapshots, or write its replay."""

    usage: ClassVar = "watch RUN"
    example: ClassVar = "watch runs/imdb"
    control: bool = False
    """Let the page pause, step and stop the training."""
    out: str | None = None
    """File to write instead of serving (also -o): the curves and the answers of each snapshot, as one page."""
    device: Device = "auto"
    """Where the texts of the page are answered; auto leaves the accelerator to a training."""

    def run(self) -> Iterator[Result]:
        path = Path(self.words[0])
        if SeedsFolder(path).exists:
            seeds = ", ".join(f"seed-{seed}" for seed in SeedsFolder(path).read()[1])
            raise UsageError(f"{path} holds several runs", f"follow one of them: {seeds}")
        if not path.is_dir():
            hint = "give the folder that --out named, once the training has begun"
            raise UsageError(f"there is no folder {path}", hint)
        if not RunFolder(path).resumable and RunFolder(path).model_folder:
            message = f"{path} holds a model without its training, so there is nothing to follow"
            raise UsageError(message, f"look inside: {glassformer_command('explain', path)}")
        check_suffix(self.out, PAGES)
        from glassformer.explain.page.saved_page import replay_html
        from glassformer.explain.watch import Training
        from glassformer.utils.device import choose_device

        device = "cpu" if self.device == "auto" and is_locked(path) else self.device
        training = Training(path, may_write=self.control, device=choose_device(device))
        if self.out is not None:
            write_page(self.out, *replay_html(training.subject(), training))
            yield {"out": self.out}, ()
            return
        if not RunFolder(path).metrics.exists():
            logger.info(f"{path} has no log yet: the page waits for it")
        self.serve(training)


@contextmanager
def watching(out: Path, browser: bool, show: Callable[[StepMetrics], None]) -> Iterator[Callable[[StepMetrics], None]]:
    """Within the block, show each step, and the page of a training, in a process that is started at the first.

    Where somebody sits at a terminal the page stays after the training until Ctrl-C. The training continues where the
    page cannot be started.
    """
    pages: list[subprocess.Popen[bytes]] = []
    words = ["watch", str(out), "--control", "--device=cpu", *([] if browser else ["--no-browser"])]

    def on_step(report: StepMetrics) -> None:
        nonlocal words
        show(report)
        if words:
            environment, pipe = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1"}, subprocess.PIPE
            command, words = [sys.executable, "-c", CHILD, *words], []
            try:
                pages.append(subprocess.Popen(command, env=environment, stdin=pipe, stdout=subprocess.DEVNULL))
            except OSError as error:
                again = glassformer_command("watch", out)
                logger.warning(f"the page cannot be started: {error.strerror or error}; try: {again}")

    try:
        yield on_step
        if pages and console.is_terminal(sys.stderr) and console.is_terminal(sys.stdin):
            logger.info("the training has ended, and its page stays until Ctrl-C")
            with suppress(KeyboardInterrupt):
                pages[0].wait()
    finally:
        for page in pages:
            page.terminate()
            page.communicate()
