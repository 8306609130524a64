"""Decode, Why, Attention and Compare show what Python computes, and do what they offer to do; also of models with
another kind of answer: a number, a vector, tags, a fitted temperature, several members.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.browser.app import Open, Watch
from tests.browser.models import CLASSIFIER, MODELS, TEXTS, TRANSLATOR, WRITER, explained, subject_of
from tests.browser.test_values import loss
from tests.helpers import matrix
from tests.helpers.matrix import matrix_run, with_temperature
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.pretrained import bert_folder

import glassformer
from glassformer.explain.attribution import AttributeRequest, erase
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.interop import transfer


def test_words_are_scored_and_erased_as_in_python(app: Open) -> None:
    e = explained(CLASSIFIER)
    page = app(CLASSIFIER, "why", text=TEXTS["classify"])
    for method in ("erase", "integrated_gradients"):
        page.go("why", text=TEXTS["classify"], method=method)
        page.wait("[data-word='0'][data-sign]:not([data-score='0'])")
        page.settle()
        expected = e.attribute(method).scores["text"]
        shown = page.all("[data-word]", "[+one.dataset.score, one.dataset.sign]")
        assert [score for score, _ in shown] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        clear = 0.03 * max(map(abs, expected))
        assert all(sign == ("for" if score > 0 else "against") for score, sign in shown if abs(score) > clear)
    best = e.predictions[0].top[0]
    assert page.value("main [data-role=probability]") == pytest.approx(math.exp(best.log_prob), rel=1e-5)
    page.page.focus("[data-word='2']")
    page.press(" ")
    page.wait("[data-word='2'][aria-pressed=true]")
    erased = erase(e, AttributeRequest(erase={"text": [2]})).prediction.top
    page.until(
        "expected => Math.abs(document.querySelector('main [data-role=probability]').dataset.value - expected) < 1e-5",
        next(math.exp(c.log_prob) for c in erased if c.id == best.id),
    )
    page.click("[data-role=restore]")
    page.wait("[data-word='2'][aria-pressed=false]")


def test_decoding_continues_from_a_forced_token(app: Open) -> None:
    page = app(TRANSLATOR, "decode", text=TEXTS["translate"])
    force = page.page.locator("[data-role=force]:not([disabled])").first
    candidate = int(force.get_attribute("data-candidate") or "-1")
    force.focus()
    page.press("Enter")
    page.until("() => location.hash.includes('prefix=')")
    page.ready("decode")
    prefix = tuple(int(i) for i in page.param["prefix"].split("."))
    assert prefix[-1] == candidate
    headline = explained(TRANSLATOR, prefix=prefix).answer["headline"]
    assert "".join(headline.split()) in "".join(page.text("[data-role=answer]").split())
    page.click("[data-role=unforce]")
    page.until("() => !location.hash.includes('prefix=')")


def test_each_step_of_the_beam_has_every_candidate_and_its_outcome(app: Open) -> None:
    page = app(TRANSLATOR, "decode", text="abc", beam_size=3, max_new_tokens=6, position=1)
    candidates = explained(TRANSLATOR, text="abc", decode={"beam_size": 3, "max_new_tokens": 6}).decode.steps[1]
    outcomes = ["finished" if c.finished else "pruned" if c.row is None else "kept" for c in candidates]
    rows = page.all("[aria-label=Candidates] [data-beam]", "[one.dataset.beam, one.dataset.outcome]")
    assert rows == [[f"1.{i}", outcome] for i, outcome in enumerate(outcomes)] and len(set(outcomes)) > 1
    bold = "getComputedStyle(one.querySelector('bdi')).fontWeight >= 600"
    written = page.all("[data-role=force]", "one.title === 'this is the output token'")
    assert sum(written) == 1 and page.all("[data-role=force]", bold) == written


def test_temperature_reshapes_the_bars_exactly(app: Open) -> None:
    page = app(WRITER, "decode", text=TEXTS["lm"], position=2)
    e = explained(WRITER)
    index, t = next(i for i, p in enumerate(e.predictions) if p.position == 2), e.subject.task.tokenizer
    logits = np.asarray(e.tensor("logits"), dtype=np.float64)[index]
    best = [int(i) for i in np.argsort(-logits, kind="stable")]
    shown = page.all("[data-candidate]", "[+one.dataset.candidate, one.innerText]")
    assert [candidate for candidate, _ in shown] == best[: len(shown)]
    assert f"{100 * np.exp(logits[best[0]] - np.logaddexp.reduce(logits)):.1f}" in shown[0][1]
    page.page.locator("[data-role=slider-temperature]").fill("2")
    page.until("() => location.hash.includes('sampling=')")
    page.settle()
    halved = logits / 2
    halved[[t.pad_id, t.unk_id, t.bos_id, t.mask_id]] = -np.inf  # never written, so never drawn
    for i in [i for i in best if np.isfinite(halved[i])][:5]:
        drawn = np.exp(halved[i] - np.logaddexp.reduce(halved))
        assert f"{100 * drawn:.1f}" in page.text(f'[data-candidate="{i}"]')


def test_every_head_of_attention_is_shown_and_arrow_keys_walk_through_them(app: Open) -> None:
    page = app(TRANSLATOR, "attention", text=TEXTS["translate"])
    for kind in ("encoder.*.self", "decoder.*.self", "decoder.*.cross"):
        nodes = [kind.replace("*", str(layer)) + ".weights" for layer in (0, 1)]
        page.go("attention", node=nodes[0])
        page.wait(f'figure[data-node="{nodes[0]}"]')
        page.settle()
        heads = page.all("[data-head]", "one.dataset.head")
        assert heads == [f"{node}:{head}" for node in nodes for head in (0, 1)]
        assert page.count("[data-head] canvas") == len(heads), "each is drawn"
    page.page.focus("[data-head][aria-pressed=true]")
    for key, node, head in [
        ("ArrowRight", "decoder.0.cross.weights", 1),
        ("ArrowDown", "decoder.1.cross.weights", 1),
        ("ArrowLeft", "decoder.1.cross.weights", 0),
    ]:
        page.press(key)
        page.until("head => document.activeElement.dataset.head === head", f"{node}:{head}")
        assert page.all("[data-head][aria-pressed=true]", "one.dataset.head") == [f"{node}:{head}"]
        page.wait(f'figure[data-node="{node}"][data-slice="head:{head}"]')


def test_the_heaviest_of_the_cells_that_share_a_pixel_is_seen(app: Open) -> None:
    """In the small picture of a head over a long text, whose cells are smaller than a pixel."""
    run, text = subject_of(MODELS[CLASSIFIER], max_len=240), "a b good c a " * 48
    page = app(run, "attention", text=text)
    page.settle()
    weights = np.asarray(explain(run, text).tensor("encoder.0.self.weights"))[1]
    [(wide, pixels)] = page.all(
        '[data-head="encoder.0.self.weights:1"] canvas',
        '[one.width, [...one.getContext("2d").getImageData(0, 0, one.width, one.height).data]]',
    )
    red = np.asarray(pixels).reshape(-1, wide, 4)[..., 0]
    assert weights.shape == (240, 240) and 60 < wide < 200, "there are fewer pixels than cells"
    heaviest = np.zeros(red.shape)
    at = np.ix_(*(np.arange(240) * n // 240 for n in red.shape))
    np.maximum.at(heaviest, at, weights)
    darkness = 255.0 - red[np.unravel_index(np.argsort(heaviest, axis=None), red.shape)]
    assert np.all(np.diff(darkness) >= 0) and len(set(darkness)) > 10


def test_compare_opens_with_the_most_similar_example(app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = "a b good c a", "a b bad c a"
    monkeypatch.setattr("glassformer.explain.page.manifest.examples", lambda _: [first, "b bad", second])
    run = subject_of(MODELS[CLASSIFIER])
    page = app(run, "compare", text=first)
    page.wait("[data-side=B]")
    assert page.param["o.text"] == second
    page.settle()
    for side, text in (("A", first), ("B", second)):
        shown, answer = page.text(f"[data-side={side}]"), explain(run, text).answer
        assert answer["headline"] in shown and answer["detail"] in shown
    page.page.get_by_text("Remove B").click()
    page.until("() => !location.hash.includes('o.text')")
    page.settle()
    assert "o.text" not in page.param  # what was removed stays away


TEXT = matrix.TEXTS["regress"]


def test_a_number_has_no_probability_and_words_are_weighed_in_its_units(app: Open, saved: Callable[..., Path]) -> None:
    run = matrix_run("regress")
    e, number = run.explain(TEXT), f"{run.predict(TEXT)['number']:.3g}"
    page = app(run, "flow", text=TEXT)
    assert "one number for the text" in page.text("[data-role=vector]")
    assert page.count('[data-node-box="probabilities"]') == 0
    page.go("decode")
    assert number in page.text("[data-role=no-answer]") and "%" not in page.text("main")
    page.agrees("logits")
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
    assert loss(page, "before") == pytest.approx(learned.loss, rel=1e-4)
    page.click("[data-role=one-step]")
    assert loss(page, "after") == pytest.approx(learned.learned.loss, rel=1e-3)
    shown = page.text("main")
    assert all(word not in shown for word in ("probab", "nats", "class", "logit")), shown
    page.wait("[data-role=update-lines][data-state=ready]")
    losses = ("loss.error", "loss", "loss.grad", "loss.error.grad", "logits.grad")
    page.agrees(*losses, text=TEXT, answer="2.5", numbers="gradients")
    page.go("step", node="loss.error", text=TEXT, answer="2.5", arithmetic=1, cell="0,0")
    page.wait("[data-role=arithmetic] p")
    assert "−" in page.text("[data-role=arithmetic]")
    page = app(saved(after), "learn")
    for name in ("before", "after"):
        page.wait(f"[data-role=mean-{name}]:has([data-check=loss][data-state=ok])")


def test_a_bare_encoder_has_every_step_a_vector_and_no_answer(
    app: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transfer, "check_import", lambda *_: None)
    encoder = glassformer.import_model(bert_folder(tmp_path / "source", "bare"), tmp_path / "run")
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
    page.agrees("embedding.norm", "encoder.1.self.weights", "pooled")
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
    page.agrees("pooled")


def test_a_button_sets_the_fitted_temperature(app: Open) -> None:
    shown = "main [data-role=probability]"
    run = with_temperature(matrix_run("classify"))
    plain, calibrated = (run.predict(matrix.TEXTS["classify"], calibrated=c)["probability"] for c in (False, True))
    page = app(run, "decode", text=matrix.TEXTS["classify"])
    assert page.value(shown) == pytest.approx(plain, abs=1e-5)
    page.click("[data-role=fitted]")
    page.until("() => location.hash.includes('heat=2.5')")
    page.settle()
    assert page.value(shown) == pytest.approx(calibrated, abs=1e-5) != pytest.approx(plain, abs=1e-3)
    assert app(matrix_run("classify"), "decode", text=matrix.TEXTS["classify"]).count("[data-role=fitted]") == 0


def test_another_member_is_a_click_away(app: Open) -> None:
    run, text = ngram_run(members=3), "refunds xyzzy 😀 card"
    page = app(run, "flow", text=text)
    assert "member 0, shown here" in page.text(".notes")
    page.click("[data-member='2']")
    page.until("document.querySelector('.notes').textContent.includes('member 2, shown here')")
    answer = explain(run, TraceRequest(text, member=2)).together  # pyright: ignore
    assert page.text("[data-role=answer]").split() == f"{' '.join(map(str, answer.values()))}, by all 3 models".split()
