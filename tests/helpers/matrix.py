"""The matrix of explanations: families of models × cases."""

import random
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from tests.helpers.small import config_of, data_of, random_run

from glassformer.config import DataConfig
from glassformer.errors import UsageError
from glassformer.explain.edits.sweeps import sweep_states
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.one_label import of_same_label
from glassformer.explain.page.service import Service
from glassformer.models.ensemble import members_of
from glassformer.run import Run
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
TEXTS = dict.fromkeys(("classify", "tag", "regress"), "a b good b a") | {
    "multilabel": "a b good odd b a",
    "translate": "abcdef",
    "lm": "abc",
    "pretrain": "a [MASK] b c d",
    "pairs": "a b [SEP] good b a",
}
ANSWERS = {"classify": "good", "multilabel": "good", "tag": "B-G", "translate": "fedc", "lm": " ab", "pretrain": "g"}
ANSWERS |= {"pairs": "good", "regress": "12.5"}
LETTERS = "abcdefg"
MAX_LEN = 560
LONG = dict.fromkeys(("classify", "multilabel", "regress", "translate", "lm"), LETTERS * 90)
LONG |= {"tag": f"{LETTERS} " * 80, "pairs": f"abc [SEP] {LETTERS * 90}"}
LONG["pretrain"] = f"{LETTERS * 40} [MASK] {LETTERS * 50}"


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
    task = type(run.task)(run.task.config, run.task.tokenizer, run.task.label_names)
    names = task.label_names if task.explain_as == "multilabel_classifier" else None
    thresholds = names and [THRESHOLD] * len(names)  # chosen with the temperature
    task.decision = replace(task.decision, temperature=temperature, thresholds=thresholds)
    return Run(run.path, task, run.model, run.device)


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
