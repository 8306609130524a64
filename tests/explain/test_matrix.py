"""Every method of an explanation and every request of the page, for every family in every case: it answers or refuses.

A refusal is a `UsageError` with a sentence, and is among those expected (`REFUSALS`).
Of an exported model nothing is explained. All cells are tried in the slow test, a part of each in the fast one.

One pass, one number, wherever it is read: an identity edit changes nothing, on top of other edits too; before the first
edit nothing changes; a saved page holds what the served page answers; the command prints what Python returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.explain.test_report import Page, tensor
from tests.helpers.exports import WORDS, run_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import ANSWERS, CASES, FAMILIES, TEXTS, Cell, make_cell, matrix_run, request_of, stack_of

from glassformer.cli.explain import effect, facts
from glassformer.cli.flags import run_folder
from glassformer.errors import UsageError
from glassformer.explain.edits.effects import with_edits
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.figures import ExplanationPlots
from glassformer.explain.page.manifest import manifest
from glassformer.explain.page.saved_page import saved_page_html
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


@for_each(
    ("of", "kind"), [("Explanation", Explanation), ("plot", ExplanationPlots), ("Service", Service), ("Run", Run)]
)
def test_every_method_has_a_cell(of: str, kind: type) -> None:
    """A method that is added without a call here fails."""
    data = {f.name for f in fields(Explanation)} if kind is Explanation else set()
    names = {name for name in dir(kind) if not name.startswith("_")} - data
    assert names - {*NO_CELL.get(of, "").split()} == {name.partition(":")[0] for name in CALLS[of]}


ALL = [f"{of}.{name}" for of, name, _ in calls()]
CELLS = [(family, case) for family in FAMILIES for case in CASES]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("family", "case"), CELLS)
def test_a_cell_answers_or_refuses(family: str, case: str, whole: bool, tmp_path: Path) -> None:
    """Or a fifth of the calls, another in each case: every call of every family is in one of them."""
    skipped = LONG_IN_SLOW if case == "long" else set()
    part = (CASES.index(case) + [*FAMILIES].index(family)) % len(CASES)  # not the same calls of a case in each family
    names = set(ALL) if whole else set(ALL[part :: len(CASES)]) - skipped
    cell = make_cell(FAMILIES[family], case, tmp_path)
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


SOME = ("classify", "translate", "lm", "pretrain")
FAST = {("classify", "plain"), ("translate", "edited ensemble"), ("lm", "plain"), ("pretrain", "edited ensemble")}
HALF_SLOW = [
    pytest.param(task, case, marks=[] if (task, case) in FAST else [pytest.mark.slow])
    for task in SOME
    for case in ("plain", "edited ensemble")
]
"""Of the cases those in which all others are; each family is in the fast part, and each case."""


@cache
def explained(task: str, case: str, *edits: str) -> Explanation:
    """Return the explanation of a cell, with its own edits and then these."""
    request = request_of(task, case)
    return explain(matrix_run(task, 2 if "ensemble" in case else 1), replace(request, edits=request.edits + edits))


def numbers(value: Any) -> Iterator[float]:
    """Yield all numbers of JSON data but seconds, in order."""
    if isinstance(value, dict):
        value = [item for name, item in value.items() if name != "seconds"]
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield float(value)


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(("task", "case"), HALF_SLOW)
def test_an_identity_edit_changes_nothing(task: str, case: str) -> None:
    e, stack = explained(task, case), stack_of(task)
    one = explained(task, case, f"{stack}.0.self.out*1")
    assert one.predictions == e.predictions and one.answer == e.answer
    for id, record in e.records.items():
        assert torch.equal(record.value, one.records[id].value), id
    for name in ["parts", "layers"] + (["contributions"] if task != "pretrain" else []):
        was, now = e.sweep(name), one.sweep(name)
        np.testing.assert_allclose([*numbers(asdict(now))], [*numbers(asdict(was))], atol=2e-6, err_msg=name)


@pytest.mark.parametrize("task", SOME)
def test_more_edits_are_on_top_of_those_of_an_explanation(task: str) -> None:
    """An edited explanation is one pass: what is compared with it has its edits too; before the first is no change."""
    stack = stack_of(task)
    e = explained(task, "edited ensemble")
    assert e.base is not None and e.base.request == e.request.without_edits()
    first = min([*e.records].index(one.step) for one in e.edited.applied)
    assert first > 5 and all(check.ok and check.value == 0 for check in e.checks)
    for id in [*e.records][:first]:
        assert np.array_equal(e.tensor(id), Explanation.tensor(e.base, id)) and id in e.edited.same
    more = f"{stack}.0.self.context[head:1]=0"
    result, both = e.what_if(more), explained(task, "edited ensemble", more)
    assert [effect.log_prob_before for effect in result.effects] != [effect.log_prob_after for effect in result.effects]
    for id, record in both.records.items():
        assert torch.equal(record.value, result.trace[id].value), id
    assert both.answer == result.answer
    [part] = [row for row in e.sweep("parts").rows if row.edits == [more]]
    change = sum(effect.log_prob_after - effect.log_prob_before for effect in result.effects)
    assert part.change == pytest.approx(change, abs=1e-5)
    *_, last = e.sweep("layers").rows
    assert last.effects and all(one.kl == pytest.approx(0.0, abs=1e-9) for one in last.effects)
    if task != "pretrain":
        sums = e.sweep("contributions")
        logits = e.records["logits"].value.reshape(-1, e.records["logits"].shape[-1])[e.answered[0]].double()
        of_edits = [part.name for part in sums.rows if part.name.startswith("edit of")]
        # The residual stream of a decoder has no edit of its encoder.
        assert abs(sums.error) < 1e-5 and bool(of_edits) == (task != "translate")
        assert float((logits[:, None] - logits - sums.value).abs().min()) < 1e-6


@pytest.mark.parametrize("task", ["translate", "pretrain"])
def test_a_layer_is_skipped_on_top_of_edits_of_what_it_reads(task: str) -> None:
    """The state that a skipped layer passes on has the edits of both."""
    first, second = "encoder.0.state=skip", ("source" if task == "translate" else "embedding") + "[token:0]=0"
    one_by_one, together = explained(task, "plain", first).what_if(second), explained(task, "plain", first, second)
    assert torch.equal(one_by_one.trace["logits"].value, together.records["logits"].value)


@pytest.mark.parametrize(("task", "case"), HALF_SLOW)
def test_a_saved_page_holds_what_the_served_page_answers(task: str, case: str) -> None:
    e = explained(task, case)
    page, dropped = saved_page_html(e, parameters=True)
    data, service = Page(page).data(), Service(e.run)
    assert dropped == [] and data["run"] == as_json({k: v for k, v in service.run().items() if k != "start"})
    ids = {}
    for stored in data["traces"]:
        live = service.trace(stored["request"])
        ids[stored["id"]] = live["id"]
        assert stored | {"id": 0, "seconds": 0} == as_json(live) | {"id": 0, "seconds": 0}
    assert len(ids) == 1 + ("edited" in case)
    for stored in data["traces"]:
        names = {node["id"] for node in stored["nodes"]} | stored["params"].keys()
        own, first = data["tensors"][stored["id"]], data["tensors"][data["traces"][0]["id"]]
        assert names == own.keys() | names & {*stored["params"], *(stored["edited"] or {"same": ()})["same"]}
        for name in names:
            one = own.get(name) or first[name]  # the page takes those that are the same from the first trace
            assert one["dtype"] in ("f16", "i32", "u8") or one["shape"] in ([], [1]), "nothing here is beyond 16 bits"
            np.testing.assert_allclose(tensor(one), service.tensor(ids[stored["id"]], name, ""), rtol=1e-3, atol=1e-6)
    for kind, query in (("attribution", service.attribute), ("erased", service.erase)):
        stored = data["attributions" if kind == "attribution" else "erased"]
        assert stored
        for one in [*stored[:: max(1, len(stored) // 4)], stored[-1]]:
            live = query(one["request"] | {"trace": ids[one["request"]["trace"]]})
            np.testing.assert_allclose([*numbers(one[kind])], [*numbers(live)], atol=1e-5)


@pytest.mark.parametrize("case", ["plain", "ensemble"])
@pytest.mark.parametrize("task", SOME)
def test_the_command_the_page_and_python_answer_the_same(task: str, case: str) -> None:
    e, run = explained(task, case), matrix_run(task, 2 if case == "ensemble" else 1)
    live, printed = Service(run).trace(e.request.to_json()), as_json(facts([e]))["manifest"]
    for one in (live, printed):
        assert one["answer"] == e.answer and run.precision == "fp32"
        assert one["predictions"] == as_json(live["predictions"])
    edit = f"{stack_of(task)}.0.self.out=0"
    assert effect(with_edits(e, [edit]))[0]["effects"] == e.what_if(edit).to_json()["effects"]


def test_a_second_text_of_another_model_is_refused() -> None:
    e, other = explained("translate", "plain"), explained("translate", "ensemble")
    for query in (lambda: e.what_if("encoder.0.state[token:0]=B", other=other), lambda: e.sweep("states", other)):
        with pytest.raises(UsageError, match="explained by another model"):
            query()


def test_a_refused_edit_leaves_nothing_behind() -> None:
    run = matrix_run("lm")
    service, request = Service(run), request_of("lm", "plain").to_json()
    first = service.trace(request)
    hooks = [len(m._forward_hooks) for m in run.model.modules()]
    kept = [*service._traces]
    wrong = ["encoder.5.self=0", "logits[token:999]=0", "nothing", "logits=B", "x" * 201, "a*" + "1" * 190 + "x"]
    for more in [*({"edits": [edit]} for edit in wrong), {"edits": ["decoder.9.state=B"], "other_text": "a b c"}]:
        with pytest.raises(UsageError):
            service.trace(request | more)
    assert service._traces == kept and [len(m._forward_hooks) for m in run.model.modules()] == hooks
    assert service.trace(request)["predictions"] == first["predictions"]


def test_the_words_of_why_are_those_that_are_read() -> None:
    """Of the answer, a prediction reads what is before it, and no more."""
    e = explain(matrix_run("translate"), TraceRequest("abc", target="fe dc"))
    for index, prediction in enumerate(e.predictions):
        texts = e.attribute(prediction=index).word_texts
        assert texts["source"] == e.streams[0].word_texts
        read = e.streams[1].pieces[1 : prediction.position + 1]
        assert "".join(texts["target"]).replace("▁", "") == "".join(read).replace("▁", "")
