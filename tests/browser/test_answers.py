"""Decode, Why, Attention and Compare show what Python computes, and do what they offer to do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.browser.app import Open
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.attribution import AttributeRequest, erase
from glassformer.explain.explanation import Explanation, TraceRequest, explain

CLASSIFIER, TRANSLATOR = "classify, pre-norm", "translate, pre-norm"


def explained(name: str, **fields: object) -> Explanation:
    return explain(subject_of(MODELS[name]), TraceRequest.from_dict({"text": TEXTS[MODELS[name][0]]} | fields))


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
    prefix = [int(i) for i in page.param["prefix"].split(".")]
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
    page = app("lm, pre-norm", "decode", text=TEXTS["lm"], position=2)
    e = explained("lm, pre-norm")
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
