"""Positive observations on a log scale: the units of y in which relative errors are alike.

    g(y) = log(y / t)     up to the largest observation t,
    g(y) = (y - t) / t    beyond it,

so that predictions are positive and those far beyond the data grow no faster than on the scale of y
itself. g and its derivative are continuous.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from scipy import stats

from ..row_facts import spacing
from .scaling import Scaling

STEP, LARGEST = 0.1, 20.0
"""Nodes of expectations are sinh(u) for u from -20 to 20: Student's t has moments from far away."""

NEGLIGIBLE = 1e-12
"""What a node has to add to the moments of a variance of one."""


@dataclasses.dataclass(frozen=True)
class LogScale:
    """y ↦ (g(y) - shift) / scale, for each column of positive numbers."""

    top: AnyNDArray
    """t, the largest observation: [J]."""
    linear: Scaling
    """Standard units of g(y)."""
    scale: AnyNDArray
    """The standard deviation of y, in its units: [J]."""
    zero: AnyNDArray | float = 0.0
    """What y = 0 counts as, which a new observation may be rounded to: a quarter of the grid that y
    is on, or zero where there is none: [J]."""

    @classmethod
    def of(cls, Y: AnyNDArray) -> LogScale:
        """Return the scale of observations, all positive: [N, J]."""
        top = np.max(Y, axis=0)
        grid = np.array([spacing(y) for y in Y.T], Y.dtype)
        zero = np.where(np.isfinite(grid), 0.25 * grid, np.zeros_like(grid))
        return cls(top, Scaling.of(np.log(Y / top)), Scaling.of(Y).scale, zero)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self.linear.input_shape

    def standard(self, values: TensorType) -> tf.Tensor:
        """Return observations in standard units: the least number if they are not positive."""
        return self.scaled(self.linear.validated(values))

    def scaled(self, values: tf.Tensor) -> tf.Tensor:
        """Return validated observations in standard units."""
        ratio = tf.where(values == 0.0, self.zero, values) / self.top
        logs = tf.clip_by_value(tf.math.log(tf.maximum(ratio, 0.0)), self._least, 0.0)
        return self.linear.scaled(tf.where(ratio > 1.0, ratio - 1.0, logs))

    def original(self, values: TensorType) -> tf.Tensor:
        """Return values of standard units in original units."""
        z = self.linear.original(values)
        return self.top * tf.where(z > 0.0, 1.0 + z, tf.exp(tf.minimum(z, tf.zeros_like(z))))

    @property
    def _least(self) -> float:
        """What the logarithm of zero and less counts as."""
        return float(np.log(np.finfo(self.top.dtype).tiny))

    def slope(self, standard: TensorType) -> tf.Tensor:
        """Return dz/dy at values z of standard units, 0 where y is not positive: [N, J]."""
        z = self.linear.original(standard)
        slope = tf.exp(-tf.minimum(z, tf.zeros_like(z))) / (self.top * self.linear.scale)
        return tf.where(z > 0.999 * self._least, slope, tf.zeros_like(z))

    def log_derivative(self, standard: TensorType) -> tf.Tensor:
        """Return Σ_j log dz/dy at values z of standard units: [N]; -∞ where y is not positive."""
        return tf.reduce_sum(tf.math.log(self.slope(standard)), axis=-1)

    def moments(self, mean: TensorType, variance: TensorType, df: Any = None) -> MeanAndVariance:
        """Return mean and variance in original units, given those in standard units: [N, J] each.

        They are integrals over a Gaussian or a Student's t, by the trapezoidal rule.

        :param df: the degrees of freedom of Student's t, [J].
        """
        dtype = self.top.dtype
        z, weights = _nodes(df, len(self.top), dtype)  # [S, J] each
        nodes = mean + tf.sqrt(variance) * tf.constant(z[:, None, :])  # [S, N, J]
        y = self.original(nodes)
        w = tf.constant(weights[:, None, :])
        average = tf.reduce_sum(w * y, axis=0)
        return average, tf.reduce_sum(w * tf.square(y - average), axis=0)


def _nodes(df: Any, J: int, dtype: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """Return nodes of mean zero and variance one, and their weights: [S, J] each."""
    u = np.arange(-LARGEST, LARGEST + 0.5 * STEP, STEP)[:, None]
    z = np.sinh(u) + np.zeros(J)
    if df is None:
        density = stats.norm.pdf(z)
    else:
        nu = np.broadcast_to(np.asarray(df, dtype=float), (J,))
        density = stats.t.pdf(z, nu, scale=np.sqrt((nu - 2.0) / nu))
    weights = density * np.cosh(u)
    weights /= np.sum(weights, axis=0)
    counts = np.any(weights * (1.0 + np.square(z)) > NEGLIGIBLE, axis=1)
    return z[counts].astype(dtype), weights[counts].astype(dtype)
