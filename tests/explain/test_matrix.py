"""Every method of an explanation and every request of the page, for every family in every case: it answers or refuses.

A call is looked up by the name of the method, so a new method without one is noticed. A refusal is a `UsageError` with
a sentence, and is among those expected (`REFUSALS`). Of an exported model nothing is explained. All cells are tried in
the slow test, a part of each in the fast one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import WORDS, run_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import ANSWERS, CASES, FAMILIES, TEXTS, Cell, make_cell, request_of, stack_of

from glassformer.cli.flags import run_folder
from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.figures import ExplanationPlots
from glassformer.explain.page.manifest import manifest
from glassformer.explain.page.service import Service
from glassformer.interop.exported import ExportedModel, load_exported
from glassformer.interop.transfer import export
from glassformer.run import Run
from glassformer.tasks import TASKS


def some_tensor(e: Explanation) -> str:
    return next(id for id in e.records if id.endswith("self.weights"))


def a_word(e: Explanation) -> dict[str, list[int]]:
    """Return the positions of one token that can be erased."""
    stream = e.streams[0]
    return {stream.name: [next(i for i, special in enumerate(stream.special) if not special)]}


def last_of(cell: Cell) -> int:
    """Return the index of the last prediction of the answer; of a number, which has none, 0."""
    return cell.e.answered[-1] if cell.e.answered else 0


Call = Callable[[Cell], Any]
EXPLANATION: dict[str, Call] = {
    "manifest": lambda c: c.e.manifest(),
    "tensor": lambda c: [c.e.tensor(id) for id in c.e.records] + [c.e.tensor(some_tensor(c.e), "head:0;token:0-2")],
    "trace": lambda c: len(c.e.trace),
    "attribute": lambda c: c.e.attribute(),
    "attribute:integrated_gradients": lambda c: c.e.attribute("integrated_gradients"),
    "attribute:prediction": lambda c: c.e.attribute(prediction=last_of(c)),
    "what_if": lambda c: c.e.what_if(f"{stack_of(c.task)}.0.self.context[head:1]=0"),
    "what_if:B": lambda c: c.e.what_if(f"{stack_of(c.task)}.0.state[token:0]=B", other=c.other),
    **{f"sweep:{kind}": lambda c, kind=kind: c.e.sweep(kind) for kind in ("parts", "keys", "layers", "checkpoints")},
    "sweep:states": lambda c: c.e.sweep("states", c.other),
    "sweep:contributions": lambda c: c.e.sweep("contributions", prediction=last_of(c)),
    "save": lambda c: c.e.save(c.out / "page.html"),
    "keep": lambda c: c.e.keep(c.out / "kept"),
    "plot": lambda c: c.e.plot,
    "check_has_answer": lambda c: c.e.check_has_answer(),
}
"""A call of each method and property of `Explanation`; behind a colon, with other arguments."""
SWEEPS = ("parts", "keys", "layers", "contributions", "checkpoints")
PLOTS: dict[str, Call] = {
    "attention": lambda c: c.e.plot.attention(head=1),
    "attribution": lambda c: c.e.plot.attribution(),
    "effect": lambda c: c.e.plot.effect(),
}
SERVICE: dict[str, Call] = {
    "run": lambda c: c.service.run(),
    "trace": lambda c: c.service.trace(c.e.request.to_json()),
    "trace:answer": lambda c: c.service.trace({**c.e.request.to_json(), "answer": ANSWERS[c.task]}),
    "trace:edits": lambda c: c.service.trace(request_of(c.task, c.case, ("logits*2",)).to_json()),
    "decode": lambda c: c.service.decode(c.e.request.to_json()),
    "tensor": lambda c: c.service.tensor(c.trace, some_tensor(c.e), "head:0"),
    "attribute": lambda c: c.service.attribute(c.body(method="erase")),
    "attribute:integrated_gradients": lambda c: c.service.attribute(c.body(method="integrated_gradients")),
    "erase": lambda c: c.service.erase(c.body(erase=a_word(c.e))),
    **{f"sweep:{kind}": lambda c, kind=kind: c.service.sweep(c.body(kind=kind)) for kind in SWEEPS},
    "sweep:states": lambda c: c.service.sweep(c.body(kind="states", other=c.second)),
    "save": lambda c: c.service.save({"request": c.e.request.to_json()}),
}
RUN: dict[str, Call] = {
    "predict": lambda c: c.run.predict(c.e.request.text),
    "predict:edits": lambda c: c.run.predict(
        c.e.request.text, edits=[f"{stack_of(c.task)}.0.self.out*1"], member=c.e.request.member
    ),
    "predict_stream": lambda c: list(c.run.predict_stream([c.e.request.text])),
    "explain": lambda c: c.run.explain(c.e.request.text, member=c.e.request.member, **c.e.request.decode),
}
RUN["learn"] = lambda c: c.run.learn(c.e.request.text, ANSWERS[c.task], steps=1, member=c.e.request.member)
NO_CELL = {
    "Explanation": "run labels random_drops precision is_classifier is_number answered generated",
    "Run": "train evaluate export path task model answering device precision computing config labels text_columns",
    "Service": "subject training probes probe control",
}
"""Scores of a whole split, exports and what is shown of a training are of no text; the others are attributes."""
CALLS = {"Explanation": EXPLANATION, "plot": PLOTS, "Service": SERVICE, "Run": RUN}

SHORT = "what_if trace:edits sweep:parts sweep:keys sweep:layers sweep:states sweep:contributions".split()
NOT_EDITED = "words are weighed without edits only"
REFUSALS: list[tuple[str, Callable[[Cell], bool], str]] = [
    ("attribute", lambda c: c.edited, NOT_EDITED),
    ("attribution", lambda c: c.edited, NOT_EDITED),
    ("erase", lambda c: c.edited, NOT_EDITED),
    ("effect", lambda c: not c.edited, "has no edits whose effect could be drawn"),
    ("sweep:checkpoints", lambda c: not c.edited, "a sweep of checkpoints needs edits"),
    ("decode", lambda c: c.edited, "without edits only"),
    ("keep", lambda c: True, "no step of learning was taken"),
    ("trace:answer", lambda c: c.edited, "learns without edits only"),
    ("trace:answer", lambda c: c.case == "long", "learning takes up to 128 tokens"),
    ("learn", lambda c: c.case == "long", "learning takes up to 128 tokens"),
    *((name, lambda c: c.case == "long", "at most 128 tokens") for name in SHORT),
    ("sweep:contributions", lambda c: c.task == "pretrain", "is not linear"),
]
"""The calls that are refused, in which cells, and the sentence."""
LONG_IN_SLOW = {"Explanation.attribute:integrated_gradients", "Explanation.attribute:prediction", "Explanation.save"}
LONG_IN_SLOW |= {"Service.attribute:integrated_gradients", "plot.attention", "plot.attribution", "Service.save"}
"""Calls that take seconds for a text of 512 tokens, and are made there in the slow test alone."""


def expected_refusal(of: str, name: str, cell: Cell) -> str | None:
    """Return what the refusal of a call says; None where it must answer."""
    if (of, name) == ("Service", "trace"):
        return None  # a property of the explanation has this name too
    names = (name, name if name.startswith(("trace:", "sweep:")) else name.partition(":")[0])
    return next((sentence for refused, where, sentence in REFUSALS if refused in names and where(cell)), None)


def calls() -> Iterator[tuple[str, str, Call]]:
    """Yield every call: the class, the name, the function."""
    for of, named in CALLS.items():
        for name, call in named.items():
            yield of, name, call


def exported_call(model: ExportedModel, of: str, name: str) -> Any:
    """Ask an exported model what `CALLS` ask of a run: an explanation, the page, or the method of a run."""
    text = TEXTS[next(task for task in TEXTS if TASKS[task].name == model.facts.task)]
    if of == "Service":  # the page is that of a command, which takes a run
        return run_folder(model.path)
    if of == "Run" and name.startswith("predict"):
        options = {"edits": ["logits*1"]} if name == "predict:edits" else {}
        return [*getattr(model, name.partition(":")[0])([text], **options)]
    return model.learn(text, "a") if name == "learn" else model.explain(text)


def public_names(kind: type) -> set[str]:
    """Return the methods and properties of a class that are not fields of its data."""
    data = {f.name for f in fields(Explanation)} if kind is Explanation else set()
    return {name for name in dir(kind) if not name.startswith("_")} - data


@for_each(
    ("of", "kind"), [("Explanation", Explanation), ("plot", ExplanationPlots), ("Service", Service), ("Run", Run)]
)
def test_every_method_has_a_cell(of: str, kind: type) -> None:
    """A method that is added without a call here fails."""
    called = {name.partition(":")[0] for name in CALLS[of]}
    assert public_names(kind) - {*NO_CELL.get(of, "").split()} == called


ALL = [f"{of}.{name}" for of, name, _ in calls()]
CELLS = [(family, case) for family in FAMILIES for case in CASES]
PARTS = len(CASES)


@pytest.mark.parametrize(("family", "case"), CELLS)
def test_a_part_of_a_cell_answers_or_refuses(family: str, case: str, tmp_path: Path) -> None:
    """Try a fifth of the calls, another in each case: every call of every family is in one of them."""
    skipped = LONG_IN_SLOW if case == "long" else set()
    part = (CASES.index(case) + [*FAMILIES].index(family)) % PARTS  # not the same calls of a case in each family
    names = set(ALL[part::PARTS])
    try_calls(make_cell(FAMILIES[family], case, tmp_path), names - skipped)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "case"), CELLS)
def test_a_cell_answers_or_refuses(family: str, case: str, tmp_path: Path) -> None:
    try_calls(make_cell(FAMILIES[family], case, tmp_path), set(ALL))


@pytest.mark.parametrize("family", ["classifier", "translator"])
def test_an_exported_model_predicts_and_refuses_all_else(family, tmp_path, monkeypatch, cli) -> None:
    run = run_of(FAMILIES[family], monkeypatch, WORDS if family == "classifier" else None)
    monkeypatch.setattr("glassformer.interop.transfer.check_export", lambda *_: "not checked: by this test")
    export(run, "onnx" if family == "classifier" else "ctranslate2", tmp_path / "exported")
    model = load_exported(tmp_path / "exported")
    cli("explain", model.path, "a b").refused(f"{model.path} is an exported model, not a run")
    answered = set[str]()
    for of, name, _ in calls():
        try:
            exported_call(model, of, name)
            answered.add(f"{of}.{name}")
        except UsageError as error:
            assert "is an exported model" in error.message or "edits" in error.message
    assert answered == {"Run.predict", "Run.predict_stream"}, "all other calls are refused"


@pytest.mark.parametrize("case", ["plain", "edited", "long"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_manifest_says_what_is_refused(family: str, case: str, tmp_path: Path) -> None:
    """The page offers what the manifest does not name, so it must name what is refused, in the same words."""
    cell = make_cell(FAMILIES[family], case, tmp_path)
    refused = {}
    calls = {"edits": "trace:edits", "learn": "trace:answer", "contributions": "sweep:contributions"}
    if cell.edited:  # edits are taken away there before an answer is learned
        del calls["learn"]
    for what, name in calls.items():
        try:
            CALLS["Service"][name](cell)
        except UsageError as error:
            refused[what] = error.message
    stated = dict(manifest(cell.e)["refused"])
    if cell.task == "lm" and "learn" in refused:  # whose text and answer have another number of tokens together
        assert stated.pop("learn").split(" has ")[0] == refused["learn"].split(" has ")[0]
        stated["learn"] = refused["learn"]
    assert stated == refused
    always = {"masked": {"contributions"}}.get(family, set[str]())
    expected = {"edits", "learn", "contributions"} if case == "long" else always
    assert set(refused) == expected


def try_calls(cell: Cell, names: set[str]) -> None:
    """Make calls of a cell, and compare what is refused with what is expected."""
    wrong = []
    for of, name, call in calls():
        if f"{of}.{name}" not in names:
            continue
        expected = expected_refusal(of, name, cell)
        try:
            call(cell)
            if expected is not None:
                wrong.append(f"{of}.{name} answered, but {expected!r} was expected")
        except UsageError as error:
            if expected is None or expected not in error.message:
                wrong.append(f"{of}.{name} refused: {error.message}")
        except Exception as error:
            wrong.append(f"{of}.{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
