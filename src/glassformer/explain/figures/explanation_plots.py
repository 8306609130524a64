"""Plot an explanation: its forward pass with tokens as labels, attributions of words, the effect of edits.

An attribution is the text with its words marked, the words with the largest scores as bars, and faithfulness. Orange
with a solid underline supports the prediction, blue with a dotted underline opposes it. An effect is, at each position,
the logit of the text's own token against its contrast: a grey ring without edits, a filled point with them, blue where
another class or token wins, else orange. Of a number it is the number, blue where it falls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.attribution.alignment import readings
from glassformer.explain.attribution.attribute import Attribution, attribute_fields
from glassformer.explain.attribution.value_function import Method
from glassformer.explain.edits.apply import base_logits, followed
from glassformer.explain.edits.what_if import WhatIf
from glassformer.explain.explanation import Explanation
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.trace_plots import TracePlots
from glassformer.explain.streams import Stream
from glassformer.utils.formatting import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WIDTH, MARGIN, LINE = 6.6, 0.12, 0.25
FONT_SIZE = 10.0
MAX_BARS = 10
METHODS = {"erase": "leave-one-out", "integrated_gradients": "integrated gradients"}


@dataclass(frozen=True)
class ScoredWord:
    """A word of a stream with the sum of its tokens' scores; `gap`: "", " " or a line break before it."""

    text: str
    score: float
    gap: str


def draw_attribution(streams: Sequence[Stream], attribution: dict[str, Any]) -> Figure:
    """Return the figure of an `Attribution` in JSON form."""
    with fs.style():
        texts = attribution.get("word_texts", {})
        words = [(s.name, scored_words(s, attribution["scores"][s.name], texts.get(s.name))) for s in streams]
        return _draw(words, attribution)


def scored_words(stream: Stream, scores: Sequence[float], texts: Sequence[str] | None = None) -> list[ScoredWord]:
    """Return the words of a stream that the prediction reads with their scores, in the order of the text."""
    words: list[ScoredWord] = []
    end = 0
    for i, text in enumerate(stream.word_texts if texts is None else texts):
        if not text:
            continue
        tokens = [index for index, word in enumerate(stream.words) if word == i]
        spans = [span for span in (stream.spans[index] for index in tokens) if span is not None]
        start = min((span[0] for span in spans), default=end)
        # With the first character of the word: a token may start with its space.
        before = stream.text[end : start + 1]
        spaced = not spans or any(character.isspace() for character in before)
        gap = "\n" if "\n" in before else " " if spaced else ""
        words.append(ScoredWord(text, float(sum(scores[index] for index in tokens)), gap if words else ""))
        end = max((span[1] for span in spans), default=end)
    return words


def _draw(streams: list[tuple[str, list[ScoredWord]]], attribution: dict[str, Any]) -> Figure:
    probe = fs.new_figure(WIDTH, 4, "", "")
    layouts = [(name, list(_line_layout(probe, words))) for name, words in streams]
    ranked = sorted(((w, name) for name, words in streams for w in words), key=lambda x: -abs(x[0].score))
    strongest = abs(ranked[0][0].score) if ranked else 0.0
    ranked = [(w, name) for w, name in ranked[:MAX_BARS] if abs(w.score) > 0.005 * strongest]
    several = len(streams) > 1
    n_lines = sum(len({line for _, line, _ in layout}) + 1.1 * several for _, layout in layouts)
    bars = 0.05 + 0.2 * len(ranked) if ranked else 0.0
    footer = _faithfulness_sentences(attribution)
    height = 0.8 + LINE * n_lines + bars + 0.19 * len(footer) + 0.3
    target, foil = attribution["target"], attribution["foil"]
    title = f"Attribution of “{_token_text(target)}”" + (f" rather than “{_token_text(foil)}”" if foil else "")
    subtitle = (
        f"{attribution['quantity']} = {_signed(attribution['value'])}; all words erased: "
        f"{_signed(attribution['baseline_value'])}; {METHODS[attribution['method']]}"
    )
    figure = fs.new_figure(WIDTH, height, title, subtitle)
    top = 0.8
    for name, layout in layouts:
        if several:
            figure.text(MARGIN / WIDTH, 1 - (top + 0.02) / height, name, fontsize=9, color=fs.QUIET, va="center")
            top += LINE * 0.9
        for word, line, (left, width) in layout:
            _mark_word(figure, word, (left, top + LINE * line, width), strongest or 1.0)
        top += LINE * (max((line for _, line, _ in layout), default=-1) + 1.2)
    if ranked:
        _bars(figure, ranked if several else [(w, "") for w, _ in ranked], top)
    for i, sentence in enumerate(footer):
        y = (0.12 + 0.19 * (len(footer) - 1 - i)) / height
        figure.text(MARGIN / WIDTH, y, sentence, fontsize=8.5, color=fs.QUIET, va="center", parse_math=False)
    return fs.finish(figure)


