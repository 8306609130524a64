"""The report is one file that holds its own numbers: parsed as a browser would, against what Python has.

A page of some steps holds them, what they are computed from, and nothing more. Figures draw the recorded values with
all labels, and files of them are vector graphics.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
import step_frame
from matplotlib.collections import QuadMesh
from step_frame import learn_frame_html, step_address, step_frame_html
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS as ALL_TEXTS
from tests.helpers.matrix import matrix_run
from tests.helpers.serving import DTYPES, TEXTS

from glassformer.errors import UsageError
from glassformer.explain.attribution import Attribution, Faithfulness
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.figures import ExplanationPlots, save, save_figure
from glassformer.explain.inputs import Candidate
from glassformer.explain.page.saved_page import WHOLE, asset, html_json, saved_attributions, saved_page_html, size_of
from glassformer.run import Run

HOSTILE = "</script><script>alert(1)</script> <!-- ]]> \u2028 \u2029 & 日本 🙂 \u202eabc good"


class Page(HTMLParser):
    """What a browser would see: the elements, and the content of each script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inside = False
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.contents.append((*self.elements[-1], data))

    def data(self) -> dict[str, Any]:
        [text] = [t for _, attrs, t in self.contents if attrs.get("id") == "glassformer-data"]
        return json.loads(text)


def tensor(packed: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), DTYPES[packed["dtype"]]).reshape(packed["shape"])


def tiny_run(name: str) -> Run:
    return subject_of((name, {"n_layers": 1, "d_model": 32, "d_ff": 64}))


@pytest.fixture(scope="module", params=list(TEXTS))
def made(request: pytest.FixtureRequest) -> tuple[Explanation, str]:
    """An explanation and its report."""
    text = TEXTS[request.param]
    e = explain(tiny_run(request.param), TraceRequest.from_dict({"text": text, "decode": {"max_new_tokens": 4}}))
    return e, saved_page_html(e)[0]


def test_it_needs_nothing_but_itself(made: tuple[Explanation, str]) -> None:
    page = Page(made[1])
    for tag, attrs in page.elements:
        assert "src" not in attrs and (attrs.get("href") or "data:").startswith("data:"), tag
    [policy] = [str(a["content"]) for t, a in page.elements if "http-equiv" in a]
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy and "unsafe" not in policy
    [script] = [t for tag, attrs, t in page.contents if tag == "script" and not attrs]
    [style] = [t for tag, _, t in page.contents if tag == "style"]
    for kind, content in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert re.search(r"<meta charset=\"utf-8\">", made[1][:1024])
    assert not re.search(r"</script|<!--", asset(WHOLE), re.IGNORECASE) and "</style" not in asset("app.css").lower()


def test_words_are_weighed_and_each_erased(made: tuple[Explanation, str]) -> None:
    e, data = made[0], Page(made[1]).data()
    weighed = [(a["request"]["method"], a["request"].get("prediction")) for a in data["attributions"]]
    explained = [None] if e.is_classifier else [i for i, p in enumerate(e.predictions) if p.actual]
    if e.subject.task.name == "lm":  # of a prompt nothing was predicted
        explained = [i for i in explained if e.predictions[i].position + 1 >= e.streams[0].n_given]
    assert weighed == [(method, i) for method in ("erase", "integrated_gradients") for i in explained] != []
    assert not e.is_classifier or len(data["erased"]) == len(e.streams[0].word_texts)
    for erased in data["erased"]:
        [(name, positions)] = erased["request"]["erase"].items()
        words = next(stream.words for stream in e.streams if stream.name == name)
        assert len({words[i] for i in positions}) == 1 and words[positions[0]] >= 0


@pytest.mark.parametrize("name", ["translate", "lm"])
def test_logits_of_a_large_vocabulary_are_left_out_with_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.page.saved_page.MAX_LOGITS_BYTES", 10)
    explanation = explain(tiny_run(name), TEXTS[name])
    html, dropped = saved_page_html(explanation, seconds=0)
    assert any("left out, to limit the size of the file: logits" in sentence for sentence in dropped)
    assert "logits" not in Page(html).data()["tensors"][explanation.id]


def test_hostile_text_stays_text() -> None:
    html, _ = saved_page_html(explain(tiny_run("classify"), HOSTILE), seconds=0)
    page = Page(html)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert page.data()["traces"][0]["request"]["text"] == HOSTILE
    assert "alert(1)</script>" not in html and "\u2028" not in html
    for text in ("<!--", "</SCRIPT>", "<\u2029&amp;>", '"é漢\\😀\x7f'):
        assert not set("<>&") & set(html_json(text)) and html_json(text).isascii()
        assert json.loads(html_json(text)) == text


