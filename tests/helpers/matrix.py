"""The matrix of explanations: families of models × cases × calls, and the refusals that are expected.

A call is looked up by the name of the method, so a new method without one is noticed (`tests/explain/test_matrix.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.exports import WORDS, run_of
from tests.helpers.small import config_of, data_of, random_run

from glassformer.cli.flags import run_folder
from glassformer.config import DataConfig
from glassformer.errors import UsageError
from glassformer.explain.edits.sweeps import sweep_states
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.one_label import of_same_label
from glassformer.explain.page.service import Service
from glassformer.interop.exported import ExportedModel, load_exported
from glassformer.interop.transfer import export
from glassformer.models.ensemble import members_of
from glassformer.run import Run
from glassformer.tasks import TASKS
from glassformer.text.answers import THRESHOLD

FAMILIES = {
    "classifier": "classify",
    "several labels": "multilabel",
    "tagger": "tag",
    "number": "regress",
    "translator": "translate",
    "language model": "lm",
    "masked": "pretrain",
    "pairs of texts": "pairs",
}
"""The task of each family; "pairs" is classify, of pairs of texts."""
CASES = ("plain", "edited", "ensemble", "edited ensemble", "long")
"""Those with an explanation; "exported" has none, and what is asked of it stands in `EXPORTED`."""
TEXTS = {
    "classify": "a b good b a",
    "multilabel": "a b good odd b a",
    "tag": "a b good b a",
    "regress": "a b good b a",
    "translate": "abcdef",
    "lm": "abc",
    "pretrain": "a [MASK] b c d",
    "pairs": "a b [SEP] good b a",
}
ANSWERS = {"classify": "good", "multilabel": "good", "tag": "B-G", "translate": "fedc", "lm": " ab", "pretrain": "g"}
ANSWERS |= {"pairs": "good", "regress": "12.5"}
LETTERS = "abcdefg"
MAX_LEN = 560
LONG = dict.fromkeys(("classify", "multilabel", "translate", "lm", "regress"), "abcdefg" * 90)
LONG |= {"tag": "abcdefg " * 80, "pairs": "abc [SEP] " + "abcdefg" * 90}
LONG["pretrain"] = "abcdefg" * 40 + " [MASK] " + "abcdefg" * 50


@dataclass
class Cell:
    """A family in a case.

    Attributes:
        task: the task of the family.
        case: one of `CASES`.
        run: the run.
        e: the explanation.
        out: a folder to write into.
    """

    task: str
    case: str
    run: Run
    e: Explanation
    out: Path

    @cached_property
    def other(self) -> Explanation:
        """Return the explanation of a second text by the same model."""
        return second_text(self.e)

    @cached_property
    def service(self) -> Service:
        """Return the page's service."""
        return Service(self.run)

    @cached_property
    def trace(self) -> str:
        """Return the id of the same explanation there."""
        return self.service.trace(self.e.request.to_json())["id"]

    @cached_property
    def second(self) -> str:
        """Return the id of the second text there."""
        return self.service.trace(self.other.request.to_json())["id"]

    def body(self, **fields: Any) -> dict[str, Any]:
        """Return a request about this trace."""
        return {"trace": self.trace} | fields

    @property
    def edited(self) -> bool:
        return "edited" in self.case


@cache
def matrix_run(task: str, members: int = 1, max_len: int = MAX_LEN, seed: int = 5) -> Run:
    """Return a run of random weights whose predictions depend on the text."""
    pairs, kind = task == "pairs", "classify" if task == "pairs" else task
    config = config_of(kind)
    text = replace(config.text, tokenizer="char", max_len=max_len)
    decode = replace(config.decode, max_new_tokens=3)
    model = replace(config.model, d_model=16, d_ff=16, dropout=0.0, ensemble_size=members)
    config, data = replace(config, model=model, text=text, decode=decode), data_of(kind)
    if pairs:
        files = DataConfig(pair_column="second")
        config = replace(config, model=replace(model, n_segments=2), data=files)
        data = replace(data, train=replace(data.train, text=[f"{text} [SEP] {text[::-1]}" for text in data.train.text]))
    run = random_run(config, data, seed, scale=3.0, path=Path("runs") / task)
    if task == "multilabel":  # each label is near its threshold, so that other texts have other answers
        for member in members_of(run.model):
            [answer] = run.task.predict(member, [TEXTS[task]], decode)
            p = torch.tensor([*answer["probabilities"].values()])
            with torch.no_grad():
                # No two are equal, and no printed digit is near a half: another processor rounds in another way.
                member.head.bias.sub_(p.logit() - 0.004 * torch.arange(1, len(p) + 1))  # pyright: ignore
    return run


