"""Sets of classes with guaranteed coverage, by split conformal prediction (`conformal_prediction`).

The plain sets hold the classes of the largest probabilities, wherever these are above one
threshold. The adaptive sets (Romano, Sesia and Candès 2020, "Classification with valid and adaptive
coverage") add classes until their probabilities reach a threshold: they are larger on average, and
their coverage varies less between rows that are easy and rows that are hard to classify.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, RegressionData

from .._core import feature_names, labels
from .._core.data import Data, inputs
from .._core.row_blocks import by_blocks
from ..prediction.class_probabilities import class_probabilities
from .conformal_quantiles import order_statistic

TIE = 1e-6
"""Probabilities that differ by less than this are ordered by the margins of latent functions."""


@dataclass(frozen=True)
class ConformalSets:
    """A classifier with sets of classes of guaranteed coverage.

    :param model: the model.
    :param scores: those of the plain sets at the calibration points, [n, 1], sorted.
    :param adaptive_scores: those of the adaptive sets, [n, 1], sorted.
    """

    model: Any
    scores: AnyNDArray
    adaptive_scores: AnyNDArray

    @classmethod
    def of(cls, model: Any, calibration_data: RegressionData) -> ConformalSets:
        """Return the model with the scores of the right classes of calibration data."""
        names = getattr(model, "classes_", None)
        if names is not None and isinstance(calibration_data, tuple | list):
            X, Y = calibration_data
            calibration_data = X, labels.encoded("Y of calibration_data", Y, names)
        X, Y = Data.of(calibration_data, model.likelihood, name="calibration_data")
        classes = np.asarray(Y, dtype=int)
        if classes.shape[1] != 1:
            raise ValueError(
                f"Y of calibration_data has {classes.shape[1]} columns; it must have 1."
            )
        ordered = _ordered_probabilities(model, X)
        kinds = _plain_scores(ordered), _adaptive_scores(ordered, seed=0)
        of_right = (np.take_along_axis(scores, classes, axis=1) for scores in kinds)
        return cls(model, *(np.sort(scores, axis=0) for scores in of_right))

    def quantile(self, coverage: float, *, adaptive: bool = False) -> float:
        """Return the maximal score of a class in the set, infinite if there are too few scores."""
        scores = self.adaptive_scores if adaptive else self.scores
        return float(order_statistic(scores, coverage)[0])

    @check_shapes("return: [N, J]")
    def predict_set(
        self,
        X: InputData,
        coverage: float = 0.95,
        *,
        adaptive: bool = False,
        allow_empty: bool = False,
    ) -> AnyNDArray:
        """Return booleans for the classes in the set of each row: [N, J].

        :param X: the inputs.
        :param coverage: the probability that the right class is in its set.
        :param adaptive: whether sets are the adaptive ones, whose last class is in or out by
            chance, so that their coverage is not more than it has to be.
        :param allow_empty: whether a set may be empty. If not, it holds the most probable class at
            least, which raises the coverage.
        """
        ordered = _ordered_probabilities(self.model, X)
        scores = _adaptive_scores(ordered, seed=1) if adaptive else _plain_scores(ordered)
        named = scores <= self.quantile(coverage, adaptive=adaptive)
        if not allow_empty:
            named |= ordered == ordered.max(axis=1, keepdims=True)
        return named


def _ordered_probabilities(model: Any, X: InputData) -> AnyNDArray:
    """Return probabilities, [N, J], with ties broken by the margins of the latent functions.

    Under `RobustMax` all classes that are nearly certain have one probability. What is added is
    increasing in f_j - max_{i≠j} f_i and smaller than `TIE`.
    """
    feature_names.require_of(model, X)
    X = inputs("X", X)
    p = class_probabilities(model, X)
    (f,) = by_blocks(lambda rows: (model.predict_f(rows)[0],), X)
    f = np.concatenate([-f, f], axis=1) if f.shape[1] == 1 else np.asarray(f)
    largest = np.sort(f, axis=1)[:, -2:]  # the second and the first
    others = np.where(f == largest[:, 1:], largest[:, :1], largest[:, 1:])
    margin = f - others
    return np.asarray(p + TIE * margin / (1.0 + np.abs(margin)))


def _plain_scores(ordered: AnyNDArray) -> AnyNDArray:
    """Return 1 - p of each class: [N, J].

    The sets are the smallest on average if the probabilities are right (Sadinle, Lei and Wasserman
    2019, "Least ambiguous set-valued classifiers with bounded error levels").
    """
    return np.asarray(1.0 - ordered)


def _adaptive_scores(ordered: AnyNDArray, seed: int) -> AnyNDArray:
    """Return the sum of larger p and a random part, U ~ U(0, 1), of p, of each class: [N, J]."""
    order = np.argsort(-ordered, axis=1)
    p = np.take_along_axis(ordered, order, axis=1)
    U = np.random.default_rng(seed).uniform(size=(len(p), 1))
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, np.cumsum(p, axis=1) - (1.0 - U) * p, axis=1)
    return scores
