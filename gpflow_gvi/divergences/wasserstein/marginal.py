"""The distance between two covariances without what they have in common."""

from __future__ import annotations

import tensorflow as tf

from ...gaussian_process import GaussianVector
from .base import CovarianceDistance, variances


class Marginal(CovarianceDistance):
    """F left out, which gives an upper bound in O(B)."""

    name = "marginal"

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R: [J]."""
        return tf.reduce_sum(variances(p) + variances(q), axis=-1)

    def error_bound(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return 2 Σ_b √(k_b r_b), which 2 F cannot exceed: [J].

        Measuring in a basis, here reading the diagonals, does not lower a fidelity (Nielsen and
        Chuang 2010, section 9.2.2).
        """
        return 2.0 * tf.reduce_sum(tf.sqrt(variances(p) * variances(q)), axis=-1)
