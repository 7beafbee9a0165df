"""Conformal prediction: intervals and sets of classes with guaranteed coverage.

Split conformal prediction (Vovk, Gammerman and Shafer 2005) computes a score of the error of a
model at each point of held-out data. If these and a new point are exchangeable, the score of the
new point is at most the ⌈(n+1)·coverage⌉-th smallest of theirs with at least the probability
`coverage`, for any model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, RegressionData

from .._core import feature_names, images
from .._core.data import Data, inputs
from .._core.row_blocks import by_blocks
from ..errors import short_repr
from ..likelihoods import are_labels, is_gaussian
from .conformal_quantiles import ConformalQuantiles, order_statistic
from .conformal_sets import ConformalSets
from .tempering import require_finite


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

    :param model: the model.
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

        :param X: the inputs, [N, D].
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
