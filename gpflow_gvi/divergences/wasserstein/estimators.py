"""What an estimator of the distance between two covariances is, and those of one formula each."""

from __future__ import annotations

import abc
from collections.abc import Callable

import tensorflow as tf
from gpflow.kernels import Kernel

from ..._core import checks, linalg, outputs
from ...gaussian_process import GaussianVector
from .fidelity import fidelity, trace_of_root


class CovarianceDistance(abc.ABC):
    """An estimator of tr K + tr R - 2 F, what W₂² is apart from the means.

    One output stands for all that share both kernels: J is then 1.
    """

    @abc.abstractmethod
    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return the estimate for each output: [J] or [1]."""


class Exact(CovarianceDistance):
    """F from an eigendecomposition: O(B³), no approximation beyond that of ρ by the batch."""

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        return _distance(q, p, fidelity)


class NewtonSchulz(CovarianceDistance):
    """F from the Newton-Schulz iteration: O(B³) in matrix products, which suit a GPU.

    It is accurate as far as it takes: of an eigenvalue λ of K R that is less than 1.5^(-2n) of the
    largest after n steps a part of √λ is missing, n as many as the precision bears: 41 in double,
    16 in single precision. On a CPU `Exact` is faster.
    """

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        return _distance(q, p, lambda K, R: trace_of_root(tf.matmul(K, R)))


class Marginal(CovarianceDistance):
    """F left out, which gives an upper bound in O(B), of use to compare and not to train.

    What it has of Q's covariance is tr R, least at zero whatever P is: away from the data, where no
    loss holds against it, training takes all variance from Q and leaves it certain in the gaps.
    """

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R, for which variances do: [J]."""
        return tf.reduce_sum(variances(p) + variances(q), axis=-1)


class Landmark(CovarianceDistance):
    """F from the eigenvalues at N_S landmarks: O(B N_S² + N_S³).

    F ≈ √(B / N_S) Σ_i √λ_i( r(X_S, X_B) k(X_B, X_S) ): the eigenvalues of the product of the two
    covariance operators, which Nyström's method takes from the landmarks X_S (Wild et al. 2022).
    The landmarks are rows of the batch at even distances. With all rows it is `Exact`, otherwise
    its error is that of an average over N_S inputs: it does not vanish for smooth kernels, as that
    of `LowRank` does, and the estimate can fall below the distance. That product is not symmetric:
    XLA and GPUs, which have no eigenvalues of such a matrix, take the root by products of matrices
    instead, and miss eigenvalues smaller than one that is clearly negative.

    :param num_landmarks: N_S; all rows of a batch that has no more.
    """

    def __init__(self, num_landmarks: int = 100) -> None:
        checks.count("num_landmarks", num_landmarks)
        self.num_landmarks = num_landmarks

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        B = tf.shape(q.X)[0]
        rows = spread_rows(B, self.num_landmarks)
        every = tf.range(tf.cast(B, rows.dtype))
        R, K = (among_rows(v.process.kernel, v.X, rows, every) for v in (q, p))  # [J, S, B]
        H = tf.matmul(R, K, transpose_b=True)
        roots = _sum_of_roots(H) if linalg.may_call_host() else trace_of_root(H)
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


def _distance(
    q: GaussianVector, p: GaussianVector, fidelity: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Return tr K + tr R - 2 F(K, R), once for outputs that share their kernels: [J]."""
    K, R = (outputs.covariance(each.process.kernel, each.X) for each in (p, q))
    return linalg.not_negative(tf.linalg.trace(K) + tf.linalg.trace(R) - 2.0 * fidelity(K, R))


def variances(vector: GaussianVector) -> tf.Tensor:
    """Return the variances at the inputs, once for outputs that share a kernel: [J, N]."""
    J = outputs.num_outputs(vector.process.kernel)
    return tf.linalg.matrix_transpose(vector.variance[:, :J])


def among_rows(kernel: Kernel, X: tf.Tensor, rows: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Return the covariance between some rows of X and others of X: [J, rows, others].

    A row is no other than itself: what a `White` kernel adds to it is in both.
    """
    some = tf.gather(X, rows)
    covariance = outputs.covariance(kernel, some, tf.gather(X, others))
    variance = tf.linalg.matrix_transpose(outputs.variance(kernel, some))[..., None]  # [J, rows, 1]
    return tf.where(rows[:, None] == others, variance, covariance)


def spread_rows(B: tf.Tensor, count: int) -> tf.Tensor:
    """Return `count` of B rows at even distances, or all B rows if there are fewer: [count]."""
    count = tf.minimum(count, B)
    B, count = tf.cast(B, tf.int64), tf.cast(count, tf.int64)
    return tf.range(count) * B // count
