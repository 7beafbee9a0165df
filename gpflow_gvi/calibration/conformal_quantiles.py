"""Conformal intervals between quantiles, for observations whose law is not Gaussian."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, RegressionData
from gpflow.likelihoods import SwitchedLikelihood

from .._core import checks, feature_names
from ..errors import NumericsWarning
from ..prediction.predictive_law import central_interval, pit


@dataclass(frozen=True)
class ConformalQuantiles:
    """A model with intervals of guaranteed coverage between quantiles of its predictions.

    The score of an observation is |2 F(y) - 1|, the level of the smallest central interval that
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

        :param X: the inputs.
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
