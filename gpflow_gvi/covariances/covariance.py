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


class Covariance(Kernel):
    """A kernel of J independent outputs that gives them one by one.

    With J = 1 it is a plain GPflow kernel: `K(X)` is [N, N] and `K_diag(X)` is [N], and it enters
    sums, products and models as any other. With J > 1 it follows the convention of GPflow's
    `MultioutputKernel`: `K(X, X2, full_output_cov)` is [N, J, N2, J] or [J, N, N2].

    Leading axes of X and X2 are batches, as for GPflow's kernels: `K(X)` is [batch..., N, N] and
    `K(X, X2)` is [batch..., N, batch2..., N2]. Here and only here; the methods that give outputs
    one by one take the data points of one set, which may be images.
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
        X, X2 = images.as_rows(X, self), None if X2 is None else images.as_rows(X2, self)
        covariance = covariance_of_batches(self.output_covariance, X, X2)  # [J, N, N2]
        if self.num_outputs == 1:
            return covariance[0]
        if not full_output_cov:
            return covariance
        columns = 1 if X2 is None else num_axes(X2) - 1
        return outputs.spread(covariance, self.num_outputs, columns)

    def K_diag(self, X: TensorType, full_output_cov: bool = True) -> tf.Tensor:
        """Return r(x, x) for each row of X, without forming r(X, X)."""
        variance = variance_of_batches(self.output_variance, images.as_rows(X, self))  # [N, J]
        if self.num_outputs == 1:
            return variance[..., 0]
        return tf.linalg.diag(variance) if full_output_cov else variance

    def __call__(
        self,
        X: TensorType,
        X2: TensorType | None = None,
        *,
        full_cov: bool = True,
        full_output_cov: bool = True,
        presliced: bool = False,
    ) -> tf.Tensor:
        """Return r(X, X2), or its diagonal; the kernels inside select their own dimensions."""
        if full_cov:
            return self.K(X, X2, full_output_cov)
        if X2 is not None:
            raise ValueError("X2 was given with full_cov=False; the diagonal needs X alone.")
        return self.K_diag(X, full_output_cov)


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
    def factors(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return A and B (None where nothing is added): [J, M, N] each."""

    def prepare(self) -> None:
        """Compute what does not depend on X, for a posterior to keep."""

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return b(x, x) - Σ_m A_m(x)² + Σ_m B_m(x)²: [N, J]."""
        X = images.as_rows(X, self)
        base = self._base(lambda kernel: outputs.variance(kernel, X))
        removed, added = self.factors(X)
        variance = base - outputs.squares(removed)
        if added is not None:
            variance += outputs.squares(added)
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
        removed, added = self.factors(X)
        removed2, added2 = (removed, added) if X2 is None else self.factors(X2)
        base = self._base(lambda kernel: outputs.covariance(kernel, X, X2))
        covariance = base - tf.matmul(removed, removed2, transpose_a=True)
        if added is not None:
            covariance += tf.matmul(added, added2, transpose_a=True)
        if X2 is None:
            diagonal = self._floored(tf.linalg.diag_part(covariance), tf.linalg.diag_part(base))
            covariance = tf.linalg.set_diag(covariance, diagonal)
        shape = tf.shape(covariance)
        return tf.broadcast_to(covariance, [self.num_outputs, shape[1], shape[2]])

    @check_shapes(
        "X: [N, D...]",
        "rows: [G, b]",
        "return: [G, J, b, b]",
    )
    def output_blocks(self, X: TensorType, rows: tf.Tensor) -> tf.Tensor:
        """Return the covariances among the rows of each block, from the factors at all of X."""
        X = images.as_rows(X, self)
        base = self._base(lambda kernel: outputs.blocks(kernel, X, rows))  # [G, J, b, b]

        def squared(factor: tf.Tensor) -> tf.Tensor:
            of_blocks = tf.transpose(tf.gather(factor, rows, axis=-1), [2, 0, 1, 3])
            return tf.matmul(of_blocks, of_blocks, transpose_a=True)

        removed, added = self.factors(X)
        covariance = base - squared(removed)
        if added is not None:
            covariance += squared(added)
        diagonal = self._floored(tf.linalg.diag_part(covariance), tf.linalg.diag_part(base))
        covariance = tf.linalg.set_diag(covariance, diagonal)
        shape = tf.shape(covariance)
        return tf.broadcast_to(covariance, [shape[0], self.num_outputs, shape[2], shape[3]])

    def _base(self, evaluate: Callable[[Kernel], tf.Tensor]) -> tf.Tensor:
        """Return b; a kernel of one output broadcasts against one of J."""
        return functools.reduce(operator.add, map(evaluate, self.base_kernels))

    def _floored(self, variance: tf.Tensor, base: tf.Tensor) -> tf.Tensor:
        """Raise what has rounded below zero."""
        return linalg.floor(variance, base, relative=linalg.epsilon(variance.dtype))


class SparseCovariance(LowRankUpdate):
    """A low-rank update by the covariances of an inducing variable."""

    inducing_variable: InducingVariables


def variance_of_batches(evaluate: Callable[[TensorType], tf.Tensor], X: TensorType) -> tf.Tensor:
    """Return variances [batch..., N, J] by a function from rows [N, D] to [N, J]."""
    variance = evaluate(_as_one(X))
    return variance if num_axes(X) == 2 else _unflatten(variance, tf.shape(X)[:-1], 0)


def covariance_of_batches(
    evaluate: Callable[[TensorType, TensorType | None], tf.Tensor],
    X: TensorType,
    X2: TensorType | None,
) -> tf.Tensor:
    """Return the covariance of each output for batches, by a function of rows: [J, N, N2].

    It is [J, batch..., N, batch2..., N2], or [J, batch..., N, N] of X alone.
    """
    if X2 is not None:
        covariance = evaluate(_as_one(X), _as_one(X2))
        if num_axes(X) == num_axes(X2) == 2:
            return covariance
        leading = tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], 0)
        return tf.reshape(covariance, tf.concat([tf.shape(covariance)[:1], leading], 0))
    if num_axes(X) == 2:
        return evaluate(X, None)
    members = tf.map_fn(  # AutoGraph would convert what lies beneath for longer than it runs
        tf.autograph.experimental.do_not_convert(lambda member: evaluate(member, None)),
        tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], 0)),
    )
    return _unflatten(tf.transpose(members, [1, 0, 2, 3]), tf.shape(X)[:-2], 1)


def num_axes(X: TensorType) -> int:
    """Return the rank of inputs, 2 where it is unknown."""
    return tf.TensorShape(X.shape).rank or 2


def _as_one(X: TensorType) -> TensorType:
    """Return the rows of all batches; inputs without batches are returned as they are."""
    return X if num_axes(X) == 2 else tf.reshape(X, [-1, X.shape[-1]])


def _unflatten(value: tf.Tensor, leading: tf.Tensor, axis: int) -> tf.Tensor:
    """Return a value with one of its axes made several."""
    shape = tf.shape(value)
    return tf.reshape(value, tf.concat([shape[:axis], leading, shape[axis + 1 :]], 0))
