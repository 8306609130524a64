"""A figure of what words weigh: the text with its words marked, the heaviest words as bars, and the test.

Orange and a full underline speak for the answer, blue and a dotted underline against it; the bars carry their
numbers. The scores come from `attribute.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.explain.figures import style as fs
from glassformer.explain.streams import Stream

WIDTH, EDGE, LINE = 6.6, 0.12, 0.25
POINTS = 10.0
MOST_BARS = 10
METHODS = {"erase": "each word erased alone", "integrated_gradients": "integrated gradients"}


@dataclass(frozen=True)
class Word:
    """A word of a stream with the sum of its tokens' scores; `gap`: "", " " or a line break before it."""

    text: str
    score: float
    gap: str


def draw_attribution(streams: Sequence[Stream], found: dict[str, Any]) -> Any:
    """The figure of an `Attribution` in JSON form."""
    with fs.style():
        return _draw([(s.name, words_of(s, found["scores"][s.name])) for s in streams], found)


def words_of(stream: Stream, scores: Sequence[float]) -> list[Word]:
    """The words of a stream with their scores, in the order of the text."""
    words: list[Word] = []
    end = 0
    for i, text in enumerate(stream.word_texts):
        places = [place for place, word in enumerate(stream.words) if word == i]
        spans = [span for span in (stream.spans[place] for place in places) if span is not None]
        start = min((span[0] for span in spans), default=end)
        before = stream.text[end : start + 1]  # with its first character: a token may begin with its space
        spaced = not spans or any(character.isspace() for character in before)
        gap = "\n" if "\n" in before else " " if spaced else ""
        words.append(Word(text, float(sum(scores[place] for place in places)), gap if words else ""))
        end = max((span[1] for span in spans), default=end)
    return words


def _draw(streams: list[tuple[str, list[Word]]], found: dict[str, Any]) -> Any:
    probe = fs.new_figure(WIDTH, 4, "", "")
    laid_out = [(name, list(_lines(probe, words))) for name, words in streams]
    heaviest = sorted(((w, name) for name, words in streams for w in words), key=lambda x: -abs(x[0].score))
    strongest = abs(heaviest[0][0].score) if heaviest else 0.0
    heaviest = [(w, name) for w, name in heaviest[:MOST_BARS] if abs(w.score) > 0.005 * strongest]
    several = len(streams) > 1
    n_lines = sum(len({line for _, line, _ in places}) + 1.1 * several for _, places in laid_out)
    bars = 0.05 + 0.2 * len(heaviest) if heaviest else 0.0
    foot = _test_words(found)
    height = 0.8 + LINE * n_lines + bars + 0.19 * len(foot) + 0.3
    target, foil = found["target"], found["foil"]
    title = f"What speaks for “{_bare(target)}”" + (f" rather than “{_bare(foil)}”" if foil else "")
    subtitle = (
        f"{found['quantity']} = {_signed(found['value'])}; all words erased: "
        f"{_signed(found['baseline_value'])}; {METHODS[found['method']]}"
    )
    figure = fs.new_figure(WIDTH, height, title, subtitle)
    top = 0.8
    for name, places in laid_out:
        if several:
            figure.text(EDGE / WIDTH, 1 - (top + 0.02) / height, name, fontsize=9, color=fs.QUIET, va="center")
            top += LINE * 0.9
        for word, line, (left, width) in places:
            _mark_word(figure, word, (left, top + LINE * line, width), strongest or 1.0)
        top += LINE * (max((line for _, line, _ in places), default=-1) + 1.2)
    if heaviest:
        _bars(figure, heaviest if several else [(w, "") for w, _ in heaviest], top)
    for i, sentence in enumerate(foot):
        at = (0.12 + 0.19 * (len(foot) - 1 - i)) / height
        figure.text(EDGE / WIDTH, at, sentence, fontsize=8.5, color=fs.QUIET, va="center", parse_math=False)
    return fs.finish(figure)


def _lines(figure: Any, words: Sequence[Word]) -> Iterator[tuple[Word, int, tuple[float, float]]]:
    """Break words into lines: each word with the number of its line, its left edge and its width."""
    space = 0.055
    left, line = EDGE, 0
    for word, width in zip(words, fs.text_width(figure, [w.text for w in words], POINTS), strict=True):
        before = space if word.gap == " " else 0.012 if word.gap == "" else 0.0
        full = left + before + width > WIDTH - EDGE
        if left > EDGE and (full or word.gap == "\n"):
            left, line, before = EDGE, line + 1, 0.0
        yield word, line, (left + before, width)
        left += before + width


def _mark_word(figure: Any, word: Word, place: tuple[float, float, float], strongest: float) -> None:
    """Write a word at (left, top, width) in inches on a ground as deep as its score, with a line under it;
    a word of no score at all, such as one not read yet, is written in grey."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    across, down = figure.get_size_inches()
    left, top, width = place
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
        fontsize=POINTS,
        va="center_baseline",
        parse_math=False,
        color=fs.PAPER if depth > 0.72 else fs.INK if word.score else fs.QUIET,
    )


def _bars(figure: Any, heaviest: Sequence[tuple[Word, str]], top: float) -> None:
    """The heaviest words as bars from zero, each with its number; bars against are hatched."""
    names = [fs.printable(word.text) + (f"  ({name})" if name else "") for word, name in heaviest]
    scores = np.array([word.score for word, _ in heaviest])
    margin = EDGE + 0.1 + max(fs.text_width(figure, names, 9.0))
    margin = min(margin, 2.6)
    axes = fs.inset(figure, margin, top + 0.05, WIDTH - margin - 0.5, 0.2 * len(heaviest))
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


def _test_words(found: dict[str, Any]) -> list[str]:
    """How faithful the ranking is, beside random ones, and the error of the sum."""
    sentences = []
    for key, what in (
        ("comprehensiveness", "Fall when the heaviest words are erased"),
        ("sufficiency", "Fall when only they are kept"),
    ):
        test = found[key]
        low, high = _signed(test["random_low"]), _signed(test["random_high"])
        sentences.append(
            f"{what}: {_signed(test['value'])}. Mean of {found['n_random']} random rankings: "
            f"{_signed(test['random_mean'])} (95% between {low} and {high})."
        )
    if found["completeness"] is not None:
        error = found["completeness"]
        sentences.append(
            f"The scores miss their sum by {100 * error['relative']:.1f}% of the range, with {error['n_steps']} steps."
        )
    return sentences


def _bare(candidate: dict[str, Any]) -> str:
    """A token as a person writes it: without the mark for the space before it."""
    return str(candidate["piece"]).removeprefix("▁") or "␣"


def _signed(value: float) -> str:
    """Three significant digits with a real sign."""
    text = f"{abs(value):.3g}" if abs(value) < 1000 else f"{abs(value):.0f}"
    return ("−" if value < 0 and float(text) else "+" if value > 0 and float(text) else "") + text
