"""`glassformer explain`: look inside a run, in the browser, in one HTML file, in a figure or as JSON.

Without --out, --figure or --json the page is served on this machine until Ctrl-C. How layers and heads are counted
is said in `glassformer.explain`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from glassformer.cli import explain_edits, explain_follow, explain_learning, flags
from glassformer.cli.predict import stdin_lines
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.utils import console
from glassformer.utils.atomic_io import atomic_write_text

logger = logging.getLogger(__name__)


FIGURE_SUFFIXES = (".pdf", ".png", ".svg")
REPORT_SUFFIXES = (".html", ".htm")
FINDINGS_SUFFIX = ".toml"


@dataclass(frozen=True)
class ExplainArguments:
    """See every step of a run's forward pass on a text of yours, with the real numbers.

    The text is an argument; - reads it from stdin. Behind a lone -- everything is text.
    """

    pair: str | None = None
    """Second text of a pair (hypothesis, answer), where the model reads two; "first [SEP] second" is one, too."""
    out: str | None = None
    """Write instead of serving (also -o): .html is the page as one file; .pdf, .png, .svg is --figure; with --edit,
    .toml is a file of findings, to which the edits and their effect are added."""
    figure: Literal["attention", "attribution", "effect"] | None = None
    """What to draw, with --out."""
    layer: int | None = None
    """Layer of the figure, counted from 0; the last when absent."""
    head: int | None = None
    """Head of the figure, counted from 0; all heads when absent."""
    target: str | None = None
    """A translation to look at, instead of the model's own."""
    compare: str | None = None
    """A second text, to look at side by side; with --edit, the text whose values =B takes."""
    edit: str | None = None
    """Edits of the forward pass, separated by spaces; prints what they change, or with --out writes it."""
    sweep: Literal["parts", "keys", "layers", "contributions", "states", "checkpoints"] | None = None
    """What to edit in turn: heads and blocks; keys of each head; all layers after the first, the second, and so on;
    parts whose sum is a logit; states, from --compare; --edit at each checkpoint. The others go on from --edit."""
    learn: str | None = None
    """The answer that the text should have: a class, a number, a translation, the next words, or the words at [MASK].
    Shows the loss and all gradients; with --json, --steps or --keep prints them."""
    steps: int | None = None
    """Steps of the optimizer on that answer, in a copy of the model, from 1 to 100."""
    lr: float | None = None
    """Learning rate of these steps; the run's when absent. That of Muon's matrices keeps its ratio to it."""
    optimizer: Literal["adamw", "adam", "sgd", "muon"] | None = None
    """Optimizer of these steps; the run's when absent."""
    keep: str | None = None
    """New folder for the model after these steps, with the run's settings, and without a log."""
    check: str | None = None
    """A file of findings, as --edit writes it with --out FILE.toml: measures each again on this run."""
    parameters: bool = False
    """Store all weights in a saved page, up to 20 MB; otherwise those that fit in 1.5 MB with the rest."""
    checkpoint: str | None = None
    """A checkpoint of the run, such as step-00001000; the finished model when absent."""
    member: int | None = None
    """Which model of an ensemble, counted from 1; the first when absent."""
    label: str | None = None
    """Of a classifier of several labels the one to look at; the most probable when absent."""
    word: str | None = None
    """Of a tagger the word to look at, itself or its number from 1; the first that is tagged when absent."""
    method: Literal["erase", "integrated_gradients"] = "erase"
    """How words are weighed, for --figure attribution and --json."""
    follow: bool = False
    """Follow a training on the page's screen Training, from its log and its snapshots; with --out .html a replay."""
    control: bool = False
    """Let the page that follows a training pause, step and stop it."""
    allow_changed_data: bool = False
    """For =mean: average over the validation texts even if they have changed since training."""
    json: bool = False
    """Print one JSON object: the manifest of the forward pass, and the weight of each word; with --edit its effects."""
    port: int | None = None
    """Port to serve on; the first free one from 8317 on when absent."""
    browser: bool = True
    """Open the page in the browser; --no-browser only prints the address."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(ExplainArguments, flags.long_out(argv), "explain")
    arguments = flags.parse(ExplainArguments, flag_args, "explain RUN [TEXT]")
    if not words:
        raise UsageError("explain takes a run folder", 'as in: glassformer explain runs/imdb "I loved it"')
    if len(words) > 2:
        raise UsageError(f"explain takes one text; {len(words) - 1} came", "put quotes around the text")
    path, *texts = words
    if arguments.follow or arguments.control:
        explain_follow.check_follow(arguments, has_text=bool(texts))
        explain_follow.follow(Path(path), arguments)
        return 0
    check_flags(arguments, has_text=bool(texts))
    folder = flags.run_folder(path)
    text = "\n".join(stdin_lines()) if texts == ["-"] else next(iter(texts), None)
    import glassformer

    trained = glassformer.load(folder, device=arguments.device)
    trained.allow_changed_data = arguments.allow_changed_data
    check_looked_at(arguments, trained.task.looked_into)
    if text is not None and arguments.pair is not None:
        text = trained.task.tokenizer.pair(text, arguments.pair)
    requests = requests_of(arguments, text)
    if arguments.check is not None:
        return explain_edits.check_findings(trained, Path(arguments.check), arguments.json)
    edits = (arguments.edit or "").split()
    explained = trace_requests(trained, requests) if requests else []
    if arguments.keep is not None:
        logger.info(f"written: {explained[0].keep(arguments.keep)}")
    if arguments.learn is not None and (arguments.json or (arguments.steps and arguments.out is None)):
        explain_learning.show_learning(explained[0], arguments.json)
        if arguments.out is not None:
            write(trained, explained, arguments)
    elif arguments.sweep is not None:
        explain_edits.show_sweep(arguments.sweep, explained, edits, arguments.json)
    elif arguments.out is not None:
        if arguments.json:
            console.write_json(facts(explained, arguments.method))
        write(trained, explained, arguments)
    elif edits:
        explain_edits.show_effect(explained, edits, arguments.json)
    elif arguments.json:
        console.write_json(facts(explained, arguments.method))
    else:
        serve(trained, explained or explained_findings(trained), arguments)
    return 0


def check_flags(arguments: ExplainArguments, has_text: bool) -> None:
    """Refuse flags that do not go together, before anything is loaded, with a UsageError that says what would do."""
    of_learning = {name: getattr(arguments, name) for name in ("steps", "lr", "optimizer", "keep")}
    others = {name: getattr(arguments, name) for name in ("figure", "compare", "edit", "sweep", "target", "check")}
    explain_learning.check_learning(arguments.learn, of_learning, others, has_text)
    out, figure = arguments.out, arguments.figure
    suffix = Path(out).suffix.lower() if out is not None else None
    if (out is not None or (arguments.json and arguments.check is None)) and not has_text:
        hint = 'as in: glassformer explain RUN "I loved it" -o a.html'
        raise UsageError("there is no text to explain", hint)
    if arguments.edit is not None and not arguments.edit.split():
        raise UsageError("--edit is empty", "name what to change, as in: --edit encoder.0.self.head1=0")
    if suffix == FINDINGS_SUFFIX and arguments.edit is None:
        raise UsageError("a .toml file holds the effect of edits", "add --edit, as in: --edit encoder.0.self.head1=0")
    other_weights = (arguments.checkpoint, arguments.member, arguments.target, arguments.label or arguments.word)
    if suffix == FINDINGS_SUFFIX and other_weights != (None,) * 4:
        message = "findings are of the finished model, of the first of an ensemble, and of its own answer"
        raise UsageError(message, "leave out --checkpoint, --member, --target, --label and --word")
    if suffix is not None and suffix not in (*REPORT_SUFFIXES, *FIGURE_SUFFIXES, FINDINGS_SUFFIX):
        raise UsageError(f"--out ends in {suffix or 'nothing'}", "name a .html, .pdf, .png or .svg file")
    if suffix in FIGURE_SUFFIXES and figure is None:
        hint = "one of: attention, attribution, effect"
        raise UsageError(f"a {suffix} file needs --figure", hint)
    if figure is not None and suffix not in FIGURE_SUFFIXES:
        raise UsageError("--figure needs a file to draw into", "as in: --figure attention -o attention.pdf")
    for name, value in (("layer", arguments.layer), ("head", arguments.head)):
        if value is not None and value < 0:
            raise UsageError(f"--{name} is counted from 0, and {value} came")
        if value is not None and figure is None:
            raise UsageError(f"--{name} belongs to --figure", "the page shows all layers and heads")
    if arguments.check is not None and (has_text or out is not None):
        raise UsageError("--check reads the texts from its file", "leave out the text and --out")
    for_a_text = (arguments.pair, arguments.compare, arguments.edit, arguments.sweep, arguments.target)
    if arguments.label is not None and arguments.word is not None:
        raise UsageError(
            "--label is of a classifier of several labels, and --word of a tagger", "leave out one of them"
        )
    others = (arguments.checkpoint, arguments.member, arguments.label, arguments.word)
    if not has_text and any(given is not None for given in (*for_a_text, *others)):
        named = "--pair, --compare, --edit, --sweep, --target, --checkpoint, --member, --label and --word"
        raise UsageError(f"{named} go with a text", "give the text after the run folder")
    if arguments.sweep is not None and out is not None:
        raise UsageError("--sweep prints its result", "leave out --out; --json prints all numbers")
    if arguments.sweep == "states" and arguments.compare is None:
        raise UsageError("--sweep states needs a second text", "give it with --compare")
    if arguments.sweep in ("parts", "keys", "layers", "contributions") and arguments.compare is not None:
        raise UsageError(f"--sweep {arguments.sweep} needs no second text", "--sweep states compares two")
    if arguments.sweep == "checkpoints" and arguments.edit is None:
        raise UsageError("--sweep checkpoints needs --edit", "as in: --edit encoder.0.self.head1=0")
    if arguments.parameters and suffix not in REPORT_SUFFIXES:
        raise UsageError("--parameters belongs to a saved page", "as in: -o page.html --parameters")
    if figure == "effect" and arguments.edit is None:
        raise UsageError("--figure effect needs --edit", "as in: --edit encoder.0.self.head1=0")
    if arguments.edit is not None and figure not in (None, "effect"):
        raise UsageError(f"--figure {figure} is drawn without edits", "draw the effect of the edits: --figure effect")
    if arguments.edit is not None and out is not None and arguments.json:
        raise UsageError("--json prints the effect, and --out writes it", "leave one of them out")


def check_looked_at(arguments: ExplainArguments, looked_into: str) -> None:
    """Refuse --label and --word of a model that has no such answers, with a UsageError that names the other flag."""
    models = {"label": "a classifier of several labels", "word": "a tagger"}
    for name, model in models.items():
        if getattr(arguments, name) is not None and name != looked_into:
            hint = f"name a {looked_into}: --{looked_into}" if looked_into else "leave it out"
            raise UsageError(f"--{name} is of {model}, and this run is none", hint)


def requests_of(arguments: ExplainArguments, text: str | None) -> list[dict[str, Any]]:
    """Return the `TraceRequest`s of the flags: none, one, or two to compare."""
    looked_at = arguments.label or arguments.word
    weights: dict[str, Any] = {"checkpoint": arguments.checkpoint, "member": arguments.member, "label": looked_at}
    learning = {"answer": arguments.learn, "learn_steps": arguments.steps}
    learning |= {"lr": arguments.lr, "optimizer": arguments.optimizer}
    requests = [
        {"text": text, "target": arguments.target, **learning, **weights},
        {"text": arguments.compare, **weights},
    ]
    present = [{name: value for name, value in request.items() if value is not None} for request in requests]
    return [request for request in present if "text" in request]


def explained_findings(trained: Any) -> list[Any]:
    """Return the explanation on which the page opens where a run has findings: of the first, if it fits the model."""
    from glassformer.explain.edits.findings import read_findings

    path = RunFolder(trained.path).findings
    if not path.exists():
        return []
    try:
        return trace_requests(trained, [read_findings(path)[1][0].trace_request.to_json()])
    except (UsageError, CheckpointError) as error:
        logger.warning(f"the page opens without the findings of the run: {error}")
        return []


def trace_requests(trained: Any, requests: list[dict[str, Any]]) -> list[Any]:
    """Trace the forward passes of the requests."""
    from glassformer.explain.explanation import TraceRequest, explain
    from glassformer.explain.one_label import of_same_label

    explained: list[Any] = []
    for number, request in enumerate(map(TraceRequest.from_dict, requests), start=1):
        if explained and request.label is None:  # both texts are looked at for the same label
            request = of_same_label(request, explained[0].subject)
        explained.append(explain(trained, request, trace_id=f"t{number}"))
    return explained


def facts(explanations: list[Any], method: str) -> dict[str, Any]:
    """Return the output of --json: {manifest, attribution}, and with --compare the same under "other".

    Of a bare encoder, which has no answer to attribute, the attribution is null.
    """
    from glassformer.explain.attribution.attribute import AttributeRequest, attribute

    facts_of = []
    for explanation in explanations:
        question = AttributeRequest.from_dict({"trace": explanation.id, "method": method})
        weighed = explanation.predictions or explanation.is_number
        attribution = asdict(attribute(explanation, question)) if weighed else None
        facts_of.append({"manifest": explanation.manifest(), "attribution": attribution})
    return facts_of[0] | ({"other": facts_of[1]} if len(facts_of) > 1 else {})


def write(trained: Any, explanations: list[Any], arguments: ExplainArguments) -> None:
    """Write the report or the figure that --out names."""
    path, (first, *others) = Path(str(arguments.out)), explanations
    for warning in [warning for explanation in explanations for warning in explanation.warnings]:
        logger.warning(warning)
    if path.suffix.lower() == FINDINGS_SUFFIX:
        return explain_edits.add_finding(trained, path, explanations, str(arguments.edit).split())
    edited = None
    if arguments.edit is not None:
        from glassformer.explain.edits.what_if import with_edits

        edited = with_edits(first, arguments.edit.split(), *others)
    if arguments.figure is not None:
        from glassformer.explain.figures import save_figure

        chosen = {"layer": arguments.layer, "head": arguments.head, "method": arguments.method}
        save_figure(edited or first, arguments.figure, path, **chosen)
    else:
        from glassformer.explain.page.saved_page import saved_page_html

        if first.predictions:
            logger.info("weighing the words …")
        other = next(iter(others), None)
        settings: Any = {"edited": edited, "other": other, "parameters": arguments.parameters}
        page, lacks = saved_page_html(first, **settings)
        atomic_write_text(path, page)
        for sentence in lacks:
            logger.info(sentence)
    logger.info(f"written: {path}")


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