def _line_layout(figure: Any, words: Sequence[ScoredWord]) -> Iterator[tuple[ScoredWord, int, tuple[float, float]]]:
    """Yield each word with the number of its line, its left edge and its width."""
    space = 0.055
    left, line = MARGIN, 0
    for word, width in zip(words, fs.text_width(figure, [w.text for w in words], FONT_SIZE), strict=True):
        before = space if word.gap == " " else 0.012 if word.gap == "" else 0.0
        full = left + before + width > WIDTH - MARGIN
        if left > MARGIN and (full or word.gap == "\n"):
            left, line, before = MARGIN, line + 1, 0.0
        yield word, line, (left + before, width)
        left += before + width


def _mark_word(figure: Any, word: ScoredWord, box: tuple[float, float, float], strongest: float) -> None:
    """Write a word at (left, top, width) in inches, shaded and underlined by its score; in grey if that is 0."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    across, down = figure.get_size_inches()
    left, top, width = box
    depth = abs(word.score) / strongest
    middle = 1 - top / down
    if depth > 0.02:
        shade = fs.colours(signed=True)(0.5 + 0.5 * np.sign(word.score) * 0.8 * depth)
        corner = ((left - 0.012) / across, middle - 0.095 / down)
        figure.add_artist(
            Rectangle(corner, (width + 0.024) / across, 0.19 / down, color=shade, linewidth=0, zorder=0.5)
        )
        figure.add_artist(
            Line2D(
                [left / across, (left + width) / across],
                [middle - 0.085 / down] * 2,
                linewidth=1.0,
                zorder=0.6,
                color=fs.POSITIVE if word.score > 0 else fs.NEGATIVE,
                linestyle="-" if word.score > 0 else (0, (1, 1.2)),
            )
        )
    figure.text(
        left / across,
        middle,
        fs.printable(word.text),
        fontsize=FONT_SIZE,
        va="center_baseline",
        parse_math=False,
        color=fs.PAPER if depth > 0.72 else fs.INK if word.score else fs.QUIET,
    )


def _bars(figure: Any, ranked: Sequence[tuple[ScoredWord, str]], top: float) -> None:
    """Draw the words with the largest scores as bars with their numbers; negative bars are hatched."""
    names = [fs.printable(word.text) + (f"  ({name})" if name else "") for word, name in ranked]
    scores = np.array([word.score for word, _ in ranked])
    margin = MARGIN + 0.1 + max(fs.text_width(figure, names, 9.0))
    margin = min(margin, 2.6)
    axes = fs.inset(figure, margin, top + 0.05, WIDTH - margin - 0.5, 0.2 * len(ranked))
    colours = [fs.POSITIVE if score > 0 else fs.NEGATIVE for score in scores]
    rows = np.arange(len(scores))
    drawn = axes.barh(rows, scores, height=0.62, color=colours, edgecolor=fs.PAPER, linewidth=0)
    for bar, score in zip(drawn, scores, strict=True):
        if score < 0:
            bar.set_hatch("/////")
    reach = float(np.abs(scores).max())
    low, high = min(0.0, float(scores.min())), max(0.0, float(scores.max()))
    axes.set_xlim(low - 0.16 * reach * (low < 0), high + 0.16 * reach)
    axes.set_ylim(len(scores) - 0.5, -0.5)
    axes.axvline(0, color=fs.QUIET, linewidth=0.7)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks(rows, names, fontsize=9, color=fs.INK, parse_math=False)
    axes.tick_params(length=0)
    for row, score in enumerate(scores):
        axes.annotate(
            _signed(score),
            (score, row),
            (3 if score > 0 else -3, 0),
            textcoords="offset points",
            ha="left" if score > 0 else "right",
            va="center",
            fontsize=8.5,
            color=fs.QUIET,
        )


def _faithfulness_sentences(attribution: dict[str, Any]) -> list[str]:
    """Return sentences on the faithfulness of the ranking, compared with random ones, and on the error of the sum."""
    sentences = []
    for key, meaning in (
        ("comprehensiveness", "Drop when the top-ranked words are erased"),
        ("sufficiency", "Drop when only they are kept"),
    ):
        test = attribution[key]
        low, high = _signed(test["random_low"]), _signed(test["random_high"])
        sentences.append(
            f"{meaning}: {_signed(test['value'])}. Mean of {attribution['n_random']} random rankings: "
            f"{_signed(test['random_mean'])} (95% between {low} and {high})."
        )
    if attribution["completeness"] is not None:
        error = attribution["completeness"]
        sentences.append(
            f"After {error['n_steps']} steps the sum of scores is off by {100 * error['relative']:.1f}% of the range."
        )
    return sentences


def _token_text(candidate: dict[str, Any]) -> str:
    """Return a token without the mark for the space before it."""
    return str(candidate["piece"]).removeprefix("▁") or "␣"


def _signed(value: float) -> str:
    """Return a number with three significant digits and its sign."""
    text = f"{abs(value):.3g}" if abs(value) < 1000 else f"{abs(value):.0f}"
    return ("−" if value < 0 and float(text) else "+" if value > 0 and float(text) else "") + text


ROW, TOP, BOTTOM = 0.24, 0.75, 0.62
"""Of the figure of an effect, in inches: its rows, what is above and what is below them."""
MAX_ROWS = 60
"""Maximum positions drawn, those where the logit difference changes most."""


def draw_effect(result: WhatIf, numbers: tuple[float, float] | None = None) -> Figure:
    """Return the figure of what edits change; of a regressor, of its `numbers` without and with them."""
    by_size = sorted(result.effects, key=lambda e: -abs(e.difference_after - e.difference_before))
    effects = sorted(by_size[:MAX_ROWS], key=lambda e: e.position or 0)
    rows = [
        (_label(e.position, e.target, e.contrast), e.difference_before, e.difference_after, e.before != e.after)
        for e in effects
    ]
    quantity, zero = "logit of the token minus logit of its contrast", 0.0
    if numbers is not None:
        rows, quantity, zero = [("number", *numbers, numbers[1] < numbers[0])], "number", numbers[0]
    after = result.why_not if result.answer_after is None else result.answer_after
    title = shortened(f"{result.answer_before} → {after}", 70)
    height = TOP + ROW * len(rows) + BOTTOM
    with fs.style():
        figure = fs.new_figure(WIDTH, height, title, shortened("; ".join(result.edits), 100))
        labels = [label for label, *_ in rows]
        left = min(3.0, 0.25 + max(fs.text_width(figure, labels, 9.5)))
        axes = fs.inset(figure, left, TOP, WIDTH - left - 0.25, ROW * len(rows))
        axes.axvline(zero, color=fs.RULE, linewidth=1)
        for row, (_, before, now, worse) in enumerate(rows):
            colour = fs.NEGATIVE if worse else fs.POSITIVE
            axes.plot([before, now], [row, row], color=colour, linewidth=1.6, solid_capstyle="round")
            axes.plot(before, row, "o", markerfacecolor=fs.PAPER, markeredgecolor=fs.QUIET, markersize=5)
            axes.plot(now, row, "o", color=colour, markersize=5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [fs.printable(label) for label in labels], fontsize=9.5)
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(f"{quantity}; ring: without edits, point: with them")
        return fs.finish(figure)


def _label(position: int | None, target: str, contrast: str) -> str:
    place = "" if position is None else f"{position}: "
    return f"{place}{shortened(target, 20)} against {shortened(contrast, 20)}"


FAMILIES = ("attention", "positions", "alignment", "attribution", "effect")


class ExplanationPlots(TracePlots):
    """Figures of an explanation, as `explanation.plot`: with tokens as labels, and attributions."""

    def __init__(self, explanation: Explanation, *, first: int = 0) -> None:
        tokens = {stream.name: stream.pieces for stream in explanation.streams}
        super().__init__(explanation.records, tokens, first=first)
        self._explanation = explanation

    def __repr__(self) -> str:
        return f"<Figures of {self._explanation!r}>"

    def _following(self, texts: list[str]) -> list[str]:
        last = self._explanation.predictions[-1]
        return [*texts[1:], (last.actual or last.top[0]).piece]

    def _reading(self, layer: int | None, shifted: bool | None) -> tuple[int | None, bool, str]:
        if not self._has_cross or None not in (layer, shifted):
            return super()._reading(layer, shifted)
        # Words are erased in the model without edits.
        found = readings(self._explanation.base or self._explanation)
        fits = [r for r in found if layer in (None, r.layer + self._first) and shifted in (None, r.shifted)]
        # There is no such layer.
        if not fits:
            return super()._reading(layer, shifted)
        best = fits[0]
        if best.agreement is None or best.chance is None:
            return best.layer + self._first, best.shifted, ""
        score = f"{best.agreement:.2f}, by chance {best.chance:.2f}"
        reason = f" (of {len(fits)} readings this agrees best with erasing: {score})"
        return best.layer + self._first, best.shifted, reason

    def attribution(self, method: Method = "erase", *, attribution: Attribution | None = None) -> Figure:
        """Return a figure of the attribution of a prediction to the words, and of its faithfulness.

        Args:
            method: the method of attribution.
            attribution: an existing attribution, for instance of another token, class or foil.
        """
        attribution = attribution or attribute_fields(self._explanation, method=method)
        return draw_attribution(self._explanation.streams, asdict(attribution))

    def effect(self) -> Figure:
        """Return a figure of what the edits of this explanation change at each position."""
        if self._explanation.edited is None:
            hint = "as in: explain(run, TraceRequest(text, edits=…))"
            raise UsageError("this explanation has no edits whose effect could be drawn", hint)
        self._explanation.check_has_answer()
        return draw_effect(self._explanation.edited, _numbers(self._explanation))


def _numbers(explanation: Explanation) -> tuple[float, float] | None:
    """Return the number without and with the edits; None for classes and tokens."""
    if not explanation.is_number or explanation.base is None:
        return None
    before, now = (followed(explanation, base_logits(one)).item() for one in (explanation.base, explanation))
    return before, now


def save_figure(
    explanation: Explanation,
    kind: str,
    path: Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    method: Method = "erase",
) -> None:
    """Write one of `FAMILIES`; `layer` and `head` are counted from 1, as the flags of the command line are."""
    fs.check_suffix(path)
    if kind not in FAMILIES:
        raise UsageError(f"there is no figure called {kind!r}", f"one of: {', '.join(FAMILIES)}")
    arguments = {"attention": (layer, head), "alignment": (layer, head), "attribution": (method,)}.get(kind, ())
    fs.save(getattr(ExplanationPlots(explanation, first=1), kind)(*arguments), path)


def attention_png(explanation: Explanation) -> bytes:
    """Return a PNG of the cross-attention of a translation, or of the self-attention of other models."""
    crosses = any(step.block == "cross" for step in explanation.records.steps.values())
    figure = ExplanationPlots(explanation).attention(block="cross" if crosses else "self")
    buffer = BytesIO()
    with fs.style():
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
