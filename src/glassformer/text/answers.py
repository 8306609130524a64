"""Answers of each kind of model, as dictionaries and as lines, and texts with [MASK]. No torch is imported here."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.errors import DataError, DivergedError, UsageError
from glassformer.text.decision import Decision, number_text
from glassformer.text.tags import OUTSIDE, spans_of
from glassformer.text.tokenizer import MASK, Tokenizer
from glassformer.text.words import ReadText
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)

N_PREDICTIONS = 5
"""Predicted tokens for each [MASK] where `--top-k` names no other number."""
PREDICTED_TOGETHER = 256
"""Texts of a stream that are predicted at a time."""


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterable[tuple[list[int], list[str]]]:
    """Yield the ids of each text, and the surface form of each token; "" if the tokenizer has no n-grams."""
    if tokenizer.ngrams:
        return tokenizer.encode_with_surfaces(texts)
    return ((ids, [""] * len(ids)) for ids in tokenizer.encode_batch(texts))


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
    (ids, words), *rest = encode(tokenizer, [part for _, part in parts(tokenizer, text)])
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
    p = check_probabilities(p / p.sum(axis=1, keepdims=True))
    best = (-p).argsort(axis=1, kind="stable")[:, :k]
    return [
        [{"token": written(tokenizer, int(ids[i])), "probability": float(row[i])} for i in tokens]
        for row, tokens in zip(p, best, strict=True)
    ]


def unknown_mark(tokenizer: Tokenizer, ids: Sequence[int]) -> dict[str, int]:
    """Return what an answer says of a text with tokens that the vocabulary lacks."""
    n = tokenizer.n_unknown(ids)
    return {"unknown": n} if n else {}


def warn_without_mask(texts: Sequence[str]) -> None:
    """Log how many texts have nothing to fill in."""
    if n := sum(MASK not in text for text in texts):
        logger.warning(f"{n} of {len(texts)} texts hold no {MASK}, so there is nothing to fill in")


def checked_texts(texts: Any) -> list[str]:
    """Return the texts to predict as a list.

    Raises:
        DataError: what came is not a text, or not a list of texts.
    """
    if isinstance(texts, str):
        return [texts]
    hint = 'give a text, or a list of texts: predict(["one", "two"])'
    if isinstance(texts, bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        raise DataError(f"expected a text or a list of texts, not {type(texts).__name__}", hint)
    listed = list(texts)
    for number, text in enumerate(listed, start=1):
        if not isinstance(text, str):
            raise DataError(f"text {number} is of type {type(text).__name__}, not a string", hint)
    return listed


def checked_lines(lines: Any) -> Iterable[str]:
    """Return the texts of a stream as they came; raise DataError for a single text, and for what yields none."""
    if isinstance(lines, str | bytes | bytearray | Mapping) or not isinstance(lines, Iterable):
        hint = "give a list, a file or a generator of texts; predict answers a single one"
        raise DataError(f"expected texts one after another, not {type(lines).__name__}", hint)
    return lines


FROM_TEXT = frozenset({"label", "labels", "number", "tags", "translation"})
"""Answers that say nothing of a text that is empty."""


def empty_message(n_empty: int, n: int) -> str:
    """Return how many texts are empty."""
    return f"{n_empty:,} of {n:,} texts {'is' if n_empty == 1 else 'are'} empty"


def cut_message(n_cut: int, n: int, max_len: int) -> str:
    """Return a sentence about texts of which the model has not read all; empty if there are none."""
    are, were = ("is", "was") if n_cut == 1 else ("are", "were")
    return f"{n_cut:,} of {n:,} texts {are} longer than {counted(max_len, 'tokens')} and {were} cut" if n_cut else ""


def warn_of_cut(answers: Sequence[dict[str, Any]], max_len: int) -> int:
    """Log what a reader of the answers must know; return how many were to texts that were cut."""
    return sum("truncated" in answer for answer in warn_at_end(iter(answers), max_len))


def warn_at_end(answers: Iterator[dict[str, Any]], max_len: int) -> Iterator[dict[str, Any]]:
    """Yield the answers, and log after the last how many texts were empty, were cut, or hold unknown tokens."""
    n, seen = 0, Counter[str]()
    for answer in answers:
        n, unknown = n + 1, answer.get("unknown", 0)
        empty = not FROM_TEXT.isdisjoint(answer) and not str(answer.get("text", "-")).strip()
        seen.update(empty=empty, cut="truncated" in answer, unknown=unknown, texts=unknown > 0)
        yield answer
    if seen["empty"]:
        logger.warning(empty_message(seen["empty"], n))
    if seen["cut"]:
        logger.warning(cut_message(seen["cut"], n, max_len))
    if seen["unknown"]:
        hold, tokens = "holds" if seen["texts"] == 1 else "hold", counted(seen["unknown"], "tokens")
        logger.warning(f"{seen['texts']:,} of {n:,} texts {hold} {tokens} unknown to the model")


def check_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Return the probabilities; raise DivergedError if one is NaN, as where finite weights are too large to compute."""
    if np.isnan(probabilities).any():
        raise DivergedError("the model's logits are NaN, so it has no answer", "use an earlier checkpoint")
    return probabilities


