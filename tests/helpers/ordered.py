"""A task of one's own, whole in this one file: classes in an order, such as stars. Nothing else knows of it."""

from dataclasses import replace

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scores import class_scores
from glassformer.evaluate.scoring import Scoring, interval, ratio
from glassformer.tasks.heads import CLASSIFY

DISTANCE = Metric("distance", "Mean distance", "classes from the true one", "{:.3f}".format, higher_is_better=False)


def earth_mover(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Squared differences of cumulated probabilities (Hou, Yu and Samaras 2016)."""
    return (logits.float().softmax(-1) - F.one_hot(labels, logits.shape[-1])).cumsum(-1).square().sum()


def counts(truth, answered):  # numbers of classes -> (N, 2), which add up
    return np.stack([np.abs(np.subtract(truth, answered)), np.ones(len(truth))], axis=1).astype(float)


def validated(truth, p, names):
    return {"distance": ratio(counts(truth, p.argmax(axis=1)).sum(axis=0))}


def scored(truth, p, names, decision):
    ends = np.array([[0.0, 1.0], [len(names) - 1.0, 1.0]])  # of a right answer, and of the worst
    between = interval(ratio, counts(truth, p.argmax(axis=1)), ends)
    return class_scores(truth, p, names) | validated(truth, p, names) | {"distance_ci95": between}


def median(train, test, p, names, decision):
    guess = int(np.median(train.truth))
    distance = ratio(counts(test.truth, np.full(len(test.truth), guess)).sum(axis=0))
    return {"median": {"distance": distance, "settings": f"always {names[guess]}, the median of training"}}


def scoring(scores):
    of, keys = scores["label_names"].index, ("truth", "label")
    return Scoring("distance", lambda rows: counts(*([of(row[k]) for row in rows] for k in keys)), ratio)


SHOWN = {"metrics": (DISTANCE,), "table_metrics": ("distance", "accuracy"), "scored": scoring}
REPORT = replace(CLASSIFY.report, model_name="rater", baselines={"median": "median class"}, **SHOWN)
HOW = {"loss": earth_mover, "validated": validated, "scored": scored, "baselines": median, "report": REPORT}
ORDERED = replace(CLASSIFY, name="ordered", **HOW)
