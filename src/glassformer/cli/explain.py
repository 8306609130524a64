"""The commands that look inside a run: `explain`, `edit`, `findings` and `figure`.

How layers and heads are counted is said in `glassformer.explain`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from glassformer.cli import flags
from glassformer.cli.folders import run_folder
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.utils import console
from glassformer.utils.atomic_io import atomic_write_text

logger = logging.getLogger(__name__)

FINDINGS, FIGURES, PAGES = (".toml",), (".pdf", ".png", ".svg"), (".html", ".htm")
"""Suffixes of what --out names."""


@dataclass(frozen=True)
class LookArguments:
    """Flags of the commands that look at what a model answers to one text."""

    checkpoint: str = "model"
    """A checkpoint of the run, such as step-00001000, instead of the finished model."""
    member: int = 1
    """Which model of an ensemble, counted from 1."""
    label: str | None = None
    """Of several labels the one to look at, the most probable when absent; of a tagger the word, itself or its number
    from 1, the first that is tagged when absent."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""


@dataclass(frozen=True)
class ExplainArguments(LookArguments):
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
    """File to write the page to instead of serving it, .html (also -o)."""
    parameters: bool = False
    """With --out, store all weights, up to 20 MB; otherwise those that fit in 1.5 MB with the rest."""
    json: bool = False
    """Print one JSON object: the manifest of the forward pass, and the weight of each word."""
    port: int | None = None
    """Port to serve on; the first free one from 8317 on when absent."""
    browser: bool = True
    """Open the page in the browser; --no-browser only prints the address."""


OF_THE_PAGE = {"device", "port", "browser"}
"""Flags that need no text."""


def run_explain(given: flags.Given[ExplainArguments]) -> None:
    """Run `glassformer explain`."""
    arguments, text = given.arguments(), next(iter(given.words[1:]), None)
    check_suffix(arguments.out, PAGES)
    if text is None and (names := [name for name in given.values if name not in OF_THE_PAGE]):
        raise UsageError(f"--{names[0]} goes with a text", f"as in: glassformer {ExplainArguments.example}")
    trained = loaded(given.words[0], arguments)
    explained = explain(trained, arguments, text, target=arguments.target)
    if arguments.compare is not None:
        explained += explain(trained, arguments, arguments.compare, explained)
    if arguments.json:
        console.write_json(facts(explained))
    if arguments.out is not None:
        write_page(Path(arguments.out), *explained, parameters=arguments.parameters)
    elif not arguments.json:
        serve(trained, explained or explained_findings(trained), arguments)


def check_suffix(out: str | None, *known: tuple[str, ...]) -> str:
    """Return the suffix of a file to write; raise UsageError for one of another kind."""
    suffix, every = Path(out or "").suffix.lower(), [suffix for each in known for suffix in each]
    if out is not None and suffix not in every:
        raise UsageError(f"--out ends in {suffix or 'nothing'}", f"name a file that ends in {' or '.join(every)}")
    return suffix


def loaded(word: str, arguments: Any) -> Any:
    """Return the run that a command looks into."""
    import glassformer

    trained = glassformer.load(run_folder(word), device=arguments.device)
    trained.allow_changed_data = getattr(arguments, "allow_changed_data", False)
    return trained


def explain(
    trained: Any, arguments: LookArguments, text: str | None, before: Sequence[Any] = (), **request: Any
) -> list[Any]:
    """Return the explanation of a text as a list, empty without a text.

    Args:
        trained: the run.
        arguments: which of its weights, and which label.
        text: the text.
        before: the explanation of a first text, whose label this one is looked at for.
        request: other fields of `TraceRequest`.

    Raises:
        UsageError: a field is beyond its limits; it is named as a flag.
    """
    if text is None:
        return []
    from glassformer.explain import explanation
    from glassformer.explain.one_label import of_same_label

    which = {"checkpoint": arguments.checkpoint, "member": arguments.member, "label": arguments.label}
    try:
        wanted = explanation.TraceRequest(text, **which, **request)
    except UsageError as error:
        message = re.sub("^request: (?:learn_)?(?!text|answer)", "--", error.message)
        raise UsageError(message, error.hint) from error
    if before and wanted.label is None:
        wanted = of_same_label(wanted, before[0].subject)
    return [explanation.explain(trained, wanted, trace_id=f"t{len(before) + 1}")]


