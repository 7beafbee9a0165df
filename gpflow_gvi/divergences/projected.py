"""Projected divergences: the average over x of D_0[Q_x, P_x], one-dimensional Gaussians.

They cost O(1) for each input, and need no more of Q and P than their marginals. Throughout,
q = σ_q²(x) and p = σ_p²(x) are the variances and δ = μ_q(x) - μ_p(x). The formulas are those of Wu
(2023), "Generalised variational inference for Gaussian processes", section 7.2, where they are
right there; otherwise the class says so.
"""

from __future__ import annotations

import abc
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.config import default_float

from .._core import checks, linalg
from ..gaussian_process import GaussianVector
from .base import Divergence
from .contexts import Context


class ProjectedDivergence(Divergence):
    """The average over x of D_0[Q_x, P_x], summed over independent outputs."""

    @check_shapes(
        "q_mean: [broadcast batch...]",
        "q_variance: [broadcast batch...]",
        "p_mean: [broadcast batch...]",
        "p_variance: [broadcast batch...]",
        "return: [batch...]",
    )
    def between(self, q_mean: Any, q_variance: Any, p_mean: Any, p_variance: Any) -> tf.Tensor:
        """Return D_0[N(q_mean, q_variance), N(p_mean, p_variance)], elementwise."""
        q_mean, q, p_mean, p = map(_as_floats, (q_mean, q_variance, p_mean, p_variance))
        return self._between(q_mean - p_mean, q, p)

    @abc.abstractmethod
    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        """Return D_0 for the difference of means δ and the variances q and p."""

    def _over_outputs(self, values: tf.Tensor) -> tf.Tensor:
        """Return D_0 of independent outputs from that of each: [N, J] to [N]."""
        return tf.reduce_sum(values, axis=-1)

    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        values = self.between(q.mean, q.variance, p.mean, p.variance)  # [N, J]
        return tf.reduce_mean(self._over_outputs(values))


class ProjectedRenyi(ProjectedDivergence):
    """The Rényi divergence of order α from Q_x to P_x.

    ½ log(p/q) + log(p/s) / (2(α-1)) + α δ²/(2s),  s = αp + (1-α)q;  +∞ where s ≤ 0.
    Gil, Alajaji and Linder (2013), table 2. α = 1 is KL(Q‖P), α = ½ twice Bhattacharyya.

    :param alpha: the order α > 0.
    :param context: where to evaluate it instead of at the inputs that it is given.
    """

    def __init__(self, alpha: float = 0.5, *, context: Context | None = None) -> None:
        super().__init__(context=context)
        checks.positive_number("alpha", alpha)
        self.alpha = float(alpha)

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        excess = (1.0 - self.alpha) * (q - p) / p  # s/p - 1
        if self.alpha <= 1.0:  # s ≥ αp
            return self._where_finite(delta, q, p, excess)
        is_finite = excess > -1.0
        value = self._where_finite(delta, q, p, tf.where(is_finite, excess, tf.zeros_like(excess)))
        return tf.where(is_finite, value, tf.constant(float("inf"), dtype=value.dtype))

    def _where_finite(
        self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor, excess: tf.Tensor
    ) -> tf.Tensor:
        # With c = 1-α and t = q/p - 1, log1p(ct)/c has the limit t at c = 0.
        c = 1.0 - self.alpha
        stretch = tf.math.log1p(excess) / c if c else (q - p) / p
        shift = self.alpha * tf.square(delta) / (p * (1.0 + excess))
        return linalg.not_negative(0.5 * (tf.math.log(p) - tf.math.log(q) + stretch + shift))


class ProjectedKL(ProjectedDivergence):
    """KL(Q_x‖P_x) = ½ ( q/p + δ²/p - 1 + log(p/q) ); the logarithm is not as printed there."""

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        logs = tf.math.log(p) - tf.math.log(q)
        return linalg.not_negative(0.5 * ((q - p) / p + tf.square(delta) / p + logs))


class ProjectedReverseKL(ProjectedDivergence):
    """KL(P_x‖Q_x) = ½ ( p/q + δ²/q - 1 + log(q/p) ), there the KL, with another logarithm."""

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return ProjectedKL()._between(delta, p, q)


class ProjectedBhattacharyya(ProjectedDivergence):
    """¼ δ²/(p+q) + ½ log( (p+q) / (2√(pq)) )."""

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        # (p+q) / (2√(pq)) - 1 = (√p - √q)² / (2√(pq)), which does not cancel at p = q.
        root_p, root_q = tf.sqrt(p), tf.sqrt(q)
        mismatch = tf.square(root_p - root_q) / (2.0 * root_p * root_q)
        return 0.25 * tf.square(delta) / (p + q) + 0.5 * tf.math.log1p(mismatch)


class ProjectedHellinger(ProjectedDivergence):
    """The squared Hellinger distance, 1 - √(2√(pq)/(p+q)) exp(-¼ δ²/(p+q)).

    The sign in the exponent is not as printed there. It is one minus the exponential of minus
    Bhattacharyya, so over independent outputs it is 1 - Π_j (1 - H²_j) and no sum.
    """

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return -tf.math.expm1(-ProjectedBhattacharyya()._between(delta, q, p))

    def _over_outputs(self, values: tf.Tensor) -> tf.Tensor:
        return 1.0 - tf.reduce_prod(1.0 - values, axis=-1)


class ProjectedWasserstein(ProjectedDivergence):
    """The squared 2-Wasserstein distance, δ² + (√p - √q)²."""

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.square(delta) + tf.square(tf.sqrt(p) - tf.sqrt(q))


class ProjectedSquaredDifference(ProjectedDivergence):
    """δ² + (q - p)², the naive divergence there."""

    def _between(self, delta: tf.Tensor, q: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.square(delta) + tf.square(q - p)


def _as_floats(value: Any) -> tf.Tensor:
    if isinstance(value, tf.Tensor | tf.Variable | Parameter):
        return tf.convert_to_tensor(value)
    return tf.cast(value, default_float())
