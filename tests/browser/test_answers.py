"""Decode, Why, Attention and Compare show what Python computes, and do what they offer to do."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.browser.app import App
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.attribution.attribute import AttributeRequest, erase
from glassformer.explain.explanation import TraceRequest, explain


def test_an_erased_word_moves_the_probability_as_in_python(app: Callable[..., App]) -> None:
    name = "classify, pre-norm"
    page = app(name, "why", text=TEXTS["classify"])
    readout = page.page.locator("main [data-role=probability]").first
    readout.wait_for()
    explanation = explain(subject_of(MODELS[name]), TEXTS["classify"])
    best = explanation.predictions[0].top[0]
    assert float(readout.get_attribute("data-value") or "nan") == pytest.approx(math.exp(best.log_prob), rel=1e-5)
    page.page.locator("[data-word='2']").click()
    page.page.wait_for_selector("[data-word='2'][aria-pressed=true]")
    message = erase(explanation, AttributeRequest.from_dict({"trace": explanation.id, "erase": {"text": [2]}}))
    expected = next(math.exp(c.log_prob) for c in message.prediction.top if c.id == best.id)
    page.until(
        "expected => Math.abs(document.querySelector('main [data-role=probability]').dataset.value - expected) < 1e-5",
        expected,
    )
    page.page.click("[data-role=restore]")
    page.page.wait_for_selector("[data-word='2'][aria-pressed=false]")


@pytest.mark.parametrize("method", ["erase", "integrated_gradients"])
def test_words_are_scored_as_in_python(app: Callable[..., App], method: str) -> None:
    name = "classify, pre-norm"
    page = app(name, "why", text=TEXTS["classify"], method=method)
    page.page.wait_for_selector("[data-word='0'][data-sign]:not([data-score='0'])")
    explanation = explain(subject_of(MODELS[name]), TEXTS["classify"])
    expected = explanation.attribute(method).scores["text"]
    scores = page.page.locator("[data-word]").evaluate_all("words => words.map(w => +w.dataset.score)")
    assert scores == pytest.approx(expected, rel=1e-4, abs=1e-5)
    signs = page.page.locator("[data-word]").evaluate_all("words => words.map(w => w.dataset.sign)")
    largest = max(map(abs, expected))
    for sign, score in zip(signs, expected, strict=True):
        if abs(score) > 0.03 * largest:
            assert sign == ("for" if score > 0 else "against")


def test_forcing_a_token_goes_on_from_it(app: Callable[..., App]) -> None:
    name = "translate, pre-norm"
    page = app(name, "decode", text=TEXTS["translate"])
    force = page.page.locator("[data-role=force]:not([disabled])").first
    force.wait_for()
    candidate = int(force.get_attribute("data-candidate") or "-1")
    force.click()
    page.until("() => location.hash.includes('prefix=')")
    page.ready("decode")
    prefix = [int(i) for i in page.param["prefix"].split(".")]
    assert prefix[-1] == candidate
    explanation = explain(subject_of(MODELS[name]), TraceRequest(TEXTS["translate"], prefix=tuple(prefix)))
    assert explanation.streams[1].ids[1 : 1 + len(prefix)] == prefix
    headline = explanation.answer["headline"]
    assert "".join(headline.split()) in "".join(page.page.inner_text("[data-role=answer]").split())
    page.page.click("[data-role=unforce]")
    page.until("() => !location.hash.includes('prefix=')")


def test_the_beam_tree_has_every_candidate(app: Callable[..., App]) -> None:
    name = "translate, pre-norm"
    page = app(name, "decode", text="abc", beam_size=3, max_new_tokens=6)
    page.page.wait_for_selector("[data-beam]")
    request = TraceRequest("abc", decode={"beam_size": 3, "max_new_tokens": 6})
    steps = explain(subject_of(MODELS[name]), request).decode.steps
    toggle = page.page.locator("[data-role=show-pruned]")
    if toggle.count() and not toggle.is_checked():
        toggle.check()
    drawn = set(page.page.locator("[data-beam]").evaluate_all("nodes => nodes.map(n => n.dataset.beam)"))
    kept = {f"{t}.{i}" for t, row in enumerate(steps) for i, c in enumerate(row) if c.row is not None or c.finished}
    assert kept <= drawn
    assert drawn <= {f"{t}.{i}" for t, row in enumerate(steps) for i in range(len(row))}
    assert len(drawn) > len(kept), "pruned branches are drawn too"


def test_temperature_reshapes_the_bars_exactly(app: Callable[..., App]) -> None:
    name = "lm, pre-norm"
    page = app(name, "decode", text=TEXTS["lm"], position=2)
    page.page.wait_for_selector("[data-candidate]")
    explanation = explain(subject_of(MODELS[name]), TEXTS["lm"])
    index = next(i for i, p in enumerate(explanation.predictions) if p.position == 2)
    logits = np.asarray(explanation.tensor("logits"), dtype=np.float64)[index]
    shown = page.page.locator("[data-candidate]").evaluate_all("bars => bars.map(b => +b.dataset.candidate)")
    best = [int(i) for i in np.argsort(-logits, kind="stable")]
    assert shown == best[: len(shown)]
    text = page.page.locator(f'[data-candidate="{best[0]}"]').inner_text()
    p = np.exp(logits[best[0]] - np.logaddexp.reduce(logits))
    assert f"{100 * p:.1f}" in text
    page.page.locator("[data-role=slider-temperature]").fill("2")
    page.until("() => location.hash.includes('sampling=')")
    page.settle()
    t = explanation.subject.task.tokenizer
    halved = logits / 2
    halved[[t.pad_id, t.unk_id, t.bos_id, t.mask_id]] = -np.inf  # never written, so never drawn
    for i in [i for i in best if np.isfinite(halved[i])][:5]:
        drawn = np.exp(halved[i] - np.logaddexp.reduce(halved))
        assert f"{100 * drawn:.1f}" in page.page.locator(f'[data-candidate="{i}"]').inner_text()


def test_every_head_of_attention_is_shown(app: Callable[..., App]) -> None:
    page = app("translate, pre-norm", "attention", text=TEXTS["translate"])
    explanation = explain(subject_of(MODELS["translate, pre-norm"]), TEXTS["translate"])
    for kind, n_layers in (("encoder.*.self", 2), ("decoder.*.self", 2), ("decoder.*.cross", 2)):
        records = explanation.trace.find(f"{kind}.weights")
        page.go("attention", node=records[0].id)
        page.page.wait_for_selector(f'figure[data-node="{records[0].id}"]')
        page.settle()
        heads = page.page.locator("[data-head]").evaluate_all("all => all.map(h => h.dataset.head)")
        assert heads == [f"{record.id}:{head}" for record in records for head in range(record.shape[0])]
        assert len(records) == n_layers
        assert page.page.locator("[data-head] canvas").count() == len(heads), "each is drawn"


def test_the_heaviest_of_the_cells_that_share_a_pixel_is_seen(app: Callable[..., App]) -> None:
    """In the small picture of a head over a long text, whose cells are smaller than a pixel."""
    run, text = subject_of(MODELS["classify, pre-norm"], max_len=240), "a b good c a " * 48
    page = app(run, "attention", text=text)
    page.settle()
    weights = np.asarray(explain(run, text).tensor("encoder.0.self.weights"))[1]
    red = page.page.locator('[data-head="encoder.0.self.weights:1"] canvas').evaluate("""canvas => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return Array.from({ length: canvas.height }, (_, row) =>
            Array.from({ length: canvas.width }, (_, col) => data[4 * (row * canvas.width + col)]));
    }""")
    high, wide = len(red), len(red[0])
    assert weights.shape == (240, 240) and 60 < wide < 200, "there are fewer pixels than cells"
    heaviest = np.zeros((high, wide))
    at = np.ix_(np.arange(240) * high // 240, np.arange(240) * wide // 240)
    np.maximum.at(heaviest, at, weights)
    darkness = 255.0 - np.asarray(red)[np.unravel_index(np.argsort(heaviest, axis=None), heaviest.shape)]
    assert np.all(np.diff(darkness) >= 0) and len(set(darkness)) > 10


def test_arrow_keys_walk_through_the_heads(app: Callable[..., App]) -> None:
    page = app("translate, pre-norm", "attention", text=TEXTS["translate"], node="decoder.0.cross.weights", head=0)
    chosen = page.page.locator("[data-head][aria-pressed=true]")
    chosen.focus()
    for key, head in [
        ("ArrowRight", "decoder.0.cross.weights:1"),
        ("ArrowDown", "decoder.1.cross.weights:1"),
        ("ArrowLeft", "decoder.1.cross.weights:0"),
    ]:
        page.press(key)
        page.until("head => document.activeElement.dataset.head === head", head)
        assert chosen.count() == 1 and chosen.get_attribute("data-head") == head
        node, number = head.split(":")
        page.page.wait_for_selector(f'figure[data-node="{node}"][data-slice="head:{number}"]')


def test_compare_opens_with_the_most_similar_example(app: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "glassformer.explain.page.manifest.examples", lambda _: ["a b good c a", "b bad", "a b bad c a"]
    )
    page = app(subject_of(MODELS["classify, pre-norm"]), "compare", text="a b good c a")
    page.page.wait_for_selector("[data-side=B]")
    assert page.param["o.text"] == "a b bad c a"
    page.page.get_by_text("Remove B").click()
    page.until("() => !location.hash.includes('o.text')")
    page.settle()
    assert "o.text" not in page.param  # what was removed stays away


def test_compare_shows_both_answers(app: Callable[..., App]) -> None:
    name = "classify, pre-norm"
    page = app(name, "compare", **{"text": "good good", "o.text": "bad bad"})
    page.settle()
    run = subject_of(MODELS[name])
    answers = [explain(run, text).answer for text in ("good good", "bad bad")]
    assert answers[0] != answers[1]
    for side, answer in zip("AB", answers, strict=True):
        shown = page.page.inner_text(f"[data-side={side}]")
        assert answer["headline"] in shown and answer["detail"] in shown


def test_what_is_marked_is_seen(app: Callable[..., App]) -> None:
    """The written token among its rivals, and what the lines of the search stand for."""
    page = app("translate, pre-norm", "decode", text=TEXTS["translate"], beam_size=3, position=1)
    page.settle()
    outcomes = page.page.locator("i[data-outcome]").evaluate_all("all => all.map(one => one.dataset.outcome)")
    assert outcomes == ["chosen", "kept", "finished", "pruned"]
    bold = "all => all.map(one => getComputedStyle(one.querySelector('bdi')).fontWeight >= 600)"
    bars = page.page.locator("[data-role=force]")
    written = [title == "this is the output token" for title in bars.evaluate_all("all => all.map(one => one.title)")]
    assert sum(written) == 1 and bars.evaluate_all(bold) == written