Names = Sequence[str]


def class_answer(text: Mapping[str, str], outputs: np.ndarray, names: Names, decision: Decision) -> dict[str, Any]:
    """Return the most probable class of a text, or pair of texts, and the probability of each, from those (C,)."""
    named = dict(zip(names, outputs.tolist(), strict=True))
    best = names[int(outputs.argmax())]
    return {**text, "label": best, "probability": named[best], "probabilities": named}


def labels_answer(text: Mapping[str, str], outputs: np.ndarray, names: Names, decision: Decision) -> dict[str, Any]:
    """Return the labels of a text, or pair of texts, in the order of the model, and the probability of each label."""
    kept = decision.answered(outputs[None])[0]
    named = dict(zip(names, outputs.tolist(), strict=True))
    return {**text, "labels": [name for name, k in zip(names, kept, strict=True) if k], "probabilities": named}


def number_answer(text: Mapping[str, str], outputs: np.ndarray, names: Names, decision: Decision) -> dict[str, Any]:
    """Return the number of a text, or pair of texts."""
    return {**text, "number": float(outputs)}


def tags_answer(read: ReadText, outputs: np.ndarray, names: Names, decision: Decision) -> dict[str, Any]:
    """Return the most probable tags of a text's words, and the spans that they mark, from probabilities (W, C).

    That of a span is the product of its words': given the text, tags are independent in a model that tags each word by
    itself.
    """
    tags, shares = [names[int(i)] for i in outputs.argmax(axis=-1)], outputs.max(axis=-1, initial=0.0)
    marked: list[dict[str, Any]] = []
    for span in spans_of(tags):
        start, end = read.spans[span.start][0], read.spans[span.end - 1][1]
        row = {"start": start, "end": end, "label": span.label, "text": read.source[start:end]}
        marked.append(row | {"probability": float(np.prod(shares[span.start : span.end]))})
    return {"text": read.source, "words": [*read.words], "tags": tags, "spans": marked}


def vector_answer(text: Mapping[str, str], outputs: np.ndarray, names: Names, decision: Decision) -> dict[str, Any]:
    """Return the vector of a text."""
    return {**text, "vector": outputs.tolist()}


DETAILS = frozenset({"mean_log_probability", "tokens", "words"})
"""What an answer says of the tokens of a translation, besides the mean of their probabilities."""
MARKS = frozenset({"text", "pair", "truncated", "unknown", "unfinished", "probabilities", "n_best"})
"""What an answer says besides the answer: its text, marks that are counted at the end, and what is asked for."""


def answer_columns(answer: Mapping[str, Any], probabilities: bool = False, prefix: str = "") -> dict[str, Any]:
    """Return an answer as the columns of a table, under its own names, without its text and marks.

    Of several translations the others are `translation_2`, `score_2` and so on; with `probabilities` that of each class
    is `probability_CLASS`. What a language model writes is `continuation`, for `text` is usually its prompt's column.

    Raises:
        UsageError: the answer has no probabilities of classes, and they were asked for.
    """
    if "prompt" in answer:
        return {f"{prefix}continuation": answer["text"]}
    left_out = MARKS | DETAILS if "mean_log_probability" in answer else MARKS
    columns = {name: value for name, value in answer.items() if name not in left_out}
    for rank, other in enumerate(answer.get("n_best", ())[1:], start=2):
        columns |= {f"{name}_{rank}": value for name, value in other.items() if name not in DETAILS}
    if probabilities and "probabilities" not in answer:
        raise UsageError("probabilities of the classes are of classifiers, and these answers have none", "leave it out")
    if probabilities:
        columns |= {f"probability_{name}": value for name, value in answer["probabilities"].items()}
    return {f"{prefix}{name}": value for name, value in columns.items()}


def class_lines(answer: dict[str, Any]) -> list[str]:
    """Return a class and its probability; where no class is answered, an empty text and that of the best."""
    return [f"{answer['label'] or ''}\t{answer['probability']:.4f}"]


def labels_lines(answer: dict[str, Any]) -> list[str]:
    """Return the labels of a text and their probabilities, each separated by "; "."""
    shares = (f"{answer['probabilities'][label]:.4f}" for label in answer["labels"])
    return ["\t".join(["; ".join(answer["labels"]), "; ".join(shares)])]


