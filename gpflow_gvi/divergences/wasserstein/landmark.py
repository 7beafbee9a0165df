"""The distance between two covariances by way of a few of the inputs."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ..._core import checks, linalg
from ...gaussian_process import GaussianVector
from .base import CovarianceDistance, among_rows, spread_rows, variances


class Landmark(CovarianceDistance):
    """F from the eigenvalues at N_S landmarks: O(B N_S² + N_S³).

    F ≈ √(B / N_S) Σ_i √λ_i( r(X_S, X_B) k(X_B, X_S) ): the eigenvalues of the product of the two
    covariance operators, which Nyström's method takes from the landmarks X_S (Wild et al. 2022).
    The landmarks are rows of the batch at even distances. With all rows it is `Exact`, otherwise
    its error is that of an average over N_S inputs: it does not vanish for smooth kernels, as that
    of `LowRank` does, and the estimate can fall below the distance.

    :param num_landmarks: N_S; all rows of a batch that has no more.
    """

    name = "landmark"

    def __init__(self, num_landmarks: int = 100) -> None:
        checks.count("num_landmarks", num_landmarks)
        self.num_landmarks = num_landmarks

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        B = tf.shape(q.X)[0]
        rows = spread_rows(B, self.num_landmarks)
        every = tf.range(tf.cast(B, rows.dtype))
        R, K = (among_rows(v.process.kernel, v.X, rows, every) for v in (q, p))  # [J, S, B]
        roots = _sum_of_roots(tf.matmul(R, K, transpose_b=True))
        fidelity = tf.sqrt(tf.cast(B / tf.size(rows), roots.dtype)) * roots
        traces = tf.reduce_sum(variances(p) + variances(q), axis=-1)
        return linalg.not_negative(traces - 2.0 * fidelity)


@tf.custom_gradient
def _sum_of_roots(H: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Return Re Σ_i √λ_i of a matrix that is not symmetric, [..., S, S] to [...].

    Its gradient is ½ Re H^(-½)ᵀ, damped where λ is lost in rounding.
    """
    eigenvalues, vectors = tf.linalg.eig(H)
    roots = tf.sqrt(eigenvalues)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        sizes = tf.abs(eigenvalues)
        rounding = linalg.epsilon(H.dtype) * tf.cast(tf.shape(H)[-1], H.dtype)
        tiny = rounding * tf.reduce_max(sizes, axis=-1, keepdims=True)
        inverse_roots = tf.math.conj(roots) / tf.cast(
            sizes + tiny + tf.constant(1e-30, dtype=H.dtype), roots.dtype
        )
        # The eigenvectors of a matrix that is nearly singular may be dependent, up to rounding.
        identity = tf.eye(tf.shape(H)[-1], batch_shape=tf.shape(H)[:-2], dtype=vectors.dtype)
        inverse = tf.linalg.lstsq(vectors, identity, fast=False)
        inner = tf.matmul(vectors * inverse_roots[..., None, :], inverse)
        return 0.5 * upstream[..., None, None] * tf.linalg.matrix_transpose(tf.math.real(inner))

    return tf.reduce_sum(tf.math.real(roots), axis=-1), gradient
