"""Conformal prediction: intervals and sets of classes with guaranteed coverage.

Split conformal prediction (Vovk, Gammerman and Shafer 2005) computes a score of the error of a
model at each point of held-out data. If these and a new point are exchangeable, the score of the
new point is at most the ⌈(n+1)·coverage⌉-th smallest of theirs with at least the probability
`coverage`, for any model.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, RegressionData
from gpflow.likelihoods import SwitchedLikelihood

from .._core import checks, feature_names, images, labels
from .._core.data import Data, inputs
from .._core.row_blocks import by_blocks
from ..errors import NumericsWarning, short_repr
from ..likelihoods import are_labels, is_gaussian
from ..prediction.class_probabilities import class_probabilities
from ..prediction.predictive_law import central_interval, pit
from .tempering import require_finite

TIE = 1e-6
"""Probabilities that differ by less than this are ordered by the margins of latent functions."""


def conformal(
    model: Any, calibration_data: RegressionData
) -> Conformal | ConformalQuantiles | ConformalSets:
    """Return the model with predictions of guaranteed coverage: intervals, or sets of classes.

    With n calibration points, none of whose scores are tied, coverage exceeds its nominal
    value by 1/(n+1) or less. It holds for each output by itself, and on average over new points and
    over calibration sets, not for every x.

    :param model: any object with GPflow's `predict_y`, as models of GPflow and this package. If its
        likelihood is one of classes, the result is `ConformalSets`; if it is another one that is
        not Gaussian, `ConformalQuantiles`; else `Conformal`.
    :param calibration_data: (X, Y) that were not used to fit or temper the model.
    """
    likelihood = getattr(model, "likelihood", None)
    kind: Any = Conformal if is_gaussian(likelihood) else ConformalQuantiles
    kind = ConformalSets if are_labels(likelihood) else kind
    found: Conformal | ConformalQuantiles | ConformalSets = kind.of(model, calibration_data)
    feature_names.require_of(model, next(iter(calibration_data)))
    return found


@dataclass(frozen=True)
class Conformal:
    """A model with intervals of guaranteed coverage.

    :param scores: the normalised residuals of the calibration data, [n, J], each column sorted.
    """

    model: Any
    scores: AnyNDArray

    @classmethod
    def of(cls, model: Any, calibration_data: RegressionData) -> Conformal:
        """Return the model with ``|y - E y| / sd(y)`` as scores.

        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), section 5.2.
        """
        require_real_outputs(model)
        X, Y = Data.of(calibration_data, name="calibration_data")
        images.refuse_sets(X)
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
        """Return half the width of each output's interval in standard deviations: [J].

        It is an order statistic, never interpolated; and infinite if there are too few scores.
        """
        return order_statistic(self.scores, coverage)

    @check_shapes("return[0]: [N, J]", "return[1]: [N, J]")
    def predict_interval(self, X: InputData, coverage: float = 0.95) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the lower and upper ends of the interval of each output: [N, J] each.

        :param coverage: the probability that y lies in its interval.
        """
        feature_names.require_of(self.model, X)
        X = inputs("X", X)
        mean, variance = self.model.predict_y(X)
        if len(mean.shape) != 2:
            raise ValueError(f"X has shape {tuple(X.shape)}; it must be [N, D], rows of inputs.")
        return around(mean, variance, self.quantile(coverage))


