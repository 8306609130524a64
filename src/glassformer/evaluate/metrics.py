"""The metrics there are, how they are written and which way is better, and those of a language model.

The one table that choosing weights, plots, reports and comparisons go by. A task with a metric of its own
describes it in its `TaskReport`; how a metric is computed is in the files beside this one.

Nats per token depend on the tokenizer; per character and per byte they do not, so those compare models.
Running the model over the text, each token predicted once, is the caller's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from glassformer.utils.formatting import Number, number, percent


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is.

    Attributes:
        name: its key in a validation or an evaluation.
        title: for people.
        unit: what it counts, or how to read it.
        write: a value as text.
    """

    name: str
    title: str
    unit: str = ""
    write: Callable[[Number], str] = number
    higher_is_better: bool = True

    def better(self, value: Number, than: Number) -> bool:
        """Return True if `value` is better than `than`."""
        return value > than if self.higher_is_better else value < than

    def between(self, interval: Sequence[Number] | None) -> str:
        """Write an interval in the metric's own unit: 87.7–88.5%."""
        if not interval:
            return ""
        low, high = self.write(interval[0]), self.write(interval[1])
        dash = " to " if "-" in low + high else "–"  # "-0.12–-0.03" cannot be read
        return f"{low.removesuffix('%')}{dash}{high}"


_tenths = "{:.1f}".format

METRICS: dict[str, Metric] = {
    known.name: known
    for known in (
        Metric("accuracy", "Accuracy", "share of examples right", percent),
        Metric("macro_f1", "Macro F1", "0–100%, higher is better", percent),
        Metric("exact_match", "Exact match", "share of answers right to the last character", percent),
        Metric("bleu", "BLEU", "0–100, higher is better", _tenths),
        Metric("chrf", "chrF", "0–100, higher is better", _tenths),
        Metric("ece", "Calibration error", "mean gap between confidence and accuracy", percent, False),
        Metric("ece_calibrated", "Calibration error of predict --calibrated", "", percent, False),
        Metric("log_loss", "Log loss", "nats an example", number, False),
        Metric("loss", "Loss", "nats", number, False),
        Metric("perplexity", "Perplexity", "per token, lower is better", number, False),
        Metric("nats_per_token", "Nats per token", "lower is better", number, False),
        Metric("nats_per_char", "Nats per character", "lower is better", number, False),
        Metric("bits_per_char", "Bits per character", "lower is better", number, False),
        Metric("bits_per_byte", "Bits per byte", "lower is better", number, False),
    )
}


def metric(name: str, additional: Sequence[Metric] = ()) -> Metric:
    """Return the metric of a name: one of the `additional` ones of a task, one of the table, or, unknown, a score.

    `train_accuracy` is accuracy on the training split.
    """
    if name.startswith("train_"):
        base = metric(name.removeprefix("train_"), additional)
        return replace(base, name=name, title=base.title + " on train")
    known = METRICS | {metric.name: metric for metric in additional}
    return known.get(name) or Metric(name, name.replace("_", " ").capitalize())


def score(nats: float | int, n_tokens: int, n_chars: int, n_bytes: int) -> dict[str, float | int | None]:
    """Turn the summed negative log-likelihood of a text into the usual rates.

    Args:
        nats: −Σ log p(token | what precedes) over all predicted tokens, natural logarithm.
        n_tokens: tokens predicted.
        n_chars: characters (Unicode code points) those tokens spell.
        n_bytes: bytes of the same text in UTF-8.

    Returns:
        n (= n_tokens), n_chars, n_bytes, nats, nats_per_token, perplexity (per token; None beyond the range
        of a float, since JSON has no infinity), nats_per_char, bits_per_char, bits_per_byte.
    """
    per_token = nats / n_tokens
    return {
        "n": n_tokens,
        "n_chars": n_chars,
        "n_bytes": n_bytes,
        "nats": nats,
        "nats_per_token": per_token,
        "perplexity": math.exp(per_token) if per_token < 700 else None,
        "nats_per_char": nats / n_chars,
        "bits_per_char": nats / n_chars / math.log(2),
        "bits_per_byte": nats / n_bytes / math.log(2),
    }
