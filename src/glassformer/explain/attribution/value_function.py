"""Define the quantity that an attribution explains, as a function of the words that are erased from the input.

A value function (the term of Shapley values) knows which tokens form a word, what replaces an erased one, and how to
evaluate many variants of the input in a batch. `methods.py` turns its values into scores.

Requests may come from a page, so nothing in them is trusted. The model is not called here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.capture.hooks import after_calls
from glassformer.explain.edits.measure import Measure, measure_of_answer, measure_of_difference
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import NUMBER, Candidate, Prediction
from glassformer.explain.request import MAX_PREFIX, Id, Request, ShortText
from glassformer.explain.streams import Stream, StreamName
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.tasks import Task
from glassformer.utils.console import announced

BATCH_TOKENS = 4096
"""Maximum tokens per batch: more is not faster on a CPU, since they do not fit in its caches."""
MAX_LOGITS = 1 << 26
"""Maximum logits per batch, a quarter of a gigabyte."""


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """The model's preference of a class or token (over another), or its number, as a function of the erased words.

    A difference of two logits is also that of their log-probabilities.

    Attributes:
        model: the model.
        ids: the input ids, (1, L) per stream: [text], or [source, target before the position].
        mask: True for the real source tokens, (1, S), or None.
        words: for each token of a stream the number of its word among the words of all streams, or -1: special tokens,
            padding, and what follows the explained position are never erased. In the order of `ids`.
        n_words: the number of words of all streams.
        position: None for a classifier; else the row of the logits that is explained, of a decoder the last of `ids`.
        measure: the quantity, of logits with one row.
        erase_id: the id that replaces an erased token.
        ngram_batch: the n-grams of the tokens, for a model that reads them; an erased token has none.
        masked: True for a masked language model.
    """

    model: nn.Module
    ids: list[Tensor]
    mask: Tensor | None
    words: dict[str, Int[np.ndarray, " L"]]
    n_words: int
    position: int | None
    measure: Measure
    erase_id: int
    ngram_batch: NgramBatch | None = None
    masked: bool = False

    def quantity(self, logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
        """Return the explained quantity from the logits of N variants."""
        return self.measure.of(logits[:, None])[:, 0]

    def erased_logits(
        self, erased: Sequence[Bool[np.ndarray, "N _"]], of: Callable[[Tensor], Tensor] = lambda logits: logits
    ) -> Tensor:
        """Return the logits (N, C) at the explained position of N variants, or a function of them, in batches.

        The variants are given by the erased tokens of each stream.
        """
        n_logits = 1 if self.position is None else self.embeddings[-1].weight.shape[0]
        size = max(1, min(BATCH_TOKENS, MAX_LOGITS // n_logits) // max(1, self.n_tokens))
        # Equal variants are evaluated once: a kernel may round two rows of a batch differently.
        distinct: dict[bytes, int] = {}
        rows = np.concatenate(erased, axis=1)
        row_of = torch.tensor([distinct.setdefault(row.tobytes(), len(distinct)) for row in rows])
        first = np.unique(row_of, return_index=True)[1]
        found = []
        with exact_no_grad(self.model):
            starts = range(0, len(first), size)
            for start in announced(starts, len(starts), "weighed the words in"):
                batch = [tokens[first[start : start + size]] for tokens in erased]
                found.append(of(self.logits(self.erased_ids(batch), ngram_batch=self._erased_ngrams(batch))))
        return torch.cat(found)[row_of]

    def logits(
        self, ids: Sequence[Tensor], vectors: Sequence[Tensor] | None = None, ngram_batch: NgramBatch | None = None
    ) -> Float[Tensor, "N C"]:
        """Return the logits at the explained position of N variants.

        Args:
            ids: (N, L) per stream.
            vectors: (N, L, D) per stream: embeddings to use instead of those of `ids`, before positions are added.
            ngram_batch: the n-grams of `ids`, for a model that reads them; `vectors` include them.
        """
        mask = None if self.mask is None else self.mask.expand(ids[0].shape[0], -1)
        with _replaced_embeddings(self.embeddings, vectors):
            if self.position is None:
                return exact_forward(self.model, ids[0], mask, *([] if ngram_batch is None else [ngram_batch]))
            if self.masked:
                selected = torch.zeros_like(ids[0], dtype=torch.bool)
                selected[:, self.position] = True
                return exact_forward(self.model, ids[0], mask, ngram_batch, selected)
            logits = exact_forward(self.model, *ids, *([] if len(ids) == 1 else [mask]))
            return logits[:, -1]

    @property
    def embeddings(self) -> list[TokenEmbedding]:
        """Return the embedding of each stream; one module may embed both."""
        names = ["embedding"] if len(self.ids) == 1 else ["src_embedding", "tgt_embedding"]
        return [cast(TokenEmbedding, getattr(self.model, name)) for name in names]

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens of one variant."""
        return sum(x.shape[1] for x in self.ids)

    def erased_ids(self, erased: Sequence[Bool[np.ndarray, "N _"]]) -> list[Tensor]:
        """Return the ids of N variants by stream, given the erased tokens of each."""
        masks = map(self._mask, erased)
        return [ids.masked_fill(mask, self.erase_id) for ids, mask in zip(self.ids, masks, strict=True)]

    def erased_embeddings(self, erased: Sequence[Bool[np.ndarray, "N _"]]) -> list[Float[Tensor, "N _ D"]]:
        """Return the embeddings of N variants by stream before positions, with n-grams and all else that is added."""
        found: list[Tensor] = []

        def keep(module: nn.Module, args: Any, _: Any, output: Tensor) -> Tensor:
            embedding = cast(TokenEmbedding, module)
            found.append(sum(args[2:], start=F.embedding(args[0], embedding.weight) * embedding.scale))
            return output

        with exact_no_grad(self.model), after_calls(dict.fromkeys(self.embeddings), keep):
            self.logits(self.erased_ids(erased), ngram_batch=self._erased_ngrams(erased))
        return found

    def _erased_ngrams(self, erased: Sequence[Bool[np.ndarray, "N _"]]) -> NgramBatch | None:
        """Return the n-grams of N variants: an erased token loses them, as a masked one does in training."""
        if self.ngram_batch is None:
            return None
        return replace(self.ngram_batch, index=self.ngram_batch.index.masked_fill(self._mask(erased[0]), 0))

    def _mask(self, erased: Bool[np.ndarray, "N L"]) -> Bool[Tensor, "N L"]:
        return torch.from_numpy(np.ascontiguousarray(erased)).to(self.ids[0].device)

    def token_masks(self, erased: Bool[np.ndarray, "N W"]) -> list[Bool[np.ndarray, "N _"]]:
        """Return the erased tokens of each stream, given the erased words."""
        # A last column of False, for the tokens of word -1.
        padded = np.concatenate([erased, np.zeros((len(erased), 1), dtype=bool)], axis=1)
        return [padded[:, word_of] for word_of in self.words.values()]

    def values(self, erased: Bool[np.ndarray, "N W"]) -> Float[np.ndarray, " N"]:
        """Return the quantity of N variants, given the erased words."""
        return self.erased_logits(self.token_masks(erased), self.quantity).double().cpu().numpy()

    def baseline_and_value(self) -> tuple[float, float]:
        """Return the quantity with every word erased, and with none."""
        baseline, value = self.values(np.array([[True], [False]]).repeat(self.n_words, axis=1))
        return float(baseline), float(value)

    def spread_over_tokens(self, scores: Float[np.ndarray, " W"]) -> dict[str, list[float]]:
        """Return the scores of tokens by stream, given those of words: each divided equally among the word's tokens."""
        word_of = np.concatenate([*self.words.values()])
        n_tokens = np.bincount(word_of[word_of >= 0], minlength=self.n_words)
        # A last 0, for the tokens of word -1.
        shares = np.append(scores / np.maximum(n_tokens, 1), 0.0)
        return {name: shares[word_of].tolist() for name, word_of in self.words.items()}

    def sum_over_words(self, scores: dict[str, list[float]]) -> Float[np.ndarray, " W"]:
        """Return the scores of words, given those of tokens by stream: the sum over the word's tokens."""
        total = np.zeros(self.n_words + 1)
        for name, word_of in self.words.items():
            np.add.at(total, word_of, np.asarray(scores[name])[: len(word_of)])
        return total[:-1]


