"""Answers of each kind of model, as dictionaries and as lines, and texts with [MASK]. No torch is imported here."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.errors import DivergedError
from glassformer.text.decision import Decision, number_text
from glassformer.text.tags import OUTSIDE, TagSpan, spans_of
from glassformer.text.tokenizer import MASK, Tokenizer
from glassformer.text.words import ReadText
from glassformer.utils.formatting import counted

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
    """Yield the answers, and log after the last how many texts were empty, were cut, or hold unknown tokens."""
    seen = Counter[str]()
    for answer in answers:
        unknown, empty = answer.get("unknown", 0), not FROM_TEXT.isdisjoint(answer) and not answer["text"].strip()
        seen.update(n=1, empty=empty, cut="truncated" in answer, unknown=unknown, texts=unknown > 0)
        yield answer
    n, read = seen["n"], f"read with {counted(seen['unknown'], 'tokens')} unknown to the model"
    empty, cut = of_texts(seen["empty"], n, "empty"), cut_message(seen["cut"], n, max_len)
    for message in filter(None, (empty, cut, of_texts(seen["texts"], n, read))):
        logger.warning(message)


def encoder_answer(
    kind: str, given: Any, outputs: np.ndarray, names: Sequence[str], decision: Decision
) -> dict[str, Any]:
    """Return the answer of an encoder of some kind to a text or a pair of texts, from its outputs.

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
