"""Text classification: a text in, a probability for each class out.

Small sets are lost by too few steps as easily as by too many. The rules come from ablations on sets of 500 to 15,000
texts with 2 to 150 classes; RESULTS.md has those that were measured with this code.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch, ngrams_of_batch, padding_mask_of
from glassformer.data.corpus import ArrayWriter, CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import LABEL, TEXT, DataSchema, Rows
from glassformer.data.datasets.labels import normalised_label, similarity_key
from glassformer.data.datasets.numbers import is_number
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DataError, UsageError
from glassformer.evaluate.classification import (
    FEWEST_TO_CALIBRATE,
    calibrated_scores,
    fit_baselines,
    fit_temperature,
    score,
)
from glassformer.models.build import encoder_flops
from glassformer.models.encoder_models import TextClassifier
from glassformer.models.ensemble import evaluation_mode, members_of
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.tasks import register
from glassformer.tasks.base import HASHED_NGRAMS, PARALLEL_FILES, SEVERAL_LABELS, Task
from glassformer.tasks.classify_report import ClassifyReport
from glassformer.tasks.probe import fit_probe
from glassformer.tasks.vectors import corpus_vectors
from glassformer.text.answers import check_probabilities, class_answer, cut_message
from glassformer.text.ngrams import mean_words
from glassformer.text.pairs import PairTokenizer, split_pairs
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import counted

LONG = 60
"""Words in the mean from which texts are long: reviews, not sentences."""
LONGEST = 512
"""Words of a text that count: longer ones are cut."""
STEPS, MIN_STEPS = 1000, 600
"""About how many steps a small set needs, and at least, where it is soon learned by heart, in batches that small."""
FROM_PRETRAINED = 600
"""About how many steps a pretrained model needs; fewer passes than 3 are not made, nor more than 15."""
BIGRAMS = 100_000
"""Most pairs of words with vectors of their own."""
MAX_TOKENS, MAX_STEPS = 4_500_000, 6000
"""Tokens that all members together read in a run, and their steps: about three minutes on two cores, adversarial
training counted. One member reads what its passes take, though it be more."""


def suggest(n_texts: int, n_classes: int, n_words: float, pairs: bool = False) -> dict[str, Any]:
    """Return the suggested settings by field, for texts of `n_words` words in the mean.

    - Passes: ten over a small set, fewer the larger it is. Two classes of short texts are soon
      learned by heart; so they get six passes at most, at half the rate, and more dropout.
    - Batches of 8 to 32 texts, so that there are about a thousand steps; of short ones in several classes up to 64.
    - Three members where they are quickly trained, one of long texts in numbers.
    - Pairs of words for long texts and for two classes: opinions are said in pairs ("not good"), topics in words.
    - Twice the passes for `pairs` of texts: what two have in common is learned late. On validation that gained 6 points
      on 6,000 pairs.
    """
    n, long = max(1, n_texts), n_words >= LONG
    two_short = n_classes <= 2 and not long
    by_size = 10 * (500 / n) ** 0.4 if long else 10 * (15_000 / n) ** 0.5
    epochs = max(1.0, min(6.0, STEPS * 32 / n) if two_short else min(10.0, by_size))
    steps = MIN_STEPS if two_short else STEPS
    tokens = epochs * n * max(1.0, min(n_words, LONGEST))
    batch_size = int(min(32 if long or two_short else 64, max(8, n * epochs / steps)))
    members = min(MAX_TOKENS // tokens, MAX_STEPS * batch_size // (n * epochs))
    return {
        "epochs": min(20.0, 2 * round(epochs, 1)) if pairs else round(epochs, 1),
        "batch_size": batch_size,
        "lr": 5e-4 if two_short else 1e-3,
        "dropout": 0.2,
        "embedding_dropout": 0.3 if two_short else 0.2,
        "bigrams": BIGRAMS if long or n_classes <= 2 else 0,
        "ensemble_size": int(min(3, max(1, members))),
    }


def suggest_from_pretrained(n_texts: int, n_classes: int) -> dict[str, Any]:
    """Return the suggested settings by field that differ where the weights come from another library.

    A tenth of the learning rate of random weights, and fewer passes: what is new is learned soon, what the model
    knows is soon lost. Adversarial training for two classes alone: on validation it gained 2.2 and 0.8 points on tweets
    of two classes (two seeds), and lost 1.6 on tweets of four, for twice the time.
    """
    epochs = max(3.0, min(15.0, FROM_PRETRAINED * 32 / max(1, n_texts)))
    return {
        "epochs": round(epochs, 1),
        "batch_size": 32 if n_texts >= 1000 else 16,
        "lr": 1e-4,
        "dropout": 0.1,
        "embedding_dropout": 0.1,
        "ensemble_size": 1,
        "adversarial": 0.03 if n_classes <= 2 else 0.0,
    }


logger = logging.getLogger(__name__)

WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
"""A label that is sorted as a number: "--5" is a name, and so is a number too long to be meant as one."""


def class_names(labels: Sequence[str]) -> list[str]:
    """Return the sorted classes among labels; as numbers if all of them are.

    Raises:
        DataError: fewer than two.
    """
    names = sorted(set(labels))
    if all(WHOLE_NUMBER.fullmatch(name) for name in names):
        names.sort(key=int)
    if len(names) < 2:
        hint = "choose the column with --label-column"
        raise DataError(f"two or more labels are needed, found {names}", hint)
    return names


MANY_NUMBERS = 5
"""So many labels that are all numbers may be amounts."""


def check_labels(rows: Mapping[str, Rows], diagnostics: Diagnostics, known: Sequence[str] | None = None) -> None:
    """Note labels that are not among the known ones, by file and line; without any those of training are known."""
    if known is None:
        try:
            known = class_names(rows["train"].answer)
        except DataError as error:
            diagnostics.error(rows["train"].path, 0, "label", error.message)
            return
        _check_guess(rows["train"], known, diagnostics)
        if len(known) >= MANY_NUMBERS and all(map(is_number, known)):
            note = f"the {len(known)} labels are numbers; if they are amounts, train regress answers with a number"
            diagnostics.notes.append(note)
    unknown = known_labels(known)
    for part in rows.values():
        for line, label in zip(part.lines, part.answer, strict=True):
            if label and (what := unknown(label)):  # an empty one was noted when it was read
                diagnostics.error(part.path, line, "label", what)


def known_labels(known: Sequence[str]) -> Callable[[str], str]:
    """Return a function that says why a label is not among the known ones; "" if it is."""
    shown = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    names = {*known, *map(normalised_label, known)}
    similar = {similarity_key(name): name for name in known}

    def why_unknown(label: str) -> str:
        if label in names:
            return ""
        near = similar.get(similarity_key(label))
        but = f"; it differs from {near!r} in case, spaces or number form alone" if near else ""
        return f"label {label!r} is not one of the training data's ({shown}){but}"

    return why_unknown


def _check_guess(train: Rows, names: Sequence[str], diagnostics: Diagnostics) -> None:
    """Refuse a column that was taken for the labels and has hardly two rows of a label; one that was named may."""
    if train.label_guessed and len(names) > 20 and len(names) > len(train.answer) / 2:
        shown = f"{len(names):,} different labels in {len(train.answer):,} rows"
        named = f", also if it is {train.columns[-1]!r}" if train.columns[-1] else ", which needs a header line"
        advice = f"choose it with --label-column{named}"
        diagnostics.error(train.path, 0, "label", f"{shown}: this can hardly be the column of labels; {advice}")


@register
class Classify(Task):
    """Validated on accuracy."""

    name = "classify"
    schema = DataSchema("classify", (TEXT, LABEL), check=check_labels)
    metric = "accuracy"
    report = ClassifyReport()
    ignores = PARALLEL_FILES | HASHED_NGRAMS | SEVERAL_LABELS | {"model.tie_embeddings", "model.output_bias", "decode"}
    fits_baselines = True
    explain_as = "classifier"
    imported_start: ClassVar = {"word_unknown_prob": 0.0}
    imported_auto = ("adversarial",)
    pools = True
    class_weights: Tensor | None = None
    """(C,) what the loss of a text of each class is multiplied by in training; None where that is 1."""

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Classify:
        if config.data.files.pair_column is not None:
            trained = tokenizer or Tokenizer.train(split_pairs(data.train.text), config.text, data.extra_tokens)
            tokenizer = PairTokenizer.of(trained)
        task = cast(Classify, super().from_data(config, data, tokenizer))
        if config.train.class_weight == "balanced":
            counts = torch.tensor(np.bincount(task._numbers(data.train), minlength=len(task.labels)))
            task.class_weights = counts.sum() / (len(counts) * counts.float())  # 1 in the mean over the texts
        return task

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        train = data.train
        n, n_classes, n_words = len(train), len(set(train.answers)), mean_words(train.text)
        of_words = {} if config.text.tokenizer == "word" else {"bigrams": 0}
        suggested = suggest(n, n_classes, n_words, config.data.files.pair_column is not None) | of_words
        if config.train.init_from and config.text.tokenizer == "imported":
            suggested |= suggest_from_pretrained(n, n_classes)
        return suggested, f"{n:,} texts of {n_classes} classes, {n_words:.0f} words each"

    @classmethod
    def classes_of(cls, train: Split) -> list[str] | None:
        try:
            return class_names(train.answers)
        except DataError as error:
            raise DataError(f"{train.source}: {error.message}", error.hint) from None

    @property
    def labels(self) -> list[str]:
        if not self.label_names:
            raise UsageError("a classifier needs label names")
        return self.label_names

    @property
    def eval_schema(self) -> DataSchema:
        return replace(self.schema, check=partial(check_labels, known=self.labels))

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids, a sequence per text; the n-grams of its tokens; labels, the class index if known."""
        text, ids, surfaces = self.config.text, writer.sequences("ids"), writer.surfaces()
        for chunk in writer.chunks(split):
            if surfaces is None:
                for tokens in self.tokenizer.encode_batch(chunk.text):
                    ids.append(writer.truncate(tokens, text.truncate))
                continue
            for tokens, forms in self.tokenizer.encode_with_surfaces(chunk.text):
                ids.append(writer.truncate(tokens, text.truncate))
                surfaces.append_surfaces(self.tokenizer.truncate(tokens, text.max_len, text.truncate, forms))
        if split.answer is not None:
            writer.scalars("labels", self._numbers(split))

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch; texts without labels get zeros."""
        ids, real = corpus.ids.padded(index, self.tokenizer.pad_id)
        labels = np.zeros(len(index), np.int64) if corpus.labels is None else corpus.labels[index].astype(np.int64)
        return Batch(
            torch.from_numpy(ids),
            padding_mask_of(real),
            torch.from_numpy(labels),
            None,
            index,
            int(real.sum()),
            len(index),
            ngrams_of_batch(corpus, index),
        )

    def build_single_model(self) -> TextClassifier:
        c, t = self.config, self.tokenizer
        sizes = t.vocab_size, len(self.labels), c.text.max_len, len(t.ngrams) if t.ngrams else 0
        return TextClassifier(c.model, *sizes, t.bigrams).of_pairs(t.separator)

    def forward_flops(self, length: float) -> float:
        return encoder_flops(self.config.model, length)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.padding_mask, batch.ngram_batch)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Return the cross-entropy in nats, summed over a batch; in training weighted by class where that is set."""
        if self.class_weights is None or not model.training:
            return super().loss_sum(model, batch, label_smoothing)
        kwargs: dict[str, Any] = {"reduction": "none", "label_smoothing": label_smoothing}
        losses = F.cross_entropy(self.logits(model, batch).float(), batch.labels, **kwargs)
        return (losses * self.class_weights.to(losses.device)[batch.labels]).sum()

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        logits, labels = self._all_logits(model, corpus, group), torch.from_numpy(np.array(corpus.labels)).long()
        loss = cross_entropy_sum(logits, labels).item() / max(1, len(labels))
        return {"loss": loss, "accuracy": (logits.argmax(dim=-1) == labels).float().mean().item()}

    def decided(self, model: nn.Module, corpus: EncodedCorpus) -> Classify:
        """Return the task with the temperature fitted on the validation texts, where these are enough."""
        task, labels = copy.copy(self), np.array(corpus.labels)
        if len(corpus) >= FEWEST_TO_CALIBRATE:
            temperature = fit_temperature(labels, self._all_logits(model, corpus).double().softmax(dim=-1).numpy())
            task.decision = replace(self.decision, temperature=temperature)
        return task

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        corpus = self.encode(split, training=False)
        probabilities = self._probabilities(model, corpus)
        truth = np.array(corpus.labels)
        scores = score(truth, probabilities, self.labels)
        scores |= calibrated_scores(truth, probabilities, self.decision.temperature)
        scores |= self._count_cut(corpus, len(split))
        if train is not None:
            known, pairs = (self._numbers(train), self._numbers(split)), bool(self.tokenizer.separator)
            logger.info(f"fitting the baselines to {counted(len(train), 'training texts')}")
            scores["baselines"] = fit_baselines(train.text, known[0], split.text, known[1], probabilities, pairs)
        return scores | self._answers(split, probabilities, split.answers)

    def _answers(self, split: Split, probabilities: np.ndarray, truth: Sequence[Any]) -> dict[str, Any]:
        """Return the answers of an evaluation with what is true: the first as examples, all as predictions."""
        results = (self._answer(text, p) for text, p in zip(split.text, probabilities, strict=True))
        rows = [result | {"truth": true} for result, true in zip(results, truth, strict=True)]
        # Texts can be long, and the data set has them: a number is enough to find one again.
        stored = [
            {"index": i} | {k: v for k, v in row.items() if k not in ("text", "pair")} for i, row in enumerate(rows)
        ]
        return {"examples": rows[:8], "predictions": stored}

    def _count_cut(self, corpus: EncodedCorpus, n: int) -> dict[str, int]:
        """Return how many of the n texts of a corpus were cut, after a warning."""
        n_cut = int(corpus.stats.get("n_truncated", 0))
        if message := cut_message(n_cut, n, self.config.text.max_len):
            logger.warning(message)
        return {"truncated": n_cut, "n_truncated": n_cut}

    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"text", "label", "probability", "probabilities"} for each text.

        A text longer than `max_len` is cut, and has "truncated": True; "unknown" counts the tokens that the vocabulary
        lacks.
        """
        encoded = self.tokenizer.encode_cut(texts, self.config.text.max_len, self.config.text.truncate)
        arrays = ArrayWriter(None)
        writer = CorpusWriter(arrays, self.tokenizer, self.config.text)
        ids, surfaces = writer.sequences("ids"), writer.surfaces()
        for cut in encoded:
            ids.append(cut.ids)
            if surfaces is not None:
                surfaces.append_surfaces(cut.surfaces)
        probabilities = self._probabilities(model, EncodedCorpus.from_arrays(arrays.in_memory(), writer.stats, str))
        answers = (self._answer(text, p) for text, p in zip(texts, probabilities, strict=True))
        return [answer | cut.mark for answer, cut in zip(answers, encoded, strict=True)]

    def _answer(self, text: str, probabilities: Any, /) -> dict[str, Any]:
        return class_answer(self.tokenizer.text_fields(text), probabilities, self.labels)

    def start_head(self, model: nn.Module, corpus: EncodedCorpus) -> bool:
        """Set the head of each member to a logistic regression on the pooled vectors of the training texts."""
        logger.info(f"fitting a probe to the vectors of {counted(len(corpus), 'training texts')}")
        for member in members_of(model):
            head = cast(nn.Linear, member.head)
            vectors, index = corpus_vectors(self, member, corpus)
            weight, bias = self._fit_head(vectors.astype(np.float64), corpus, index)
            with torch.no_grad():
                head.weight.copy_(torch.from_numpy(weight))
                head.bias.copy_(torch.from_numpy(bias))
        return True

    def _fit_head(self, vectors: np.ndarray, corpus: EncodedCorpus, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weight and bias of a logistic regression on the pooled vectors of the texts at `index`."""
        n_outputs = 1 if len(self.labels) == 2 else len(self.labels)
        weight, bias, _ = fit_probe(vectors, np.array(corpus.labels)[index], n_outputs)
        return weight, bias

    def _numbers(self, split: Split) -> list[int]:
        """Return the class index of each example; raise DataError for a class that training lacks."""
        number = {normalised_label(name): i for i, name in enumerate(self.labels)}
        number |= {name: i for i, name in enumerate(self.labels)}
        if unknown := set(split.answers) - number.keys():
            what = f"{split.source}: no training example has the label {min(unknown)!r}"
            raise DataError(what, "train on more examples: a larger --limit, or without one")
        return [number[label] for label in split.answers]

    def _probabilities(self, model: nn.Module, corpus: EncodedCorpus) -> np.ndarray:
        return check_probabilities(self._all_logits(model, corpus).double().softmax(dim=-1).numpy())

    def _all_logits(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Return logits (N, C) on the CPU, in the order of the texts."""
        return self._gathered(model, corpus, group, (len(self.labels),))

    def _gathered(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup, shape: tuple[int, ...]) -> Tensor:
        """Return logits of one shape for each text, on the CPU, in the order of the texts."""
        logits = torch.zeros(len(corpus), *shape)
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                logits[torch.from_numpy(batch.index)] = self.logits(model, batch).float().cpu()
        return group.all_reduce_tensor(logits)