def with_temperature(run: Run, temperature: float | None = 2.5) -> Run:
    """Return a run whose validation split chose a temperature."""
    run = Run(
        run.path, type(run.task)(run.task.config, run.task.tokenizer, run.task.label_names), run.model, run.device
    )
    names = run.task.label_names if run.task.explain_as == "multilabel_classifier" else None
    thresholds = names and [THRESHOLD] * len(names)  # chosen with the temperature
    run.task.decision = replace(run.task.decision, temperature=temperature, thresholds=thresholds)
    return run


def stack_of(task: str) -> str:
    """Return the first stack of a family."""
    return "decoder" if task == "lm" else "encoder"


def request_of(task: str, case: str, edits: tuple[str, ...] | None = None) -> TraceRequest:
    """Return the request of a cell; `edits` replace those of an edited one."""
    own = (f"{stack_of(task)}.0.self.out[token:1]=0",) if "edited" in case else ()
    text = LONG[task] if case == "long" else TEXTS[task]
    member = 1 if "ensemble" in case else 0
    decode = {"max_new_tokens": 3} if task in ("translate", "lm") else {}
    return TraceRequest(text, edits=own if edits is None else edits, member=member, decode=decode)


def make_cell(task: str, case: str, out: Path) -> Cell:
    """Return a cell."""
    run = matrix_run(task, 2 if "ensemble" in case else 1)
    return Cell(task, case, run, explain(run, request_of(task, case)), out)


def second_text(e: Explanation) -> Explanation:
    """Return the explanation of a text of as many tokens, with another answer where one is found."""
    text, rng = e.request.text[:30], random.Random(0)
    for _ in range(1 if len(text) < len(e.request.text) else 60):  # a long text has no sweep to compare by
        moved = "".join(rng.choice(LETTERS) if c in LETTERS else c for c in text)
        other = explain(e.run, of_same_label(replace(e.request.without_edits(), text=moved), e.subject))
        try:
            sweep_states(e, other)
        except UsageError:
            continue
        break
    return other


def some_tensor(e: Explanation) -> str:
    return next(id for id in e.records if id.endswith("self.weights"))


def a_word(e: Explanation) -> dict[str, list[int]]:
    """Return the positions of one token that can be erased."""
    stream = e.streams[0]
    return {stream.name: [next(i for i, special in enumerate(stream.special) if not special)]}


def make_exported(task: str, out: Path) -> ExportedModel:
    """Return the exported model of a run of a family."""
    with pytest.MonkeyPatch.context() as patch:
        run = run_of(task, patch, WORDS if task in ("classify", "pretrain") else None)
        patch.setattr("glassformer.interop.transfer.check_export", lambda *_: "not checked: by this test")
        export(run, "ctranslate2" if task in ("translate", "lm") else "onnx", out)
    return load_exported(out)


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
NO_CELL = {"Run": {"train", "evaluate", "export"}, "Service": {"subject"}}
NO_CELL["Explanation"] = {
    "run",
    "labels",
    "random_drops",
    "precision",
    "is_classifier",
    "is_number",
    "answered",
    "generated",
}
NO_CELL["Run"] |= {"path", "task", "model", "answering", "device", "precision", "computing", "config"}
NO_CELL["Run"] |= {"labels", "text_columns"}
NO_CELL["Service"] |= {"training", "probes", "probe", "control"}
"""Scores of a whole split, exports and what is shown of a training are of no text; the others are attributes."""
CALLS = {"Explanation": EXPLANATION, "plot": PLOTS, "Service": SERVICE, "Run": RUN}

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
    *((f"{name}", lambda c: c.case == "long", "at most 128 tokens") for name in ("what_if", "trace:edits")),
    *(
        (f"sweep:{name}", lambda c: c.case == "long", "at most 128 tokens")
        for name in ("parts", "keys", "layers", "states", "contributions")
    ),
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


EXPORTED_ANSWERS = {"Run.predict", "Run.predict_stream"}
"""What an exported model answers; all other calls are refused."""