def test_a_full_file_says_what_it_lacks() -> None:
    explanation = explain(tiny_run("classify"), TEXTS["classify"])
    whole, nothing = saved_page_html(explanation)
    assert nothing == []
    limit = len(whole) - 20_000
    html, dropped = saved_page_html(explanation, max_bytes=limit)
    assert len(html.encode()) <= limit
    data = Page(html).data()
    [sentence] = dropped
    assert data["dropped"] == dropped and "to limit the size of the file" in sentence
    manifest = data["traces"][0]
    kept = data["tensors"][manifest["id"]].keys()
    weights = [n["id"] for n in manifest["nodes"] if n["op"] == "softmax"]
    assert weights and kept >= set(weights), "attention is kept for longest"
    n_missing = len({n["id"] for n in manifest["nodes"]} | manifest["params"].keys()) - len(kept)
    assert n_missing > 0 and sentence.startswith(f"{n_missing} tensors")


@for_each("name", ["classify", "translate"])
def test_the_limit_is_of_the_whole_file(name: str) -> None:
    """Weights of words and erasures count, too; when there is no room they are left out, and that is reported."""
    explanation = explain(tiny_run(name), TraceRequest("ab", target="ba") if name == "translate" else "a b good")
    with pytest.raises(UsageError, match="more than 200,000"):
        saved_page_html(explanation, max_bytes=200_000, seconds=600)
    html, dropped = saved_page_html(explanation, seconds=600)
    longer = explain(tiny_run(name), TEXTS[name])
    assert len(saved_page_html(longer, max_bytes=450_000, seconds=600)[0].encode()) <= 450_000
    data, first = Page(html).data(), Page(html).data()["attributions"][0]
    of_first = [e for e in data["erased"] if e["request"].get("prediction") == first["request"].get("prediction")]
    least = size_of([first, *of_first]) + 60  # seconds differ in length
    output: list[str] = []
    saved = saved_attributions([explanation], time.monotonic() + 60, output, least)
    assert dropped == [] and size_of([*saved["attributions"], *saved["erased"]]) <= least
    assert len(saved["attributions"]) == 1 and len(saved["erased"]) == len(of_first) and "are left out" in output[0]


@for_each("name, kept, left", [("translate", [], 2), ("classify", ["erase"], 1)])
def test_time_that_runs_out_is_reported(name: str, kept: list[str], left: int) -> None:
    """A slow classifier, with hundreds of words, has the scores by erasing alone."""
    dropped: list[str] = []
    explanation = explain(tiny_run(name), TEXTS[name])
    saved = saved_attributions([explanation], time.monotonic() - 1, dropped, 10**9)
    assert [one["request"]["method"] for one in saved["attributions"]] == kept and bool(saved["erased"]) == bool(kept)
    assert len(dropped) == left and all("answers are left out" in sentence for sentence in dropped)
    assert "by integrated gradients" in dropped[-1]


TWO: list[tuple[Callable[[], Run], dict[str, Any], dict[str, Any]]] = [
    (lambda: tiny_run("classify"), {"text": "a good b"}, {"text": "a bad b"}),
    (lambda: matrix_run("multilabel"), {"text": ALL_TEXTS["multilabel"]}, {"text": "a b good", "label": "good"}),
    (lambda: matrix_run("classify", 3), {"text": "a good b", "member": 1}, {"text": "a good b", "member": 2}),
]
"""Two texts, two labels of a text, and two members of an ensemble."""


@for_each(("run", "first", "second"), TWO)
def test_two_to_compare_store_equal_parameters_once(run: Any, first: Any, second: Any, tmp_path: Path) -> None:
    made = run()
    one, other = (explain(made, TraceRequest(**each), trace_id=id) for each, id in ((first, "t1"), (second, "t2")))
    data = Page(saved_page_html(one, other=other, parameters=True)[0]).data()
    assert [trace["request"] for trace in data["traces"]] == [first, second]
    stored = data["tensors"]
    for id in data["traces"][0]["params"]:
        assert (id in stored["t2"]) == (not np.array_equal(one[id], other[id])), "what both share is stored once"
        for e in (one, other):
            packed = stored[e.id].get(id) or stored["t1"][id]
            np.testing.assert_allclose(tensor(packed), e[id], rtol=1e-3, atol=1e-6, err_msg=id)
    assert "encoder.0.self.weights" in stored["t2"]
    assert {a["request"]["trace"] for a in data["attributions"]} == {"t1", "t2"}
    one.save(tmp_path / "new" / "a.html")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.html"]