def _replaced_embeddings(
    embeddings: Sequence[TokenEmbedding], vectors: Sequence[Tensor] | None
) -> AbstractContextManager[None]:
    """Return a context in which the embeddings, in this thread, return `vectors` in turn, with positions added.

    It is a hook, so that the model computes as always from the embedding on.
    """
    remaining = iter(vectors or [])

    def replace_output(module: nn.Module, args: Any, _: Any, output: Tensor) -> Tensor:
        embedding = cast(TokenEmbedding, module)
        x = next(remaining)
        x = x if embedding.positions is None else x + embedding.positions(args[1])
        return x if embedding.norm is None else embedding.norm(x)

    # Without duplicates: one module may embed both streams.
    return after_calls([] if vectors is None else dict.fromkeys(embeddings), replace_output)


Method = Literal["erase", "integrated_gradients"]
Positions = Annotated[list[Id], Meta(max_length=MAX_PREFIX)]
INPUTS = {"text": "ids", "source": "src", "target": "tgt_in"}
"""The argument of the model that holds each stream."""


@dataclass(frozen=True)
class AttributeRequest(Request):
    """The prediction to explain, and the method."""

    trace: ShortText = ""
    method: Method = "erase"
    prediction: Id | None = None
    """Index into `predictions`; default: the first generated token."""
    target: Id | None = None
    """Class or token id; default: the predicted class, or the token that follows."""
    foil: Id | None = None
    """Class or token id to contrast with; default: the second most probable class, or none for tokens."""


