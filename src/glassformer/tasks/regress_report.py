"""How runs whose answers are numbers are reported: scores, baselines, and predicted against true numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import Predictions, Scoring, ratio
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.decision import number_lines, number_text
from glassformer.text.pairs import text_of
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import number, table

MOST_POINTS = 2000
"""Examples that are drawn; of more, as many evenly spaced ones."""
UNIT = "in the unit of the numbers, lower is better"
OF_CORRELATION = "−1 to 1; 0 is chance"
_three_places = "{:.3f}".format


def scatter(evaluation: Evaluation) -> bytes | None:
    """Draw predicted against true numbers; the dashed line is where both are equal."""
    points = np.array(evaluation.scores.get("scatter") or [], dtype=float)
    if points.ndim != 2 or len(points) < 2:
        return None
    mae = evaluation.value("mae")
    title = "Predicted and true numbers" + ("" if mae is None else f": mean error {number(mae)}")
    figure, (axes,) = ps.new_figure(4.6, title, "Each point is a text; on the dashed line both are equal", width=5.0)
    low, high = float(points.min()), float(points.max())
    margin = 0.04 * (high - low) or 1.0
    axes.plot([low, high], [low, high], color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    faint = min(0.8, max(0.15, 60 / len(points)))
    axes.plot(*points.T, color=ps.ACCENT, linestyle="", marker="o", markersize=3.4, alpha=faint, markeredgewidth=0)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("true number")
    axes.set_ylabel("predicted number")
    return ps.png(figure)


def scatter_points(truth: np.ndarray, predicted: np.ndarray) -> list[list[float]]:
    """Return pairs of true and predicted numbers to draw, at most `MOST_POINTS`."""
    rows = np.unique(np.linspace(0, len(truth) - 1, min(len(truth), MOST_POINTS)).round().astype(int))
    return np.stack([truth[rows], predicted[rows]], axis=1).tolist()


class RegressReport(TaskReport):
    """Numbers; ridge regression on words is what they have to beat."""

    model_name = "text regressor"
    pipeline_tag = "text-classification"
    family = "encoder"
    loss_unit = "squared standard deviations an example"
    better_truncation = "head+tail"
    metrics = (
        Metric("mae", "Mean absolute error", UNIT, number, False),
        Metric("rmse", "Root mean squared error", f"{UNIT}; large errors count more", number, False),
        Metric("r2", "R²", "share of the variance explained; 0 is the mean of these numbers", _three_places),
        Metric("pearson", "Pearson correlation", OF_CORRELATION, _three_places),
        Metric("spearman", "Spearman correlation", f"{OF_CORRELATION}; of the ranks", _three_places),
    )
    headline = "mae"
    table_metrics = ("mae", "rmse", "r2", "pearson", "spearman")
    guesses_evenly = False
    steps_averaged = 20
    averaged = "number", "numbers"
    probe = "a ridge regression"
    baselines = {  # noqa: RUF012
        "mean": "mean of the training numbers",
        "tfidf_ridge": "TF-IDF + ridge regression",
        "probe": "frozen encoder + ridge regression",
    }
    captions = {"scatter": "Predicted against true numbers; the dashed line is where both are equal."}  # noqa: RUF012
    limits = (
        "It gives a number for any text, also for one unlike its training data, and does not say how sure it is. Of "
        "numbers beyond the range of those it was trained on it has seen nothing."
    )
    comparison_keys = ("truth", "number")

    def details(self, evaluation: Evaluation) -> list[str]:
        mean, sd = evaluation.value("truth_mean"), evaluation.value("truth_sd")
        if mean is None or sd is None:
            return []
        return [f"The true numbers have mean {number(mean)} and standard deviation {number(sd)}."]

    def warnings(self, evaluation: Evaluation) -> list[str]:
        return self.beaten(evaluation)

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        image = scatter(evaluation)
        return {} if image is None else {"scatter": image}

    def scoring(self, scores: JsonObject) -> Scoring:
        def counts(predictions: Predictions) -> np.ndarray:
            return np.array([(abs(float(row["number"]) - float(row["truth"])), 1) for row in predictions], float)

        return Scoring("mae", counts, ratio, best=0.0, sign=-1, unit="texts")

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        rows = [[text_of(e), *(number_text(e[k]) if k in e else "" for k in ("truth", "number"))] for e in examples]
        return table(["text", "true", "predicted"], rows, left=1)

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} "I loved every minute" --json'

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return number_lines(answer)