def number_lines(answer: dict[str, Any]) -> list[str]:
    """Return the number of a text as a line."""
    return [number_text(answer["number"])]


def tags_lines(answer: dict[str, Any]) -> list[str]:
    """Return the spans of a text with their labels, separated by tabs; where it has none, its words with their tags."""
    if answer["spans"]:
        return ["\t".join(f"{span['text']} [{span['label']} {span['probability']:.4f}]" for span in answer["spans"])]
    if set(answer["tags"]) <= {OUTSIDE}:
        return [""]
    return [" ".join(f"{word}/{tag}" for word, tag in zip(answer["words"], answer["tags"], strict=True))]


SHOWN = 4
"""Numbers of a vector that are shown on a line; JSON has all."""


def vector_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return the first numbers of the vector of a text, and how many there are."""
    vector = answer["vector"]
    numbers = " ".join(f"{x:.4f}" for x in vector[:SHOWN])
    return [f"{numbers} … ({len(vector)} numbers; --json has all)"]


def masked_lines(answer: dict[str, Any]) -> list[str]:
    """Return the text with the first predictions filled in, and the further ones by masked token."""
    return ["\t".join([answer["filled"], *(" ".join(p["token"] for p in one) for one in answer["guesses"])])]


def translation_lines(answer: dict[str, Any]) -> list[str]:
    """Return a translation, or the rank, score and text of each of several, separated by tabs.

    After it comes the mean probability of its tokens where the answer has it.
    """
    rows = [{"translation": answer["translation"]}]
    if "n_best" in answer:
        rows = [{"rank": i, "score": f"{h['score']:.4f}"} for i, h in enumerate(answer["n_best"], start=1)]
        rows = [row | {"translation": h["translation"]} for row, h in zip(rows, answer["n_best"], strict=True)]
    means = [h.get("mean_probability") for h in answer.get("n_best", [answer])]
    shown = [row if mean is None else row | {"mean": f"{mean:.4f}"} for row, mean in zip(rows, means, strict=True)]
    return ["\t".join(map(str, row.values())) for row in shown]


def mean_probability(log_probs: Sequence[float]) -> dict[str, float]:
    """Return the mean log-probability of the tokens of a translation, and its exponential, a geometric mean.

    The end of the translation is one of them. An empty text, which is not decoded, has no token: 0 and 1.
    """
    mean = math.fsum(log_probs) / max(1, len(log_probs))
    return {"mean_log_probability": mean, "mean_probability": math.exp(mean)}


def token_probabilities(tokenizer: Tokenizer, ids: Sequence[int], log_probs: Sequence[float]) -> dict[str, Any]:
    """Return the probability of each token of a translation given those before it, and of each word.

    That of a word is the product of its tokens'. Words are what is between spaces; a token belongs to the word that its
    last character is in. `log_probs` are one longer than `ids` where the translation ended: with the end token's.
    """
    names = tokenizer.of_targets.tokens([*ids, tokenizer.of_targets.eos_id])
    tokens = [{"token": name, "probability": math.exp(p)} for name, p in zip(names, log_probs, strict=False)]
    text = tokenizer.decode(ids)
    words = text.split()
    ends = [_n_common(tokenizer.decode(ids[:n]), text) for n in range(len(ids) + 1)]
    totals = [0.0] * len(words)
    for i, log_prob in enumerate(log_probs[: len(ids)], start=1):
        # Bytes that are a part of a character stand for that character, which a later token completes.
        end = next((end for end in ends[i:] if end > ends[i - 1]), ends[-1])
        if words:
            totals[max(0, len(text[:end].split()) - 1)] += log_prob
    shares = [{"word": word, "probability": math.exp(total)} for word, total in zip(words, totals, strict=True)]
    return mean_probability(log_probs) | {"tokens": tokens, "words": shares}


def _n_common(a: str, b: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def continuation_lines(answer: dict[str, Any]) -> list[str]:
    """Return a prompt with its continuation."""
    return [answer["prompt"] + answer["text"]]


ANSWERS = {
    "classifier": (class_answer, class_lines),
    "multilabel_classifier": (labels_answer, labels_lines),
    "regressor": (number_answer, number_lines),
    "tagger": (tags_answer, tags_lines),
    "text_embedder": (vector_answer, vector_lines),
    "masked_language_model": (None, masked_lines),
    "translator": (None, translation_lines),
    "language_model": (None, continuation_lines),
}
"""By the kind of model (`Task.explain_as`): the answer from the outputs of an encoder, and its lines."""