def explained_findings(trained: Any) -> list[Any]:
    """Return the explanation on which the page opens where a run has findings: of the first, if it fits the model."""
    from glassformer.explain.edits.findings import read_findings
    from glassformer.explain.explanation import explain

    path = RunFolder(trained.path).findings
    try:
        return [explain(trained, read_findings(path)[1][0].trace_request)] if path.exists() else []
    except (UsageError, CheckpointError) as error:
        logger.warning(f"the page opens without the findings of the run: {error}")
        return []


def facts(explanations: list[Any]) -> dict[str, Any]:
    """Return the output of --json: {manifest, attribution}, and with --compare the same under "other".

    Of a bare encoder, which has no answer to attribute, the attribution is null.
    """
    from glassformer.explain.attribution.attribute import attribute

    facts_of = []
    for explanation in explanations:
        weighed = explanation.predictions or explanation.is_number
        attribution = asdict(attribute(explanation)) if weighed else None
        facts_of.append({"manifest": explanation.manifest(), "attribution": attribution})
    return facts_of[0] | ({"other": facts_of[1]} if len(facts_of) > 1 else {})


def write_page(path: Path, explanation: Any, other: Any = None, **shown: Any) -> None:
    """Write the page as one file; `shown` as of `saved_page_html`."""
    from glassformer.explain.page.saved_page import saved_page_html

    if explanation.predictions:
        logger.info("weighing the words …")
    page, lacks = saved_page_html(explanation, other=other, **shown)
    atomic_write_text(path, page)
    for sentence in (*explanation.warnings, *lacks, f"written: {path}"):
        logger.info(sentence)


def serve(trained: Any, explanations: list[Any], arguments: ExplainArguments) -> None:
    """Serve the page until Ctrl-C, first showing these explanations."""
    from glassformer.explain.page import server

    def announce(address: str) -> None:
        if arguments.port is None and f":{server.PORT}/" not in address:
            logger.info(f"port {server.PORT} is taken, so this is another")
        logger.info(f"looking inside {trained.path}; Ctrl-C ends it; the page: {address}")
        console.write(address)

    server.serve(trained, port=arguments.port, open_browser=arguments.browser, on_ready=announce, start=explanations)
    logger.info("ended")


@dataclass(frozen=True)
class EditArguments(LookArguments):
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
    json: bool = False
    """Print one JSON object."""


def run_edit(given: flags.Given[EditArguments]) -> None:
    """Run `glassformer edit`."""
    arguments, (word, text, *edits) = given.arguments(), given.words
    suffix = check_suffix(arguments.out, PAGES, FIGURES, FINDINGS)
    if suffix in FINDINGS and {"checkpoint", "member", "target", "label"} & given.values.keys():
        message = "findings are of the finished model, of the first of an ensemble, and of its own answer"
        raise UsageError(message, "leave out --checkpoint, --member, --target and --label")
    trained = loaded(word, arguments)
    explained = explain(trained, arguments, text, target=arguments.target)
    explained += explain(trained, arguments, arguments.compare, explained)
    from glassformer.explain.edits.what_if import with_edits

    edited = with_edits(explained[0], edits, *explained[1:])
    write_effect(edited, arguments.json)
    if suffix in FINDINGS:
        add_finding(trained, Path(str(arguments.out)), explained, edits)
    elif suffix in FIGURES:
        save_figure(edited, "effect", arguments.out)
    elif suffix in PAGES:
        write_page(Path(str(arguments.out)), *explained, edited=edited)


