"""The distance between two covariances from an eigendecomposition."""

from __future__ import annotations

import tensorflow as tf

from ..._core import linalg
from ...gaussian_process import GaussianVector
from .base import CovarianceDistance, blocks


class Exact(CovarianceDistance):
    """F from an eigendecomposition: O(B³), no approximation beyond that of ρ by the batch."""

    name = "exact"

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        K, R = blocks(p), blocks(q)
        traces = tf.linalg.trace(K) + tf.linalg.trace(R)
        return linalg.not_negative(traces - 2.0 * linalg.fidelity(K, R))

    def error_bound(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return zeros: [J]."""
        return tf.zeros([q.num_outputs], dtype=q.X.dtype)