STEPS = ["encoder.0.self.q_proj", "encoder.0.self.weights"]


def test_it_holds_the_steps_their_inputs_and_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = explain(tiny_run("classify"), TEXTS["classify"])
    html = step_frame_html(explanation, STEPS[::-1], "../assets")
    data = Page(html).data()
    [trace] = data["traces"]
    assert [node["id"] for node in trace["nodes"]] == STEPS
    inputs = {id for node in trace["nodes"] for id in node["inputs"]}
    assert data["tensors"][trace["id"]].keys() == {*STEPS, *inputs, *trace["params"]}
    assert 'src="../assets/whole.js"' in html and 'href="../assets/app.css"' in html
    assert step_address("encoder.0.self.q", head=1) == "#/step?node=encoder.0.self.q&head=1&frame=step"
    with pytest.raises(UsageError, match=r"no step 'encoder.9'"):
        step_frame_html(explanation, ["encoder.9"], ".")
    monkeypatch.setattr(step_frame, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="bytes, more than"):
        step_frame_html(explanation, STEPS, ".")


def test_what_was_learned_holds_the_loss_before_and_after_and_one_update() -> None:
    after = explain(tiny_run("classify"), TraceRequest(TEXTS["classify"], answer="good", learn_steps=2))
    data = Page(learn_frame_html(after, ["head.weight"], ".")).data()
    before, learned = data["traces"]
    assert not before["learning"]["learned"] and len(learned["learning"]["learned"]["steps"]) == 2
    losses = {"loss", "loss.each", "loss.probabilities", "loss.targets"}
    assert data["tensors"][before["id"]].keys() == losses
    kept = data["tensors"][learned["id"]].keys() - losses
    assert {"head.weight", "head.weight.before", "head.weight.clipped_grad"} < kept
    assert all(id.startswith("head.weight") for id in kept) and [*learned["params"]] == ["head.weight"]


REQUESTS = {
    "classify": TraceRequest("a b good c d"),
    "translate": TraceRequest("abcdefg", target="gfed"),
    "lm": TraceRequest("abc def", decode={"max_new_tokens": 3}),
}
TOKENS = ["</script>", "$x^2$", "\U0001f600", "漢字", "שלום", "\x00\ufffe", "▁the"]


@pytest.fixture(scope="module")
def explanations() -> dict[str, Explanation]:
    return {name: explain(subject_of((name, {})), request) for name, request in REQUESTS.items()}


def drawn(figure: Any) -> list[tuple[Any, np.ma.MaskedArray]]:
    """Return the axes that hold a matrix of cells, with its values, masked where they are hatched."""
    found = []
    for axes in figure.axes:
        arrays = [one.get_array() for one in axes.collections if isinstance(one, QuadMesh)] or [
            image.get_array() for image in axes.images
        ]
        if arrays and not hasattr(axes, "_colorbar"):
            cells = np.ma.asarray(arrays[0])
            assert axes.patch.get_hatch() or not cells.mask.any()  # through masked cells the background is seen
            found.append((axes, cells))
    return found


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.row("3.8")
@pytest.mark.parametrize("task", list(REQUESTS))
def test_attention_draws_the_recorded_weights(explanations: dict[str, Explanation], task: str) -> None:
    explanation = explanations[task]
    weights = explanation[f"{'decoder' if task == 'lm' else 'encoder'}.1.self.weights"]
    pieces = [p.replace("▁", "␣") for p in explanation.streams[0].pieces]
    masked = np.triu(np.ones_like(weights[0], dtype=bool), 1) if task == "lm" else np.zeros_like(weights[0], dtype=bool)
    of = "decoder.self" if task == "lm" else "encoder.self"
    [(axes, _)] = drawn(explanation.plot.attention(layer=1, head=0, of=of))
    assert labels(axes.xaxis) == pieces
    last = explanation.predictions[-1]
    following = [*pieces[1:], (last.actual or last.top[0]).piece.replace("▁", "␣")]
    read_and_predicted = [f"{one} → {other}" for one, other in zip(pieces, following, strict=True)]
    assert labels(axes.yaxis) == (read_and_predicted if task == "lm" else pieces)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # row 0 on top
    all_heads = drawn(explanation.plot.attention(of=of))
    assert len(all_heads) == len(weights) == 2
    for (_, cells), expected in zip(all_heads, weights, strict=True):
        np.testing.assert_array_equal(np.ma.getmaskarray(cells), masked)
        np.testing.assert_array_equal(cells.data[~masked], expected[~masked])


