"""Define the quantity that an attribution explains, as a function of the words that are erased from the input.

A value function (the term of Shapley values) knows which tokens form a word, what replaces an erased one, and how to
evaluate many variants of the input in a batch. `methods.py` turns its values into scores.

Requests may come from a page, so nothing in them is trusted. The model is not called here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from glassformer.explain.edits.measure import (
    Measure,
    measure_of_answer,
    measure_of_difference,
    prediction_index,
    repeated,
)
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import NUMBER, Candidate, Prediction
from glassformer.explain.request import MAX_PREFIX, Id, Request, ShortText
from glassformer.explain.streams import Stream, StreamName
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.tasks import Task
from glassformer.utils.console import announced

BATCH_TOKENS = 4096
"""Maximum tokens per batch: more is not faster on a CPU, since they do not fit in its caches."""
MAX_LOGITS = 1 << 26
"""Maximum logits per batch, a quarter of a gigabyte."""


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """The model's preference of a class or token (over another), or its number, as a function of the erased words.

    A difference of two logits is also that of their log-probabilities. What is erased is a row of flags for each
    variant, over words, or over the T tokens of all streams.

    Attributes:
        model: the model.
        inputs: its arguments by name, a batch of one; of a decoder the tokens up to the explained position.
        words: for each token of a stream the number of its word among the words of all streams, or -1: special tokens,
            padding, and what follows the explained position are never erased. By stream, in order.
        n_words: the number of words of all streams.
        position: None for a classifier; else the row of the logits that is explained, of a decoder the last.
        measure: the quantity, of logits with one row.
        erase_id: the id that replaces an erased token.
        masked: True for a masked language model.
    """

    model: nn.Module
    inputs: dict[str, Any]
    words: dict[StreamName, Int[np.ndarray, " L"]]
    n_words: int
    position: int | None
    measure: Measure
    erase_id: int
    masked: bool = False

    @property
    def ids(self) -> list[Tensor]:
        """Return the input ids, (1, L) per stream."""
        return [self.inputs[INPUTS[name]] for name in self.words]

    @property
    def word_of(self) -> Int[np.ndarray, " T"]:
        """Return `words` of all streams together."""
        return np.concatenate([*self.words.values()])

    @property
    def embeddings(self) -> list[TokenEmbedding]:
        """Return the embedding of each stream; one module may embed both."""
        names = ["embedding"] if len(self.words) == 1 else ["src_embedding", "tgt_embedding"]
        return [cast(TokenEmbedding, getattr(self.model, name)) for name in names]

    def by_stream(self, x: np.ndarray) -> dict[StreamName, np.ndarray]:
        """Return the part of each stream of an array whose last axis is all tokens."""
        ends = np.cumsum([len(words) for words in self.words.values()])
        return dict(zip(self.words, np.split(x, ends[:-1], axis=-1), strict=True))

    def tokens_of(self, words: Bool[np.ndarray, "N W"]) -> Bool[np.ndarray, "N T"]:
        """Return the erased tokens, given the erased words."""
        return np.pad(words, ((0, 0), (0, 1)))[:, self.word_of]  # a last column of False, for the tokens of word -1

    def sum_over_words(self, scores: Float[np.ndarray, " T"]) -> Float[np.ndarray, " W"]:
        """Return the scores of words, given those of tokens: the sum over the word's tokens."""
        return np.bincount(self.word_of + 1, scores, self.n_words + 1)[1:]

    def quantity(self, logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
        """Return the explained quantity from the logits of N variants."""
        return self.measure.of(logits[:, None])[:, 0]

    def erased(self, tokens: Bool[np.ndarray, "N T"]) -> dict[str, Any]:
        """Return the arguments of the model for N variants: an erased token loses its n-grams, as one in training."""
        inputs = {name: repeated(value, len(tokens)) for name, value in self.inputs.items()}
        for name, part in self.by_stream(tokens).items():
            mask = torch.from_numpy(np.ascontiguousarray(part)).to(inputs[INPUTS[name]].device)
            inputs[INPUTS[name]] = inputs[INPUTS[name]].masked_fill(mask, self.erase_id)
            if (ngrams := inputs.get("ngram_batch")) is not None:
                inputs["ngram_batch"] = replace(ngrams, index=ngrams.index.masked_fill(mask, 0))
        return inputs

    def logits(self, inputs: Mapping[str, Any], vectors: Sequence[Tensor] = ()) -> Float[Tensor, "N C"]:
        """Return the logits at the explained position of N variants.

        Args:
            inputs: arguments of the model.
            vectors: (N, L, D) per stream: embeddings to use instead of those of the ids, with their n-grams, before
                positions are added.
        """
        remaining = iter(vectors)

        def replaced(module: nn.Module, args: tuple[Any, ...], _: Any, output: Tensor) -> Tensor:
            embedding, x = cast(TokenEmbedding, module), next(remaining)
            x = x if embedding.positions is None else x + embedding.positions(args[1])
            return x if embedding.norm is None else embedding.norm(x)

        more: dict[str, Tensor] = {}
        if self.masked:
            more["selected"] = torch.zeros_like(inputs["ids"], dtype=torch.bool)
            more["selected"][:, self.position] = True
        with after_calls(self.embeddings if vectors else (), replaced):
            logits = exact_forward(self.model, **inputs, **more)
        return logits if self.position is None or self.masked else logits[:, -1]

    def erased_logits(
        self, tokens: Bool[np.ndarray, "N T"], of: Callable[[Tensor], Tensor] = lambda logits: logits
    ) -> Tensor:
        """Return the logits (N, C) at the explained position of N variants, or a function of them, in batches."""
        n_logits = 1 if self.position is None else self.embeddings[-1].weight.shape[0]
        size = max(1, min(BATCH_TOKENS, MAX_LOGITS // n_logits) // tokens.shape[1])
        # Equal variants are evaluated once: a kernel may round two rows of a batch differently.
        rows, row_of = np.unique(tokens, axis=0, return_inverse=True)
        starts, found = range(0, len(rows), size), list[Tensor]()
        with exact_no_grad(self.model):
            for start in announced(starts, len(starts), "weighed the words in"):
                found.append(of(self.logits(self.erased(rows[start : start + size]))))
        return torch.cat(found)[torch.from_numpy(row_of.reshape(-1))]

    def embedded(self, tokens: Bool[np.ndarray, "N T"]) -> list[Float[Tensor, "N _ D"]]:
        """Return the embeddings of N variants by stream before positions, with n-grams and all else that is added."""
        found: list[Tensor] = []

        def keep(module: nn.Module, args: tuple[Any, ...], *_: Any) -> None:
            embedding = cast(TokenEmbedding, module)
            found.append(sum(args[2:], start=F.embedding(args[0], embedding.weight) * embedding.scale))

        with exact_no_grad(self.model), after_calls(self.embeddings, keep):
            self.logits(self.erased(tokens))
        return found

    def values(self, words: Bool[np.ndarray, "N W"]) -> Float[np.ndarray, " N"]:
        """Return the quantity of N variants, given the erased words."""
        return self.erased_logits(self.tokens_of(words), self.quantity).double().cpu().numpy()

    def baseline_and_value(self) -> tuple[float, float]:
        """Return the quantity with every word erased, and with none."""
        baseline, value = self.values(np.array([[True], [False]]).repeat(self.n_words, axis=1))
        return float(baseline), float(value)


Method = Literal["erase", "integrated_gradients"]
METHODS: dict[Method, str] = {"erase": "leave-one-out", "integrated_gradients": "integrated gradients"}
Positions = Annotated[list[Id], Meta(max_length=MAX_PREFIX)]
INPUTS = {"text": "ids", "source": "src", "target": "tgt_in"}
"""The argument of the model that holds each stream."""


@dataclass(frozen=True)
class AttributeRequest(Request):
    """The prediction to explain, and the method; or the tokens to erase, and the prediction to repeat without them."""

    trace: ShortText = ""
    method: Method = "erase"
    prediction: Id | None = None
    """Index into `predictions`; default: the first generated token."""
    target: Id | None = None
    """Class or token id; default: the predicted class, or the token that follows."""
    foil: Id | None = None
    """Class or token id to contrast with; default: the second most probable class, or none for tokens."""
    erase: Annotated[dict[StreamName, Positions] | None, "Partial<Record<StreamName, number[]>>"] = None
    """Positions of the tokens to erase, by stream."""


def make_value_function(explanation: Explanation, request: AttributeRequest) -> ValueFunction:
    """Return the value function of a request."""
    if explanation.edited is not None:
        raise UsageError("words are weighed without edits only", "take the explanation without edits")
    measure = _measure_of(explanation, request, prediction_index(explanation, request.prediction))
    [position] = measure.positions
    masked, n_words = explanation.generation.masked is not None, 0
    # Cloned, so that inference tensors can take part in autograd.
    inputs = {n: x.clone() if isinstance(x, Tensor) else x for n, x in explanation.model_inputs.items()}
    if position is not None and not masked:  # what a decoder's prediction depends on
        last = INPUTS[explanation.streams[-1].name]
        inputs[last] = inputs[last][:, : position + 1]
    words: dict[StreamName, np.ndarray] = {}
    for stream in explanation.streams:
        words[stream.name] = _word_numbers(stream, inputs[INPUTS[stream.name]].shape[1], n_words)
        n_words = max(n_words, int(words[stream.name].max(initial=-1)) + 1)
    return ValueFunction(
        model=explanation.subject.model,
        inputs=inputs,
        words=words,
        n_words=n_words,
        position=position,
        measure=replace(measure, rows=(0,)),
        erase_id=erase_id(explanation.subject.task),
        masked=masked,
    )


def _measure_of(explanation: Explanation, request: AttributeRequest, row: int) -> Measure:
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
