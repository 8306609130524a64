"""Calibrated probabilities of the page are those of `predict`: of a text, of edits, of an ensemble and of labels."""

from __future__ import annotations

from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS, matrix_run, with_temperature
from tests.helpers.ngram_runs import ngram_run

from glassformer.errors import UsageError
from glassformer.explain.page.service import Service
from glassformer.run import Run

TEXT, OTHER = TEXTS["classify"], "good a"
EDIT = "encoder.0.self.head1=0"
CLASSIFIERS = ["classify", "pairs"]


def percent(calibrated: float, plain: float) -> str:
    return f"{100 * calibrated:.1f}%, calibrated from {100 * plain:.1f}%"


def both(run: Run, text: str, **options: Any) -> str:
    """Return what the page says of a text, by the probabilities of `predict`."""
    return percent(*(best(run.predict(text, calibrated=c, **options)) for c in (True, False)))


def best(answer: dict[str, Any]) -> float:
    return float(answer["probability"])


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_probability_is_that_of_predict(name: str) -> None:
    run, text = with_temperature(matrix_run(name)), TEXTS[name]
    plain, e = run.explain(text), run.explain(text, calibrated=True)
    assert e.answer == {"headline": plain.answer["headline"], "detail": both(run, text)}
    assert e.answer["detail"].endswith(f", calibrated from {plain.answer['detail']}")
    assert plain.temperature == e.temperature == e.manifest()["temperature"] == 2.5
    assert [p.to_json() for p in e.predictions] == [p.to_json() for p in plain.predictions], "of the model"
    edited = e.what_if(EDIT)
    assert ", calibrated from " in edited.answer["detail"]
    assert [effect.log_prob_after for effect in edited.effects] == [
        effect.log_prob_after for effect in plain.what_if(EDIT).effects
    ]


def test_an_edited_pass_is_that_of_predict_with_edits() -> None:
    run = with_temperature(matrix_run("classify"))
    assert run.explain(TEXT, calibrated=True).what_if(EDIT).answer["detail"] == both(run, TEXT, edits=[EDIT])


def test_of_an_ensemble_the_mean_of_its_members_is_calibrated() -> None:
    run = with_temperature(ngram_run(members=3))
    e = run.explain("refunds xyzzy card", member=2, calibrated=True)
    assert e.together is not None and "calibrated" not in e.answer["detail"] and e.temperature is None
    assert e.together.answer["detail"] == both(run, "refunds xyzzy card")


def test_a_page_calibrates_every_text() -> None:
    run = with_temperature(matrix_run("classify"))
    service = Service(run, [{"text": TEXT}], calibrated=True)
    for text in (TEXT, OTHER):
        manifest = service.trace({"text": text})
        assert manifest["request"] == {"text": text, "calibrated": True}
        assert manifest["answer"]["detail"] == both(run, text)
        assert service.trace(manifest["request"])["id"] == manifest["id"], "an address that was shared"
    changed = service.trace({"text": TEXT, "edits": [EDIT]})
    assert ", calibrated from " in changed["answer"]["detail"]
    page = service.save({"request": {"text": TEXT}, "other": {"text": OTHER}})["page"]
    assert page.count(", calibrated from ") >= 2
    learned = service.trace({"text": TEXT, "answer": run.task.label_names[0], "learn_steps": 1})
    assert "calibrated" not in learned["answer"]["detail"] and learned["temperature"] is None
    assert "calibrated" not in Service(run).trace({"text": TEXT})["request"]


@for_each("name", ["translate", "lm", "pretrain", "regress", "tag"])
def test_other_models_have_no_temperature(name: str) -> None:
    run = matrix_run(name)
    with pytest.raises(UsageError, match="calibrated is for classifiers"):
        run.explain(TEXT, calibrated=True)
    assert run.explain(TEXT).manifest()["temperature"] is None


def test_what_has_no_temperature_is_refused() -> None:
    with pytest.raises(UsageError, match="no temperature"):
        with_temperature(matrix_run("classify"), None).explain(TEXT, calibrated=True)
    with pytest.raises(UsageError, match=r"fitted to the finished model, and not to step-00000002"):
        with_temperature(matrix_run("classify")).explain(TEXT, checkpoint="step-00000002", calibrated=True)
