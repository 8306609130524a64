"""How the outputs of a trained model become answers: what is stored with its weights, and what a caller requests.

No torch is imported here.
"""

from __future__ import annotations

import logging
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from msgspec import Meta

from glassformer.config.recipes import convert, limited_kinds
from glassformer.errors import CheckpointError, DivergedError, UsageError
from glassformer.text.tokenizer import MASK, Tokenizer
from glassformer.text.words import OUTSIDE, ReadText, TagSpan, spans_of
from glassformer.utils.formatting import counted
from glassformer.utils.safe_read import from_json

THRESHOLD = 0.5
"""From this probability on a label is answered where no threshold was chosen."""
COLDEST, HOTTEST = 0.1, 10.0
"""Bounds of a temperature."""
LARGEST = sys.float_info.max
LEAST = 1e-16
"""What stands for a probability of 0, which has no logarithm: half of the spacing of floats below 1."""


@dataclass(frozen=True)
class Decision:
    """What is chosen on the validation split and applied to the probabilities; or the scale of numbers.

    Attributes:
        thresholds: of several labels the probability of each from which it is answered; None for classes, of which the
            most probable is answered.
        temperature: what the logits of classes are divided by where calibrated probabilities are requested (Guo et al.
            2017, 4.2); None where none was fitted.
        mean, sd: mean and standard deviation of the training numbers, in units of which a regressor computes; None for
            classes.
    """

    thresholds: list[Annotated[float, Meta(ge=0, le=1)]] | None = None
    temperature: Annotated[float, Meta(ge=COLDEST, le=HOTTEST)] | None = None
    mean: Annotated[float, Meta(ge=-LARGEST, le=LARGEST)] | None = None
    sd: Annotated[float, Meta(gt=0, le=LARGEST)] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Any, labels: Sequence[str] | None, where: Path | str) -> Decision:
        """Read what `to_json` returned; raise CheckpointError for anything else."""
        decision = from_json(cls, value or {}, where)
        if decision.thresholds is not None and len(decision.thresholds) != len(labels or ()):
            raise CheckpointError(f"{where}: expected a threshold from 0 to 1 for each of {len(labels or ())} labels")
        if (decision.mean is None) != (decision.sd is None):
            raise CheckpointError(f"{where}: expected a mean, and a standard deviation above 0, of the numbers")
        return decision

    @property
    def scale(self) -> tuple[float, float]:
        """Return mean and standard deviation of the training numbers; 0 and 1 where there are none."""
        return (0.0 if self.mean is None else self.mean), (1.0 if self.sd is None else self.sd)

    def numbers(self, outputs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return the outputs of a regressor in the units of its training numbers."""
        return self.scale[0] + self.scale[1] * np.asarray(outputs, np.float64)

    def standardised(self, numbers: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return what a regressor should output for numbers: their distance from the mean in standard deviations."""
        return (np.asarray(numbers, np.float64) - self.scale[0]) / self.scale[1]

    def answered(self, probabilities: Float[np.ndarray, "... L"]) -> Bool[np.ndarray, "... L"]:
        """Return which of several labels are answered, by their probabilities."""
        return probabilities >= np.array(THRESHOLD if self.thresholds is None else self.thresholds)


def at_temperature(probabilities: Float[np.ndarray, "... C"], temperature: float) -> Float[np.ndarray, "... C"]:
    """Return the softmax of the logarithms of probabilities divided by a temperature.

    Those of an ensemble are the mean of its members', so that it is the ensemble that is calibrated.
    """
    z = np.log(np.maximum(probabilities, LEAST)) / temperature
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


KINDS = ("classifier", "multilabel_classifier")
"""Kinds of models, as a task names its own, whose answers have probabilities of labels."""
RULES = ("calibrated", "min_probability")
"""Options of `predict` for them, which are not of decoding."""


@dataclass(frozen=True)
class AnswerRule:
    """What a caller may request of the answers of a classifier; without it they pass unchanged.

    Attributes:
        decision: what was chosen on the validation split.
        calibrated: whether probabilities are those at the temperature of the decision.
        min_probability: below this probability a text has no class, and a label is not answered.
    """

    decision: Decision
    calibrated: bool = False
    min_probability: Annotated[float, Meta(ge=0, le=1)] | None = None

    @classmethod
    def of(cls, kind: str | None, decision: Decision, options: Mapping[str, Any]) -> tuple[AnswerRule, dict[str, Any]]:
        """Return the rule that some of the options name, of a model of some kind, and the other options.

        Raises:
            UsageError: the model is of another kind, has no temperature, or a value is out of its interval.
        """
        types = limited_kinds(cls)
        given = {name: convert(options[name], types[name], name, "options") for name in RULES if name in options}
        if kind not in KINDS and (name := next((name for name, value in given.items() if value), None)):
            raise UsageError(f"{name} is for classifiers, whose answers have probabilities", "leave it out")
        if given.get("calibrated") and decision.temperature is None:
            hint = "" if kind == KINDS[1] else "train with 50 validation texts or more, and load one run; or "
            message = "this model has no temperature that was fitted to its probabilities"
            raise UsageError(message, f"{hint}leave out --calibrated")
        return cls(decision, **given), {name: value for name, value in options.items() if name not in RULES}

    def apply(self, answers: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Return the answers under this rule, one by one; as they came where it changes nothing."""
        return map(self._applied, answers) if self.calibrated or self.min_probability is not None else answers

    def _applied(self, answer: dict[str, Any]) -> dict[str, Any]:
        shares, least = answer["probabilities"], self.min_probability or 0.0
        if self.calibrated and (temperature := self.decision.temperature):
            found = at_temperature(np.array([*shares.values()]), temperature)
            shares = dict(zip(shares, found.tolist(), strict=True))
        if (label := answer.get("label")) is None:
            kept = [label for label in answer["labels"] if shares[label] >= least]
            return answer | {"labels": kept, "probabilities": shares}
        # The class that was most probable stays it: a temperature keeps the order, but rounding may make two equal.
        kept = label if shares[label] >= least else None
        return answer | {"label": kept, "probability": shares[label], "probabilities": shares}


DIGITS, EXACT = 6, 15
"""Significant digits of a number in a line; one whose whole part has as many, up to 15, has two behind the point."""


def number_text(value: float) -> str:
    """Write a number for a line or a page, to `DIGITS` significant digits, and never less than its whole part."""
    whole = len(f"{abs(value):.0f}") if math.isfinite(value) else 0
    return f"{value:.{whole + 2 if DIGITS <= whole <= EXACT else DIGITS}g}"


def written_number(value: float) -> str:
    """Write a number as `number_text` does, with a minus sign in the place of a hyphen, as an explanation has it."""
    return number_text(value).replace("-", "−")


logger = logging.getLogger(__name__)

N_PREDICTIONS = 5
"""Predicted tokens for each [MASK] where `--top-k` names no other number."""
PREDICTED_TOGETHER = 256
"""Texts of a stream that are predicted at a time."""


def parts(tokenizer: Tokenizer, text: str) -> list[tuple[int, str]]:
    """Return the parts of a text before, between and after its [MASK] as they are encoded, and their offsets."""
    found, start = [], 0
    *before, last = text.split(MASK)
    for part in before:
        # The space before a word belongs to the word, except in a model of characters.
        found.append((start, part if tokenizer.kind == "char" else part.removesuffix(" ")))
        start += len(part) + len(MASK)
    return [*found, (start, last)]


def encode_masked(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[str]]:
    """Return the ids and the surface forms of a text in which [MASK] stands for a token."""
    (ids, words), *rest = tokenizer.read([part for _, part in parts(tokenizer, text)])
    for more_ids, more_words in rest:
        ids, words = [*ids, tokenizer.mask_id, *more_ids], [*words, "", *more_words]
    return ids, words


def filled(text: str, tokens: Sequence[str]) -> str:
    """Return a text with the first of its [MASK] replaced, one by each of the tokens."""
    for token in tokens:
        before, _, text = text.partition(MASK)
        text = before + token + text
    return text


def written(tokenizer: Tokenizer, token: int) -> str:
    """Return a token as it is written in a text."""
    return tokenizer.decode([token]).strip() or tokenizer.tokens([token])[0]


def top_predictions(tokenizer: Tokenizer, logits: np.ndarray, k: int) -> list[list[dict[str, Any]]]:
    """Return for each masked token the k most probable tokens, {"token", "probability"}, without special tokens.

    `logits` (n, V) are those of the masked tokens.
    """
    ids = np.delete(np.arange(logits.shape[1]), tokenizer.without_text)
    logits = logits[:, ids].astype(np.float64)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if np.isnan(p).any():  # as where finite weights are too large to compute
        raise DivergedError("the model's logits are NaN, so it has no answer", "train again with a lower --lr")
    best = (-p).argsort(axis=1, kind="stable")[:, :k]
    return [
        [{"token": written(tokenizer, int(ids[i])), "probability": float(row[i])} for i in tokens]
        for row, tokens in zip(p, best, strict=True)
    ]


def warn_without_mask(texts: Sequence[str]) -> None:
    """Log how many texts have nothing to fill in."""
    if n := sum(MASK not in text for text in texts):
        logger.warning(f"{n} of {len(texts)} texts hold no {MASK}, so there is nothing to fill in")


FROM_TEXT = frozenset({"label", "labels", "number", "tags", "translation"})
"""Answers that say nothing of a text that is empty."""


def of_texts(n: int, n_all: int, are: str) -> str:
    """Return how many texts are what; "" where none is."""
    return f"{n:,} of {n_all:,} texts {'is' if n == 1 else 'are'} {are}" if n else ""


def cut_message(n_cut: int, n: int, max_len: int) -> str:
    """Return a sentence about texts of which the model has not read all; empty if there are none."""
    return of_texts(n_cut, n, f"longer than {counted(max_len, 'tokens')}, and cut")


def warn_of_cut(answers: Sequence[dict[str, Any]], max_len: int) -> int:
    """Log what a reader of the answers must know; return how many were to texts that were cut."""
    return sum("truncated" in answer for answer in warn_at_end(iter(answers), max_len))


def warn_at_end(answers: Iterator[dict[str, Any]], max_len: int) -> Iterator[dict[str, Any]]:
    """Yield the answers, and log after the last how many were empty, cut, of unknown tokens, or unfinished."""
    seen = Counter[str]()
    for answer in answers:
        unknown, empty = answer.get("unknown", 0), not FROM_TEXT.isdisjoint(answer) and not answer["text"].strip()
        seen.update(n=1, empty=empty, cut="truncated" in answer, unknown=unknown, texts=unknown > 0)
        seen["long"] += "unfinished" in answer
        yield answer
    n, read = seen["n"], f"read with {counted(seen['unknown'], 'tokens')} unknown to the model"
    empty, cut = of_texts(seen["empty"], n, "empty"), cut_message(seen["cut"], n, max_len)
    limit = of_texts(seen["long"], n, "translated up to the length limit; a larger --max-new-tokens may help")
    for message in filter(None, (empty, cut, of_texts(seen["texts"], n, read), limit)):
        logger.warning(message)


def encoder_answer(kind: str, given: Any, outputs: Any, names: Sequence[str], decision: Decision) -> dict[str, Any]:
    """Return the answer of an encoder of some kind to a text or a pair of texts, from outputs.

    Of classes, (C,), the most probable one; of several labels those from their thresholds on, in the order of the
    model; of a tagger, (W, C), the most probable tag of each word, and the spans that these mark. The probability of a
    span is the product of its words': given the text, tags are independent in a model that tags each word by itself.
    """
    match kind:
        case "regressor":
            return {**given, "number": float(outputs)}
        case "text_embedder":
            return {**given, "vector": outputs.tolist()}
        case "tagger":
            tags, shares = [names[int(i)] for i in outputs.argmax(axis=-1)], outputs.max(axis=-1, initial=0.0)
            spans = [_marked(given, span, shares) for span in spans_of(tags)]
            return {"text": given.source, "words": [*given.words], "tags": tags, "spans": spans}
        case "multilabel_classifier":
            found = {"labels": [name for name, kept in zip(names, decision.answered(outputs), strict=True) if kept]}
        case _:
            best = int(outputs.argmax())
            found = {"label": names[best], "probability": float(outputs[best])}
    return {**given, **found, "probabilities": dict(zip(names, outputs.tolist(), strict=True))}


def _marked(read: ReadText, span: TagSpan, shares: np.ndarray) -> dict[str, Any]:
    """Return a span of words as one of characters."""
    start, end = read.spans[span.start][0], read.spans[span.end - 1][1]
    p = float(np.prod(shares[span.start : span.end]))
    return {"start": start, "end": end, "label": span.label, "text": read.source[start:end], "probability": p}


MARKS = frozenset({"text", "pair", "prompt", "truncated", "unknown", "unfinished", "probabilities", "n_best"})
"""What an answer says besides the answer: its text, marks that are counted at the end, and what is asked for."""


def answer_columns(answer: Mapping[str, Any], probabilities: bool = False, prefix: str = "") -> dict[str, Any]:
    """Return an answer as the columns of a table, under its own names, without its text.

    Of several translations the others are `translation_2`, `score_2` and so on; with `probabilities` that of each class
    is `probability_CLASS`. What a language model writes is `continuation`, for `text` is usually its prompt's column.
    Whether the text was cut is `truncated`, and whether a translation hit the length limit `unfinished`.
    """
    columns = {name: value for name, value in answer.items() if name not in MARKS}
    if "prompt" in answer:
        columns["continuation"] = answer["text"]
    for rank, other in enumerate(answer.get("n_best", ())[1:], start=2):
        columns |= {f"{name}_{rank}": value for name, value in other.items()}
    if probabilities:
        columns |= {f"probability_{name}": value for name, value in answer["probabilities"].items()}
    columns["truncated"] = "truncated" in answer
    if "translation" in answer:
        columns["unfinished"] = "unfinished" in answer
    return {f"{prefix}{name}": value for name, value in columns.items()}


def answer_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return an answer as lines, its fields separated by tabs.

    Of a class also its probability, of a text without one that of the best; of a tagger the spans, or where there are
    none the tags of words; of [MASK] the text with the first predictions, and the further ones by masked token; of
    several translations their ranks and scores; of any other model what is plain in its answer.
    """
    match answer:
        case {"label": label, "probability": p}:
            return [f"{label or ''}\t{p:.4f}"]
        case {"labels": labels, "probabilities": p}:
            return ["\t".join(["; ".join(labels), "; ".join(f"{p[label]:.4f}" for label in labels)])]
        case {"number": number}:
            return [number_text(number)]
        case {"spans": [_, *_] as spans}:
            return ["\t".join(f"{span['text']} [{span['label']} {span['probability']:.4f}]" for span in spans)]
        case {"words": words, "tags": tags}:
            tagged = " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
            return ["" if set(tags) <= {OUTSIDE} else tagged]
        case {"vector": vector}:
            shown = " ".join(f"{x:.4f}" for x in vector[:4])
            return [f"{shown} … ({len(vector)} numbers; --json has all)"]
        case {"filled": filled, "guesses": guesses}:
            return ["\t".join([filled, *(" ".join(guess["token"] for guess in one) for one in guesses)])]
        case {"n_best": ranked}:
            return [f"{i}\t{one['score']:.4f}\t{one['translation']}" for i, one in enumerate(ranked, start=1)]
        case {"translation": translation}:
            return [translation]
        case {"prompt": prompt, "text": text}:
            return [prompt + text]
    return ["\t".join(str(value) for value in answer.values() if isinstance(value, str | int | float))]
