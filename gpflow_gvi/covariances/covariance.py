"""Variational covariances r: GPflow kernels made of a base kernel and an inducing variable."""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from .._core import images, linalg, outputs
from ..kernels.feature_map import OnWholeInputs


class Covariance(OnWholeInputs):
    """A kernel of J independent outputs that gives them one by one.

    With J = 1 it is a plain GPflow kernel: `K(X)` is [N, N] and `K_diag(X)` is [N], and it enters
    sums, products and models as any other. With J > 1 it follows the convention of GPflow's
    `MultioutputKernel`: `K(X, X2, full_output_cov)` is [N, J, N2, J] or [J, N, N2].

    X and X2 are the data points of one set, which may be images, and no batches of such sets.
    """

    num_outputs: int

    @abc.abstractmethod
    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return r(x, x) of each output: [N, J]."""

    @abc.abstractmethod
    def output_covariance(self, X: TensorType, X2: TensorType | None) -> tf.Tensor:
        """Return r(X, X2) of each output: [J, N, N2]."""

    def K(
        self, X: TensorType, X2: TensorType | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        """Return r(X, X2)."""
        X, X2 = one_set(X, self), None if X2 is None else one_set(X2, self)
        covariance = self.output_covariance(X, X2)  # [J, N, N2]
        if self.num_outputs == 1:
            return covariance[0]
        return outputs.spread(covariance, self.num_outputs) if full_output_cov else covariance

    def K_diag(self, X: TensorType, full_output_cov: bool = True) -> tf.Tensor:
        """Return r(x, x) for each row of X, without forming r(X, X)."""
        variance = self.output_variance(one_set(X, self))  # [N, J]
        if self.num_outputs == 1:
            return variance[..., 0]
        return tf.linalg.diag(variance) if full_output_cov else variance


class LowRankUpdate(Covariance):
    """Base kernels with a low-rank part subtracted and another one added: r = b - AᵀA + BᵀB.

    The factors A and B have one column per input and M rows, one per inducing variable or
    observation, so the diagonal costs O(N M²) and no more memory than they do.
    """

    @property
    @abc.abstractmethod
    def base_kernels(self) -> tuple[Kernel, ...]:
        """The kernels whose sum is b."""

    @abc.abstractmethod
    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return A, and B where something is added: [J, M, N] each."""

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return b(x, x) - Σ_m A_m(x)² + Σ_m B_m(x)²: [N, J]."""
        X = images.as_rows(X, self)
        base = self._base(lambda kernel: outputs.variance(kernel, X))
        removed, *added = self.factors(X)
        variance = base - outputs.squares(removed)
        for factor in added:
            variance += outputs.squares(factor)
        variance = self._floored(variance, base)
        return tf.broadcast_to(variance, [tf.shape(variance)[0], self.num_outputs])

    @check_shapes(
        "X: [N, D...]",
        "X2: [N2, D...]",
        "return: [J, N, N] if X2 is None",
        "return: [J, N, N2] if X2 is not None",
    )
    def output_covariance(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return b(X, X2) - A(X)ᵀ A(X2) + B(X)ᵀ B(X2): [J, N, N2]."""
        X, X2 = images.as_rows(X, self), None if X2 is None else images.as_rows(X2, self)
        base = self._base(lambda kernel: outputs.covariance(kernel, X, X2))
        left = self.factors(X)
        right = left if X2 is None else self.factors(X2)
        covariance = base - tf.matmul(left[0], right[0], transpose_a=True)
        for factor, factor2 in zip(left[1:], right[1:], strict=True):
            covariance += tf.matmul(factor, factor2, transpose_a=True)
        if X2 is None:
            diagonal = self._floored(tf.linalg.diag_part(covariance), tf.linalg.diag_part(base))
            covariance = linalg.with_diagonal(covariance, diagonal)
        shape = tf.shape(covariance)
        return tf.broadcast_to(covariance, [self.num_outputs, shape[1], shape[2]])

    def _base(self, evaluate: Callable[[Kernel], tf.Tensor]) -> tf.Tensor:
        """Return b; a kernel of one output broadcasts against one of J."""
        return functools.reduce(operator.add, map(evaluate, self.base_kernels))

    def _floored(self, variance: tf.Tensor, base: tf.Tensor) -> tf.Tensor:
        """Raise what has rounded below zero."""
        return linalg.floor(variance, base, relative=linalg.epsilon(variance.dtype))


class SparseCovariance(LowRankUpdate):
    """A low-rank update by the covariances of an inducing variable."""

    inducing_variable: InducingVariables


def one_set(X: TensorType, kernel: Kernel) -> tf.Tensor:
    """Return the rows of one set of inputs; raise for a batch of sets."""
    X = images.as_rows(tf.convert_to_tensor(X), kernel)
    images.require_rows(X, kernel)
    return X