@dataclass(frozen=True)
class EraseRequest(Request):
    """The tokens to erase, and the prediction to repeat without them."""

    erase: Annotated[dict[StreamName, Positions], "Partial<Record<StreamName, number[]>>"]
    """Positions of the tokens by stream."""
    trace: ShortText = ""
    prediction: Id | None = None
    target: Id | None = None
    foil: Id | None = None


def make_value_function(explanation: Explanation, request: AttributeRequest | EraseRequest) -> ValueFunction:
    """Return the value function of a request."""
    explanation.check_has_answer()
    if explanation.edited is not None:
        raise UsageError("words are weighed without edits only", "take the explanation without edits")
    task, row = explanation.subject.task, prediction_index(explanation, request.prediction)
    prediction = requested_prediction(explanation, row)
    measure = _measure_of(explanation, request, row)
    ids: list[Tensor] = []
    words: dict[str, np.ndarray] = {}
    n_words = 0
    masked = explanation.generation.masked is not None
    for stream in explanation.streams:
        tensor = explanation.model_inputs[INPUTS[stream.name]]
        if stream is explanation.streams[-1] and prediction.position is not None and not masked:
            tensor = tensor[:, : prediction.position + 1]  # what a decoder's prediction depends on
        words[stream.name] = _word_numbers(stream, tensor.shape[1], n_words)
        n_words = max(n_words, int(words[stream.name].max(initial=-1)) + 1)
        # Cloned, so that inference tensors can take part in autograd.
        ids.append(tensor.clone())
    masks = (explanation.model_inputs.get(name) for name in ("padding_mask", "src_padding_mask"))
    return ValueFunction(
        model=explanation.subject.model,
        ids=ids,
        mask=next((mask.clone() for mask in masks if mask is not None), None),
        words=words,
        n_words=n_words,
        position=prediction.position,
        measure=replace(measure, rows=(0,)),
        erase_id=erase_id(task),
        ngram_batch=explanation.model_inputs.get("ngram_batch"),
        masked=masked,
    )


def _measure_of(explanation: Explanation, request: AttributeRequest | EraseRequest, row: int) -> Measure:
    """Return the quantity: of a class a difference, of a token its log-probability where the request has no foil."""
    classes, task = explanation.is_classifier, explanation.subject.task
    n_ids = len(task.label_names or []) if classes else 1 if explanation.is_number else task.tokenizer.vocab_size
    for name, value in (("target", request.target), ("foil", request.foil)):
        if value is not None and value >= n_ids:
            kind = "class" if classes else "token"
            raise UsageError(f"{name} {value} is no {kind}", f"ids run from 0 to {n_ids - 1}")
    if explanation.is_number:
        return measure_of_answer(explanation)
    difference = measure_of_difference(explanation, row, request.target, request.foil)
    if request.foil is not None and difference.ids == (request.foil,):
        message = f"target and foil are both {request.foil}"
        raise UsageError(message, "choose another class or token to contrast with")
    return difference if classes or request.foil is not None else replace(difference, foil=None)


def _word_numbers(stream: Stream, n: int, first: int) -> np.ndarray:
    """Return the word numbers of the first n tokens, from `first` on without gaps; -1 for what is never erased."""
    numbers: dict[int, int] = {}
    word_of = np.full(n, -1, dtype=np.int64)
    tokens = zip(stream.words[:n], stream.special[:n], stream.padding[:n], strict=True)
    for i, (word, special, padding) in enumerate(tokens):
        if word >= 0 and not special and not padding:
            word_of[i] = numbers.setdefault(word, first + len(numbers))
    return word_of


def uses_mask_token(task: Task) -> bool:
    """Return True if the model was trained with words replaced by [MASK]; a pretrained encoder was."""
    t = task.tokenizer
    if t.special is not None:
        return t.mask_id >= 0
    return task.explain_as == "masked_language_model" or task.config.train.word_mask_prob > 0


def erase_id(task: Task) -> int:
    """Return the id of the token that replaces an erased one; without [MASK] and [UNK] that of padding."""
    t = task.tokenizer
    return t.mask_id if uses_mask_token(task) else t.unk_id if t.unk_id >= 0 else t.pad_id


def number_prediction(output: float) -> Prediction:
    """Return the output of a regressor in the place of a prediction; it is no choice, so that its probability is 1."""
    return Prediction(None, output, [Candidate(0, NUMBER, output, 0.0)], None)


def requested_prediction(explanation: Explanation, prediction: int | None) -> Prediction:
    """Return the prediction of a request; of a regressor its output."""
    if explanation.is_number and prediction in (None, 0):
        return number_prediction(float(explanation.records["logits"].value[0]))
    return explanation.predictions[prediction_index(explanation, prediction)]


def prediction_index(explanation: Explanation, prediction: int | None) -> int:
    """Return the index of a prediction, by default the first of the answer."""
    n = max(len(explanation.predictions), explanation.is_number)
    if prediction is None:
        return next(iter(explanation.answered), n - 1)
    if not 0 <= prediction < n:
        raise UsageError(f"prediction {prediction} does not exist", f"predictions run from 0 to {n - 1}")
    return prediction
