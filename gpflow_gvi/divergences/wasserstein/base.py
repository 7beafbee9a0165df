"""What an estimator of the distance between two covariances is."""

from __future__ import annotations

import abc
from typing import ClassVar

import tensorflow as tf
from gpflow.kernels import Kernel

from ..._core import outputs
from ...gaussian_process import GaussianVector


class CovarianceDistance(abc.ABC):
    """An estimator of tr K + tr R - 2 F, what W₂² is apart from the means.

    Of outputs that share both kernels one stands for all: J is then 1.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return the estimate for each output: [J] or [1]."""

    def error_bound(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return what the error of the estimate cannot exceed, for each output: [J] or [1]."""
        raise NotImplementedError(
            f"no bound is known for the error of the estimator {self.name!r}. Compare it with "
            "'exact' on some hundred inputs, or take 'low_rank'."
        )


def blocks(vector: GaussianVector) -> tf.Tensor:
    """Return the covariance at the inputs, once for outputs that share a kernel: [J, N, N]."""
    return outputs.covariance(vector.process.kernel, vector.X)


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
    return tf.cast(tf.range(count, dtype=tf.int64) * tf.cast(B, tf.int64), tf.int64) // tf.cast(
        count, tf.int64
    )
