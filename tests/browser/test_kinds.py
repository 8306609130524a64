"""Pages of models with another kind of answer: a number, a vector, tags, a fitted temperature, several members."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.browser.app import Open, Watch
from tests.browser.models import subject_of
from tests.helpers.matrix import TEXTS, matrix_run, with_temperature
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.pretrained import bert_folder

import glassformer
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.interop import transfer
from glassformer.run import Run

TEXT = TEXTS["regress"]


def test_a_number_has_no_probability_and_words_are_weighed_in_its_units(app: Open, saved: Callable[..., Path]) -> None:
    run = matrix_run("regress")
    e, number = run.explain(TEXT), f"{run.predict(TEXT)['number']:.3g}"
    page = app(run, "flow", text=TEXT)
    assert "one number for the text" in page.text("[data-role=vector]")
    assert page.count('[data-node-box="probabilities"]') == 0
    page.go("decode")
    assert number in page.text("[data-role=no-answer]") and "%" not in page.text("main")
    page.go("step", node="logits")
    assert page.check("logits") == "ok"
    page.go("flow", text=TEXT, edits="encoder.0.self.context[head:0]=0")
    page.wait("[data-role=effect]")
    assert "without edits" in page.text("[data-role=effect]")
    scores = zip(e.streams[0].words, e.attribute().scores["text"], strict=True)
    of_word = sum(score for word, score in scores if word == 2)
    for page in (app(run, "why", text=TEXT), app(saved(e), "why")):
        page.wait("[data-role=number]")
        assert page.text("[data-role=number]").startswith(number[:3])
        shown = page.all(".word[data-word]", "+one.dataset.score")
        assert len(shown) == 5 and shown[2] == pytest.approx(of_word, abs=1e-4)
        page.click(".word[data-word='2']")
        page.until("() => document.querySelector('[data-role=number]').textContent.includes('masked')")


def test_sweeps_are_in_the_units_of_the_number(app: Open) -> None:
    page = app(matrix_run("regress"), "why", why="parts", text=TEXT)
    e, other = (matrix_run("regress").explain(text) for text in (TEXT, "g d good a c"))
    shown = {"parts": "[data-part]", "keys": "[data-part*=blocked]", "layers": "[data-layer]"}
    shown |= {"contributions": "[data-direct]", "states": "[data-role=states]"}
    strongest = sorted(e.sweep("keys").rows, key=lambda row: -abs(row.change))[:15]
    effects, texts = {"parts": e.sweep("parts").rows, "keys": strongest}, {}
    for why, selector in shown.items():
        page.go("why", why=why, text=TEXT, **({"o.text": other.request.text} if why == "states" else {}))
        page.wait(selector)
        texts[why] = page.text("main")
        assert not re.search(r"nats|log-prob|log p|probabilit|logit|rank", texts[why]), why
        if why in effects:
            changes = page.all("[data-change]", "+one.dataset.change")
            np.testing.assert_allclose(changes, [effect.change for effect in effects[why]], atol=1e-4)
    assert all(row.after in texts["layers"] for row in e.sweep("layers").rows)
    assert "Number minus mean of the training numbers" in texts["contributions"]
    assert e.answer["headline"] in texts["states"] and other.answer["headline"] in texts["states"]
    page.click("[data-why=checkpoints]")
    assert "Make an edit first" in page.text("main")


def test_a_number_is_learned(app: Open, watch: Watch, saved: Callable[..., Path]) -> None:
    watch.expected = "400|422|Bad Request"
    run = matrix_run("regress")
    page = app(run, "learn", text=TEXT)
    for answer in ("good", "2.5"):
        page.page.fill("[data-role=learn-answer]", answer)
        page.click("[data-role=loss]")
        if answer == "good":
            page.until("() => document.body.textContent.includes('is not a number')")
    after = run.learn(TEXT, "2.5", steps=1)
    learned = after.learning
    assert learned is not None and learned.learned is not None
    assert page.value("[data-role=mean-before]:has([data-check=loss][data-state=ok])") == pytest.approx(
        learned.loss, rel=1e-4
    )
    page.click("[data-role=one-step]")
    assert page.value("[data-role=mean-after]:has([data-check=loss][data-state=ok])") == pytest.approx(
        learned.learned.loss, rel=1e-3
    )
    shown = page.text("main")
    assert all(word not in shown for word in ("probab", "nats", "class", "logit")), shown
    page.wait("[data-role=update-lines][data-state=ready]")
    for node in ("loss.error", "loss", "loss.grad", "loss.error.grad", "logits.grad"):
        page.go("step", node=node, text=TEXT, answer="2.5", numbers="gradients")
        assert page.check(node) == "ok", node
    page.go("step", node="loss.error", text=TEXT, answer="2.5", arithmetic=1, cell="0,0")
    page.wait("[data-role=arithmetic] p")
    assert "−" in page.text("[data-role=arithmetic]")
    page = app(saved(after), "learn")
    for name in ("before", "after"):
        page.wait(f"[data-role=mean-{name}]:has([data-check=loss][data-state=ok])")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "check_import", lambda *_: None)
        return glassformer.import_model(bert_folder(folder / "source", "bare"), folder / "run")


def test_a_bare_encoder_has_every_step_a_vector_and_no_answer(app: Open, encoder: Run) -> None:
    text, other = "the film was not good", "a good film"
    page = app(encoder, "flow", text=text)
    assert "one vector for the text" in page.text("[data-role=vector]")
    assert page.count('[data-node-box="probabilities"]') == 0
    page.click("[data-role=tour]")
    page.wait(".tour [data-option]")
    assert "predicts nothing" in page.text(".tour")
    for screen in ("why", "decode"):
        page.go(screen)
        assert "no answer to" in page.text("[data-role=no-answer]")
    for node in ("embedding.norm", "encoder.1.self.weights", "pooled"):
        page.go("step", node=node)
        assert page.check(node) == "ok"
    page.go("flow", text=text, edits="encoder.1.self.context[head:0]=0")
    page.wait("[data-role=effect]")
    assert "cosine" in page.text("[data-role=effect]")
    page.go("compare", text=text)
    page.until("() => document.querySelector('[data-role=other-text]').value !== ''")  # it begins as A's text
    page.page.fill("[data-role=other-text]", other)
    page.click("[data-role=compare]")
    page.wait("[data-role=cosine] b")
    a, b = (encoder.explain(one)["pooled"] for one in (text, other))
    cosine = float(a @ b / ((a @ a) * (b @ b)) ** 0.5)
    assert float(page.text("[data-role=cosine] b")) == pytest.approx(cosine, abs=6e-4)


@pytest.mark.parametrize("members", [1, 2])
def test_a_word_is_chosen_and_its_tag_is_recomputed(app: Open, members: int) -> None:
    run = subject_of(("tag", {"ensemble_size": members}))
    page = app(run, "decode", text="a b good c")
    tags = run.predict("a b good c")["tags"]
    options = [" ".join(option.split()[:3]) for option in page.texts("[data-role=label] option")]
    assert options == [f"{i + 1} {word} {tags[i]}" for i, word in enumerate("a b good c".split())]
    page.page.select_option("[data-role=label]", f"3 good {tags[2]}")
    page.until("() => document.querySelector('[data-role=label]').value.startsWith('3 ')")
    assert page.count("[data-role=labels]") == 0  # thresholds are of several labels
    assert page.check("decision") == "ok"
    page.go("step", node="pooled")
    assert page.check("pooled") == "ok"


def test_a_button_sets_the_fitted_temperature(app: Open) -> None:
    shown = "main [data-role=probability]"
    run = with_temperature(matrix_run("classify"))
    plain, calibrated = (run.predict(TEXTS["classify"], calibrated=c)["probability"] for c in (False, True))
    page = app(run, "decode", text=TEXTS["classify"])
    assert page.value(shown) == pytest.approx(plain, abs=1e-5)
    page.click("[data-role=fitted]")
    page.until("() => location.hash.includes('heat=2.5')")
    page.settle()
    assert page.value(shown) == pytest.approx(calibrated, abs=1e-5) != pytest.approx(plain, abs=1e-3)
    assert app(matrix_run("classify"), "decode", text=TEXTS["classify"]).count("[data-role=fitted]") == 0


def test_another_member_is_a_click_away(app: Open) -> None:
    run, text = ngram_run(members=3), "refunds xyzzy 😀 card"
    page = app(run, "flow", text=text)
    assert "member 0, shown here" in page.text(".notes")
    page.click("[data-member='2']")
    page.until("document.querySelector('.notes').textContent.includes('member 2, shown here')")
    answer = explain(run, TraceRequest(text, member=2)).together  # pyright: ignore
    assert page.text("[data-role=answer]").split() == f"{' '.join(map(str, answer.values()))}, by all 3 models".split()
