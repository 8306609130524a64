"""The one-page Transformer: its chapter has its code, it computes what the library computes, and it learns."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import notebooks
import pytest
import torch
from one_page_bridge import to_library
from tools import read_record
from torch import Tensor, nn

from glassformer.models import LanguageModel, TextClassifier, Translator

BOOK = Path(__file__).parents[2] / "docs" / "book"
CHAPTER = (BOOK / "one-page.md").read_text(encoding="utf-8")
CELL = re.compile(r"^```{code-cell} python\n((?::\S[^\n]*\n)*)(.*?)^```$", re.MULTILINE | re.DOTALL)
CELLS = CELL.findall(CHAPTER)


def cells_with(tag: str) -> list[str]:
    """Return the code of the chapter's cells with a tag."""
    return [code for options, code in CELLS if re.search(rf":tags: \[.*\b{tag}\b", options)]


CODE = "\n".join([notebooks.one_page(), "import random\nfrom datetime import date, timedelta", *cells_with("dates")])
one_page: Any = ModuleType("one_page")
"""The chapter's definitions, and those of its dates."""
exec(compile(CODE, "one-page.md", "exec", dont_inherit=True), vars(one_page))
CONFIG = one_page.Config(n_layers=3, d_model=12, n_heads=2, d_ff=20, dropout=0.3, max_len=11)
MOST = 1e-5
"""The largest difference of logits between the page and the library."""


def random_ids(lengths: list[int], seed: int) -> Tensor:
    """Return ids of texts of these lengths, padded."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(3, 30, (length,), generator=generator) for length in lengths]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=one_page.PAD)


def shaken(model: nn.Module) -> Any:
    """Return a model in evaluation mode whose every weight differs from its initial one: norms and biases, too."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def logits_of(model: nn.Module) -> Tensor:
    """Return the logits of a model of the page or of the library, for padded texts."""
    source, target = random_ids([7, 4, 1], seed=1), random_ids([5, 2, 6], seed=2)
    with torch.no_grad():
        if isinstance(model, Translator):
            return model(source, target, source != one_page.PAD)
        if isinstance(model, TextClassifier):
            return model(source, source != one_page.PAD)
        if isinstance(model, one_page.EncoderDecoder):
            return model(source, target)
        return model(source if isinstance(model, one_page.Classifier) else target)


def test_the_file_is_the_cells_of_the_chapter_has_the_lines_it_says_and_needs_torch_alone() -> None:
    source = notebooks.one_page()
    assert source == "\n\n".join(cells_with("one-page"))
    assert f"have {len([line for line in source.splitlines() if line])} lines" in CHAPTER
    modules = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))
    assert modules <= {"torch", *sys.stdlib_module_names}


def make(name: str) -> Any:
    """Return a model of the page by the name of its class, or a classifier by its number of classes."""
    return shaken(one_page.Classifier(CONFIG, 30, int(name)) if name.isdigit() else getattr(one_page, name)(CONFIG, 30))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("EncoderDecoder", Translator), ("LanguageModel", LanguageModel), ("2", TextClassifier), ("5", TextClassifier)],
)
def test_weights_go_to_the_library_with_equal_logits(name: str, kind: type) -> None:
    """Those of two classes have one logit there, and so their probabilities are compared."""
    model = make(name)
    library = to_library(model)
    assert isinstance(library, kind) and not library.training
    found, expected = logits_of(library), logits_of(model)
    if name == "2":
        found, expected = found.log_softmax(-1), expected.log_softmax(-1)
    torch.testing.assert_close(found, expected, atol=MOST, rtol=0)
    with pytest.raises(ValueError, match="and Linear came"):
        to_library(nn.Linear(2, 3))


def test_no_day_is_in_two_parts_and_a_date_is_read_in_one_way() -> None:
    parts = [set(part) for part in one_page.split_days()]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 36_525 and [len(p) for p in parts[1:]] == [2_000, 2_000]
    days = one_page.split_days()[2]
    written = [one_page.write(day, form) for day in days for form in one_page.FORMATS]
    assert len(set(written)) == len(written)
    assert one_page.to_text(one_page.to_ids(written)[7]) == written[7]


def test_the_recorded_training_is_of_the_code_as_it_is_now() -> None:
    record = read_record("plain/one-page")
    code = "\n\n".join(cells_with("one-page") + cells_with("dates")).encode()
    assert record["code_sha256"] == hashlib.sha256(code).hexdigest()[:16], "run the chapter with 1,000 steps"
    assert record["test"]["exact_match"] >= 0.95 and record["test"]["days"] == 2_000
    assert record["seconds"] <= 180


def test_the_notebook_runs_with_torch_alone_up_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the book, the package and drawing are out of reach; what needs them stands after `FIND_BOOK`."""
    tags = [{"tags": re.findall(r"[\w-]+", options.partition("[")[2])} for options, _ in CELLS]
    sources = [code.rstrip().splitlines(keepends=True) for _, code in CELLS]
    cells = [
        {"id": f"{i}", "cell_type": "code", "source": source, "metadata": data}
        for i, (source, data) in enumerate(zip(sources, tags, strict=True))
    ]
    shown = ["".join(cell["source"]) for cell in notebooks.cleaned({"cells": cells})["cells"]]
    shown = shown[: shown.index(notebooks.FIND_BOOK.rstrip())]
    assert all(code.rstrip() in shown for code in cells_with("one-page") + cells_with("dates"))
    joined = "\n".join(shown)
    assert "matplotlib" not in joined and "print(" in joined
    for line, shorter in (("n_steps = 60", "n_steps = 2"), ("assert losses[-1] < losses[0] / 2", "")):
        assert line in joined  # another test runs the chapter's own training
        joined = joined.replace(line, shorter)
    for blocked in ("glassformer", "tools", "drawings", "exercises", "matplotlib"):
        monkeypatch.setitem(sys.modules, blocked, None)
    exec(compile(joined, "notebook", "exec", dont_inherit=True), {"__name__": "__main__"})