def write_effect(edited: Any, as_json: bool) -> None:
    """Print what the model predicts under the edits of an explanation."""
    result, traced = edited.edited, edited.together
    if as_json:
        console.write_json(result.to_json() | {"member": None if traced is None else traced.member})
        return
    for warning in edited.warnings:
        logger.warning(warning)
    for text in result.edits:
        console.write(f"edit      {text}" + (" (changes no number)" if text in result.unchanged else ""))
    console.write(f"before    {result.answer_before}")
    console.write(f"after     {result.why_not if result.answer_after is None else result.answer_after}")
    shown = ("position", "target", "before", "after", "log_prob_before", "log_prob_after", "rank_after", "kl")
    console.write_rows([{name: getattr(effect, name) for name in shown} for effect in result.effects])


def add_finding(trained: Any, path: Path, explanations: Sequence[Any], edits: Sequence[str]) -> None:
    """Measure edits and add them to a file of findings on the same weights, or begin one."""
    from glassformer.explain.edits.findings import make_finding, read_findings, write_findings
    from glassformer.explain.subject import MODEL, checkpoint_sha256

    weights, findings = read_findings(path) if path.exists() else (None, [])
    if findings and weights != checkpoint_sha256(trained, MODEL):
        raise UsageError(f"{path} holds findings on other weights", "name another file")
    write_findings(path, trained, [*findings, make_finding(explanations[0], edits, *explanations[1:])])
    logger.info(f"written: {path}, {len(findings) + 1} in all")


@dataclass(frozen=True)
class FindingsArguments:
    """Measure each finding of FILE, as `glassformer edit` writes it, again on this run; exit code 1 if one differs."""

    usage: ClassVar = "findings RUN FILE"
    example: ClassVar = "findings runs/demo runs/demo/findings.toml"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    allow_changed_data: bool = False
    """For =mean: average over the validation texts even if they have changed since training."""
    json: bool = False
    """Print one JSON object."""


def run_findings(given: flags.Given[FindingsArguments]) -> int:
    """Run `glassformer findings`."""
    arguments, (word, file) = given.arguments(), given.words
    trained = loaded(word, arguments)
    from glassformer.explain.edits.findings import differences, measure_again, read_findings
    from glassformer.explain.subject import MODEL, checkpoint_sha256

    weights, findings = read_findings(Path(file))
    same = weights == checkpoint_sha256(trained, MODEL)
    measured = [measure_again(trained, finding) for finding in findings]
    of_numbers = trained.task.decision.sd is not None
    differing = [differences(*pair, of_numbers) for pair in zip(findings, measured, strict=True)]
    if arguments.json:
        results = [asdict(now) | {"differences": found} for now, found in zip(measured, differing, strict=True)]
        console.write_json({"same_weights": same, "findings": results})
    else:
        for finding, found in zip(findings, differing, strict=True):
            console.write("\n          ".join([f"{'differs' if found else 'holds':8}  {finding.name}", *found]))
        console.write(f"{differing.count([])} of {len(measured)} findings hold")
    if not same:
        logger.warning(f"the findings of {file} are on other weights than those of {trained.path}")
    return int(any(differing))


@dataclass(frozen=True)
class FigureArguments(LookArguments):
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


def run_figure(given: flags.Given[FigureArguments]) -> None:
    """Run `glassformer figure`."""
    arguments, (word, text, kind) = given.arguments(), given.words
    if arguments.out is None:
        raise UsageError("figure needs --out, the file to draw into", f"as in: glassformer {FigureArguments.example}")
    explained = explain(loaded(word, arguments), arguments, text, target=arguments.target)
    drawn = {"layer": arguments.layer, "head": arguments.head, "method": arguments.method}
    save_figure(explained[0], kind, arguments.out, **drawn)


def save_figure(explanation: Any, kind: str, out: Any, **drawn: Any) -> None:
    """Write a figure; `drawn` as of `figures.save_figure`."""
    from glassformer.explain import figures

    figures.save_figure(explanation, kind, Path(out), **drawn)
    for message in (*explanation.warnings, f"written: {out}"):
        logger.info(message)
