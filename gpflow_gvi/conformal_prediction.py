"""Conformal prediction: intervals and sets of classes that hold what they promise.

Split conformal prediction (Vovk, Gammerman and Shafer 2005) measures by a score how badly a model
predicts each point of held-out data. If these and a new point are exchangeable, the score of the
new point is at most the ⌈(n+1)·coverage⌉-th smallest of theirs with at least the probability
`coverage`, whatever the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, RegressionData

from . import checks, labels
from .calibration import by_blocks, require_finite
from .classification import class_probabilities


class PredictsY(Protocol):
    """Anything with the `predict_y` of GPflow's models."""

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Return mean and variance of y at each row: [N, J] each."""


def conformal(model: PredictsY, calibration_data: RegressionData) -> Conformal | ConformalSets:
    """Return the model with predictions of guaranteed coverage: intervals, or sets of classes.

    With n calibration points, none of whose scores are tied, coverage is at most 1/(n+1) above what
    is promised. It holds for each output by itself, and on average over new points and over
    calibration sets, not for every x.

    :param model: anything with `predict_y`, a model of GPflow's or of this package. If its
        likelihood is one of classes, the result is `ConformalSets`, else `Conformal`.
    :param calibration_data: (X, Y) that the model was neither fitted nor tempered with.
    """
    of_classes = labels.num_classes(getattr(model, "likelihood", None)) is not None
    of_kind = ConformalSets if of_classes else Conformal
    return of_kind.of(model, calibration_data)


@dataclass(frozen=True)
class Conformal:
    """A model whose intervals are widened, or narrowed, until they hold what they promise.

    :param model: the model.
    :param scores: the normalised residuals of the calibration data, [n, J], each column sorted.
    """

    model: PredictsY
    scores: AnyNDArray

    @classmethod
    def of(cls, model: PredictsY, calibration_data: RegressionData) -> Conformal:
        """Return the model with ``|y - E y| / sd(y)`` as scores.

        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), section 5.2.
        """
        require_real_outputs(model)
        X, Y = checks.data(*calibration_data)
        mean, variance = by_blocks(model.predict_y, X)
        if mean.shape != tuple(Y.shape):
            raise ValueError(
                f"Y of calibration_data has shape {tuple(Y.shape)}, but the model predicts "
                f"{mean.shape}; it must have a column for each output."
            )
        require_finite("calibration_data", mean, variance)
        if not np.all(variance > 0.0):
            raise ValueError(
                f"the model predicts no variance at {np.sum(np.any(variance <= 0.0, axis=1))} of "
                f"the {len(variance)} rows of calibration_data, and residuals are measured in "
                "standard deviations. Use a likelihood with noise."
            )
        scores = np.abs(Y - mean) / np.sqrt(variance)  # [n, J]
        return cls(model, np.sort(scores, axis=0))

    def quantile(self, coverage: float) -> AnyNDArray:
        """Return how many standard deviations each output's interval reaches out: [J].

        It is an order statistic, never interpolated; and infinite if there are not enough scores.
        """
        return _order_statistic(self.scores, coverage)

    @check_shapes(
        "X: [N, D...]",
        "return[0]: [N, J]",
        "return[1]: [N, J]",
    )
    def predict_interval(self, X: InputData, coverage: float = 0.95) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the lower and upper ends of the interval of each output: [N, J] each.

        :param X: the inputs, [N, D].
        :param coverage: the probability with which y shall lie in its interval.
        """
        reach = self.quantile(coverage)
        mean, variance = self.model.predict_y(X)
        # Infinitely many standard deviations are infinite, even if the deviation is zero.
        half = tf.where(np.isinf(reach), tf.cast(np.inf, mean.dtype), reach * tf.sqrt(variance))
        return mean - half, mean + half


@dataclass(frozen=True)
class ConformalSets:
    """A classifier that names as many classes as it takes to hold what it promises.

    :param model: the model.
    :param scores: how improbable it found the right class of each calibration point: [n, 1],
        sorted.
    """

    model: Any
    scores: AnyNDArray

    @classmethod
    def of(cls, model: Any, calibration_data: RegressionData) -> ConformalSets:
        """Return the model with 1 - p(y) as scores.

        They give the smallest sets on average if the probabilities are right (Sadinle, Lei and
        Wasserman 2019, "Least ambiguous set-valued classifiers with bounded error levels").
        """
        X, Y = labels.data(model.likelihood, *calibration_data)
        probabilities = class_probabilities(model, X)
        right = np.asarray(Y, dtype=int)
        if right.shape[1] != 1:
            raise ValueError(f"Y of calibration_data has {right.shape[1]} columns; it must have 1.")
        scores = 1.0 - np.take_along_axis(probabilities, right, axis=1)
        return cls(model, np.sort(scores, axis=0))

    def quantile(self, coverage: float) -> float:
        """Return the score up to which a class is named, infinite if there are too few scores."""
        return float(_order_statistic(self.scores, coverage)[0])

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
    def predict_set(self, X: InputData, coverage: float = 0.95) -> AnyNDArray:
        """Return which classes are in the set of each row: booleans, [N, J]. It may be empty.

        :param X: the inputs.
        :param coverage: the probability with which the right class shall be in its set.
        """
        return 1.0 - class_probabilities(self.model, X) <= self.quantile(coverage)


def _order_statistic(scores: AnyNDArray, coverage: float) -> AnyNDArray:
    """Return the ⌈(n+1)·coverage⌉-th smallest score of each column: [J]."""
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1, as 0.95 does.")
    n, J = scores.shape
    # In floating point 100 * 0.55 is more than 55, and the rank would be one too high.
    rank = math.ceil((n + 1) * coverage * (1.0 - 1e-12))
    return scores[rank - 1] if rank <= n else np.full(J, np.inf, scores.dtype)


def require_real_outputs(model: Any) -> None:
    """Raise unless the model predicts means and variances of real-valued observations."""
    if not callable(getattr(model, "predict_y", None)):
        raise TypeError(f"model is {model!r}; it must have a method predict_y(X).")
    likelihood = getattr(model, "likelihood", None)
    if labels.num_classes(likelihood) is not None:
        raise TypeError(
            f"the model's likelihood is {type(likelihood).__name__}, whose observations are "
            "classes; intervals and the metrics of intervals are for real-valued Y."
        )