def test_attention_selects_stack_and_block(explanations: dict[str, Explanation]) -> None:
    plot, records = explanations["translate"].plot, explanations["translate"].records
    for of in ("encoder.self", "decoder.self", "decoder.cross", None):
        [(_, cells)] = drawn(plot.attention(0, 1, of))
        seen, (stack, block) = ~np.ma.getmaskarray(cells), (of or "decoder.cross").split(".")
        np.testing.assert_array_equal(cells.data[seen], np.asarray(records[f"{stack}.0.{block}.weights"])[1][seen])


def test_attention_of_a_long_text_keeps_its_values() -> None:
    e = explain(subject_of(("lm", {"n_layers": 1, "n_heads": 1, "positions": "rotary"})), TraceRequest("abcdefg" * 14))
    figure = e.plot.attention(0, 0)
    [(_, cells)] = drawn(figure)
    np.testing.assert_array_equal(cells.filled(0), np.asarray(e.records["decoder.0.self.weights"])[0])
    assert max(figure.get_size_inches()) < 12


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_files_escape_tokens_and_are_deterministic(tmp_path: Path, suffix: str) -> None:
    e = explain(subject_of(("classify", {"n_layers": 1, "n_heads": 1})), TraceRequest("a b good c d a b"))
    paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
    tokens = [t.replace("漢字", "ßж") for t in TOKENS] if suffix == ".pdf" else TOKENS  # embedding takes seconds
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing is a warning
        for path in paths:
            save(replace(e, streams=[replace(e.streams[0], pieces=tokens)]).plot.attention(), path)
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    if suffix == ".svg":
        text = data.decode()
        assert "&lt;/script&gt;" in text and "</script>" not in text
        assert ">$x^2$<" in text and ">␣the<" in text and ">U+0000U+FFFE<" in text  # text, not outlines
    if suffix == ".pdf":
        assert b"/Subtype /Type0" in data or b"/FontFile2" in data  # fonts inside, so text can be copied


def test_figures_are_written_or_refused(explanations: dict[str, Explanation], tmp_path: Path) -> None:
    e, plot = explanations["classify"], explanations["classify"].plot
    for figure, message in (
        (lambda: plot.attention(layer=2), "no layer 2: they are counted from 0 to 1"),
        (lambda: plot.attention(head=-1), "no head -1"),
        (lambda: plot.attention(of="decoder.cross"), "no attention 'decoder.cross' here"),
        (lambda: save_figure(e, "attentoin", tmp_path / "figure.pdf"), "no figure called 'attentoin'"),
    ):
        with pytest.raises(UsageError, match=message):
            figure()
    assert not list(tmp_path.iterdir())
    before, path = dict(matplotlib.rcParams), tmp_path / "figure.svg"
    titles = {"attention": "Decoder layer 1: cross-attention, head 0", "attribution": "Attribution of"}
    for kind, title in titles.items():
        save_figure(explanations["translate"], kind, path, layer=1, head=0)
        assert title in path.read_text(encoding="utf-8") and dict(matplotlib.rcParams) == before
        path.unlink()


def test_attribution_has_a_bar_for_each_word(explanations: dict[str, Explanation]) -> None:
    """The sign is seen without colour, and the ranking is compared with random ones."""
    test, target = Faithfulness(1.5, 0.2, -0.1, 0.6, True), Candidate(3, "</b>", 1.0, -0.1)
    scores, words = {"text": [0.5, -2.0, 0.0, 0.0, 1.0]}, {"text": REQUESTS["classify"].text.split()}
    attribution = Attribution(
        "erase", "log p of '</b>'", target, None, -0.1, -2.5, scores, words, None, test, test, 200, "[MASK]", []
    )
    drawn: Any = SimpleNamespace(streams=explanations["classify"].streams, attribute=lambda method: attribution)
    figure = ExplanationPlots(drawn).attribution()
    (axes,) = figure.axes
    assert labels(axes.yaxis) == REQUESTS["classify"].text.split()
    assert [bar.get_width() for bar in axes.patches] == scores["text"]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [score < 0 for score in scores["text"]]
    assert any("Mean of 200 random rankings: +0.2 (95% between −0.1 and +0.6)" in t.get_text() for t in figure.texts)
