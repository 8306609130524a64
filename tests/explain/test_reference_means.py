"""The means of `=mean`: over texts and real tokens, taken from the validation split."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.explain.test_edits import TEXTS, explained
from tests.helpers.for_each import for_each
from tests.helpers.matrix import stack_of
from tests.helpers.small import data_of

from glassformer.errors import UsageError
from glassformer.explain.edits import apply as reference
from glassformer.explain.edits.apply import Edits, has_mean, reference_means
from glassformer.explain.explanation import explain
from glassformer.explain.trace import trace


@for_each("task", TEXTS)
def test_means_are_over_all_tokens_of_all_texts(task: str) -> None:
    """Each text alone, without padding, and the sum of its rows."""
    e, split = explained(task), data_of(task).valid
    subject, t = e.subject, e.subject.task
    means = reference_means(t, subject.model, split, e.records)
    assert set(means) == {id for id, record in e.records.items() if has_mean(record)}
    again = reference_means(t, subject.model, split, e.records)
    assert all(torch.equal(mean, again[id]) for id, mean in means.items())
    if task == "pretrain":  # its masks are drawn anew, so only the seed gives the same
        return
    corpus = t.encode(split, training=False)
    rows: dict[str, list[torch.Tensor]] = {id: [] for id in means}
    for row in (row for batch in t.eval_batches(corpus, 1) for row in batch):
        with trace(subject.model) as one, torch.no_grad():
            t.logits(subject.model, t.make_batch(corpus, row[None]))
        for id in rows:
            value, names = one[id].value, [axis.name for axis in one[id].axes]
            rows[id].append(value.movedim(names.index("token"), 0) if "token" in names else value[None])
    for id, mean in means.items():
        torch.testing.assert_close(mean, torch.cat(rows[id]).mean(dim=0), atol=1e-5, rtol=1e-5, msg=id)


@for_each("task", TEXTS)
def test_a_head_is_set_to_its_mean_at_every_token(task: str) -> None:
    e, step = explained(task), f"{stack_of(task)}.0.self.context"
    means = reference_means(e.subject.task, e.subject.model, data_of(task).valid, e.records)
    tap = Edits([f"{step}[head:1]=mean"], e.records, lambda: means)
    with trace(e.subject.model, tap=tap) as t, torch.no_grad():
        e.subject.model(**e.model_inputs)
    value = t[step].value
    torch.testing.assert_close(value[1], means[step][1].expand_as(value[1]))
    torch.testing.assert_close(value[0], e.records[step].value[0])
    twice = {name: torch.cat([x, x]) for name, x in e.model_inputs.items()}
    with trace(e.subject.model, lambda _: False, tap=tap), torch.no_grad():
        both = e.subject.model(**twice)
    torch.testing.assert_close(both[0], both[1])


def test_means_are_computed_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    e, read = explained("classify"), list[str]()

    def load(*_: Any, **__: Any) -> Any:
        read.append("data")
        return data_of("classify")

    monkeypatch.setattr(reference, "load_run_data", load)
    first, second = (explain(e.run, TEXTS["classify"]).what_if("encoder.0.self.head0=mean") for _ in range(2))
    assert read == ["data"] and torch.equal(first.trace["logits"].value, second.trace["logits"].value)


def test_steps_over_pairs_of_tokens_have_no_mean_and_runs_without_data_are_refused() -> None:
    e = explained("classify")
    for step in ("scores", "weights"):
        with pytest.raises(UsageError, match="no mean over texts"):
            e.what_if(f"encoder.0.self.{step}=mean")
    with pytest.raises(UsageError, match="averages over the validation texts of the run, which cannot be read"):
        e.what_if("encoder.0.self.head0=mean")
