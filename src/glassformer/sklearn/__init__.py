"""Estimators with the interface of scikit-learn, for its pipelines, cross-validation and searches.

    from glassformer.sklearn import TextClassifier

    classifier = TextClassifier(options={"train.epochs": 3}).fit(texts, labels)
    classifier.predict(["I loved every minute"])

Importing this package imports scikit-learn.
"""

from glassformer.sklearn.classifier import TextClassifier as TextClassifier
from glassformer.sklearn.regressor import TextRegressor as TextRegressor

__all__ = ["TextClassifier", "TextRegressor"]
