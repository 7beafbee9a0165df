"""Noise whose variance depends on the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.functions import Function, MeanFunction
from gpflow.utilities import positive
from scipy.optimize import minimize_scalar

from ...regulariser.evidence_fit import BOUNDS_OF_EXPONENT

MIN_RATIO = 0.01
"""Where the pattern is smaller than this, it is taken to be this."""

MAX_RATIO = 100.0
"""Where the pattern is larger than this, it is taken to be this."""

MAX_VARIANCE = 4.0
"""The largest variance of noise, in units of the variance of y: beyond the data a pattern may be
anything, but observations hardly vary more than they do among the data."""


class VaryingNoise(Function):
    """σ²(x) = v h(x)^κ, within bounds: a pattern h of the noise, that v scales and κ flattens.

    With κ = 0 the noise is constant, with κ = 1 it follows the pattern. A GPflow likelihood takes
    it for its variance: `gpflow.likelihoods.Gaussian(VaryingNoise(h))`.

    :param pattern: h, a positive function of [N, D] to [N, J], such as a `CrossFitted` of squared
        residuals.
    :param variance: the start of v.
    :param exponent: the start of κ, which has a normal prior around one half.
    :param bounds: the smallest and the largest σ²(x).
    """

    def __init__(
        self,
        pattern: MeanFunction,
        variance: Any,
        exponent: Any = 0.5,
        bounds: tuple[float, float] = (0.0, np.inf),
    ) -> None:
        super().__init__()
        self.lower, self.upper = map(float, bounds)
        self.pattern = pattern
        self.variance = Parameter(variance, transform=positive(base="exp"))
        half: AnyNDArray = np.asarray(0.5, default_float())
        self.exponent = Parameter(exponent, prior=tfp.distributions.Normal(half, half))

    @check_shapes(
        "X: [N, D]",
        "return: [N, J]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return σ²(X): [N, J]."""
        dtype = default_float()
        bounds = (tf.constant(each, dtype) for each in (MIN_RATIO, MAX_RATIO))
        variance = self.variance * tf.pow(tf.clip_by_value(self.pattern(X), *bounds), self.exponent)
        bounds = (tf.constant(each, dtype) for each in (self.lower, self.upper))
        return tf.clip_by_value(variance, *bounds)


def gain(pattern: AnyNDArray, errors: AnyNDArray) -> float:
    """Return how much the log density of an observation gains by noise that has a pattern.

    It is that of errors under N(0, v h^κ) with the best v and κ, less that with κ = 0:

        ½ log mean(e) - ½ min_κ (log mean(e h^-κ) + κ mean(log h))

    It is that of rows left out if h has not seen them. The function of κ is convex.

    :param pattern: h at the rows: [N, J].
    :param errors: e, squared, there: [N, J].
    """
    mean = np.mean(pattern, axis=0)
    log_h = np.log(np.clip(pattern, MIN_RATIO * mean, MAX_RATIO * mean))

    def loss(exponent: float) -> float:
        scale = np.mean(errors * np.exp(-exponent * log_h), axis=0)
        return 0.5 * float(np.sum(np.log(scale) + exponent * np.mean(log_h, axis=0)))

    found = minimize_scalar(loss, bounds=BOUNDS_OF_EXPONENT, method="bounded")
    return loss(0.0) - float(found.fun)