@check_shapes(
    "mean: [N, J]",
    "variance: [N, J]",
    "deviations: [broadcast J]",
    "return[0]: [N, J]",
    "return[1]: [N, J]",
)
def around(
    mean: tf.Tensor, variance: tf.Tensor, deviations: AnyNDArray
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean ± deviations · standard deviation, the ends of intervals."""
    # Infinitely many standard deviations are infinite, even if the deviation is zero.
    infinite, deviations = tf.cast(np.inf, mean.dtype), tf.cast(deviations, mean.dtype)
    half = tf.where(tf.math.is_inf(deviations), infinite, deviations * tf.sqrt(variance))
    return mean - half, mean + half


def require_real_outputs(model: Any) -> None:
    """Raise unless the model predicts means and variances of real-valued observations."""
    if not callable(getattr(model, "predict_y", None)):
        raise TypeError(f"model is {short_repr(model)}; it must have a method predict_y(X).")
    likelihood = getattr(model, "likelihood", None)
    if are_labels(likelihood):
        raise TypeError(
            f"the model's likelihood is {type(likelihood).__name__}, whose observations are "
            "classes; intervals and the metrics of intervals are for real-valued Y."
        )


@dataclass(frozen=True)
class ConformalQuantiles:
    """A model with intervals of guaranteed coverage between quantiles of its predictions.

    The score of an observation is abs(2 F(y) - 1), the level of the smallest central interval that
    holds it (Chernozhukov, Wüthrich and Zhu 2021, "Distributional conformal prediction"). For
    whole numbers F(y) is randomised, so that no scores are tied.

    :param model: the model, with `predict_f` and a likelihood.
    :param scores: those of the calibration data, [n, P], each column sorted.
    """

    model: Any
    scores: AnyNDArray

    @classmethod
    def of(cls, model: Any, calibration_data: RegressionData) -> ConformalQuantiles:
        """Return the model with its scores of calibration data."""
        likelihood = model.likelihood
        if isinstance(likelihood, SwitchedLikelihood):
            raise TypeError(
                "the model's likelihood is SwitchedLikelihood, under which rows are not "
                "exchangeable. Leave out calibration_data (calibration_fraction)."
            )
        values = pit(model, calibration_data, name="calibration_data")
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"the model's predictions have no quantiles at {np.sum(~np.isfinite(values))} of "
                f"{values.size} observations of calibration_data. Check its parameters."
            )
        return cls(model, np.sort(np.abs(2.0 * values - 1.0), axis=0))

    @check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
    def predict_interval(self, X: InputData, coverage: float = 0.95) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the lower and upper ends of the interval of each output: [N, P] each.

        They are all that an observation may be where there are too few scores.

        :param coverage: the probability that y lies in its interval.
        """
        feature_names.require_of(self.model, X)
        level = np.minimum(order_statistic(self.scores, coverage), 1.0)  # [P]
        return central_interval(self.model, X, level)


def order_statistic(scores: AnyNDArray, coverage: float) -> AnyNDArray:
    """Return the ⌈(n+1)·coverage⌉-th smallest score of each column: [J]."""
    checks.coverage(coverage)
    n, J = scores.shape
    # In floating point 100 * 0.55 is more than 55, and the rank would be one too high.
    rank = math.ceil((n + 1) * coverage * (1.0 - 1e-12))
    if rank <= n:
        return scores[rank - 1]
    warnings.warn(
        f"coverage is {coverage}, for which {n} calibration rows are too few: intervals are "
        "infinite, and sets have all classes. Give at least "
        f"{math.ceil(coverage / (1.0 - coverage) * (1.0 - 1e-12))}, or take a lower coverage.",
        NumericsWarning,
        stacklevel=4,
    )
    return np.full(J, np.inf, scores.dtype)


@dataclass(frozen=True)
class ConformalSets:
    """A classifier with sets of classes of guaranteed coverage.

    The plain sets hold the classes of the largest probabilities, wherever these are above one
    threshold. The adaptive sets (Romano, Sesia and Candès 2020, "Classification with valid and
    adaptive coverage") add classes until their probabilities reach a threshold: they are larger on
    average, and their coverage varies less between rows that are easy and rows that are hard.

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
        kinds = _plain_scores(ordered), _adaptive_scores(ordered, X)
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

        :param coverage: the probability that the right class is in its set.
        :param adaptive: whether sets are the adaptive ones, whose last class is in or out by
            chance, so that their coverage is not more than it has to be. Equal rows of X have
            equal sets.
        :param allow_empty: whether a set may be empty. If not, it holds the most probable class at
            least, which raises the coverage.
        """
        ordered = _ordered_probabilities(self.model, X)
        scores = _adaptive_scores(ordered, X) if adaptive else _plain_scores(ordered)
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


def _adaptive_scores(ordered: AnyNDArray, X: InputData) -> AnyNDArray:
    """Return the sum of larger p and a random part, U ~ U(0, 1), of p, of each class: [N, J]."""
    order = np.argsort(-ordered, axis=1)
    p = np.take_along_axis(ordered, order, axis=1)
    U = _uniform(inputs("X", X))[:, None]
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, np.cumsum(p, axis=1) - (1.0 - U) * p, axis=1)
    return scores


def _uniform(X: AnyNDArray | tf.Tensor) -> AnyNDArray:
    """Return numbers in [0, 1) that look random, one for each row and a function of it alone: [N].

    So a row has one set wherever it is predicted, and scores are those of one function of x and y,
    which is all that coverage needs. Probabilities would not do: they have the rounding of products
    with the rows beside them.
    """
    rows = np.asarray(X, "<f8").reshape(len(X), -1) + 0.0  # no zero is negative
    hashes = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(hashes, "<u8") / 2.0**64
