"""Kernels output by output, for all of GPflow's kinds of multi-output kernels.

A Gaussian process here has J outputs. Its kernel may be one of GPflow's single-output kernels
(shared by all outputs), a `MultioutputKernel`, one of our covariances, or a sum or product of such.
These functions give for all of them: marginal variances `[N, J]`, covariances of each output
`[J, N, N2]`, and the joint covariance of all outputs `[N, J, N2, J]`, where J = 1 stands for
"shared by however many outputs there are".
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.functions import Additive, MeanFunction
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    Product,
    SeparateIndependent,
    SharedIndependent,
    Sum,
)
from gpflow.likelihoods import Gaussian

from .memo import once


@runtime_checkable
class OutputwiseKernel(Protocol):
    """A kernel that gives the variances and covariances of its outputs itself."""

    @property
    def num_outputs(self) -> int:
        """The number J of independent outputs."""

    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return the marginal variances: [N, J]."""

    def output_covariance(self, X: TensorType, X2: TensorType | None) -> tf.Tensor:
        """Return the covariance of each output: [J, N, N2]."""


def num_outputs(kernel: Kernel) -> int:
    """Return the number of outputs; 1 for a kernel that any number of outputs can share."""
    if isinstance(kernel, OutputwiseKernel):
        return kernel.num_outputs
    if isinstance(kernel, LinearCoregionalization):
        return int(kernel.W.shape[0])
    if isinstance(kernel, MultioutputKernel):
        return int(kernel.num_latent_gps)
    if isinstance(kernel, Sum | Product):
        return agreed(
            map(num_outputs, kernel.kernels),
            f"the parts of {type(kernel).__name__} have {{}} outputs; kernels that are added or "
            "multiplied must have one output or the same number.",
        )
    return 1


def noise_of_rows(noise_variance: TensorType) -> tf.Tensor:
    """Return noise variances with outputs first, as covariances have them: [J, N].

    J or N is 1 where it is the same for all outputs, or for all rows.

    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    """
    noise_variance = tf.convert_to_tensor(noise_variance, dtype=default_float())
    if noise_variance.shape.rank == 2:
        return tf.linalg.matrix_transpose(noise_variance)
    return tf.reshape(noise_variance, [-1, 1])


def noise_variance_at(likelihood: Gaussian, X: TensorType, J: int) -> TensorType:
    """Return σ², one for all outputs or [J]; where it is a function, that of each row: [N, J]."""
    noise = likelihood.scale if likelihood.variance is None else likelihood.variance
    if isinstance(noise, Parameter):
        return noise if likelihood.scale is None else tf.square(noise)
    rows = [tf.shape(X)[0], J]
    return likelihood.conditional_variance(X, tf.zeros(rows, default_float()))


def agreed(counts: Iterable[int], disagreement: str) -> int:
    """Return the number of outputs that all parts have which do not have 1, shared by any number.

    :param disagreement: the message where these numbers differ; `{}` stands for them.
    """
    distinct = set(counts) - {1}
    if len(distinct) > 1:
        raise ValueError(disagreement.format(sorted(distinct)))
    return distinct.pop() if distinct else 1


def correlated(kernel: Kernel) -> bool:
    """Return True if the outputs of the kernel are correlated with one another."""
    if isinstance(kernel, Sum | Product):
        return any(correlated(part) for part in kernel.kernels)
    is_independent = isinstance(kernel, SharedIndependent | SeparateIndependent)
    return isinstance(kernel, MultioutputKernel) and not is_independent


@once
def mean(mean_function: MeanFunction, X: TensorType) -> tf.Tensor:
    """Return m(X), of a sum part by part: [N, J]."""
    if type(mean_function) is Additive:
        return mean(mean_function.add_1, X) + mean(mean_function.add_2, X)
    return mean_function(X)


def require_columns(name: str, Y: TensorType, mean_function: MeanFunction, X: TensorType) -> None:
    """Raise unless observations have the columns of m(X), or m has one that all of them share.

    :param name: what to call Y in a message.
    """
    columns = mean(mean_function, X[:1]).shape[-1]
    if columns not in (None, 1, Y.shape[-1]):
        raise ValueError(
            f"{name} has {Y.shape[-1]} columns, but the mean function has {columns} outputs. Give "
            f"{name} {columns} columns, or take a mean function of one output, which all share."
        )


@once
def variance(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """Return the marginal variances of the outputs: [N, J]."""
    if isinstance(kernel, OutputwiseKernel):
        return kernel.output_variance(X)
    # Called, GPflow's kernels of independent outputs forget the `active_dims` of their parts.
    if isinstance(kernel, SharedIndependent):
        return tf.concat([variance(kernel.kernel, X)] * num_outputs(kernel), axis=-1)
    if isinstance(kernel, SeparateIndependent):
        return tf.concat([variance(part, X) for part in kernel.kernels], axis=-1)
    if isinstance(kernel, MultioutputKernel):
        return kernel(X, full_cov=False, full_output_cov=False)
    if isinstance(kernel, Sum | Product):
        return _combine(kernel, lambda part: variance(part, X))
    return kernel(X, full_cov=False)[..., None]


def covariance(kernel: Kernel, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
    """Return the covariance of each output: [J, N, N2]."""
    if isinstance(kernel, OutputwiseKernel):
        return kernel.output_covariance(X, X2)
    if isinstance(kernel, SharedIndependent):
        return tf.concat([covariance(kernel.kernel, X, X2)] * num_outputs(kernel), axis=0)
    if isinstance(kernel, SeparateIndependent):
        return tf.concat([covariance(part, X, X2) for part in kernel.kernels], axis=0)
    if isinstance(kernel, MultioutputKernel):
        return kernel(X, X2, full_cov=True, full_output_cov=False)
    if isinstance(kernel, Sum | Product):
        return _combine(kernel, lambda part: covariance(part, X, X2))
    return tf.expand_dims(kernel(X, X2), 0)


def joint_variance(kernel: Kernel, X: TensorType, J: int) -> tf.Tensor:
    """Return the covariance between the J outputs at each input: [N, J, J]."""
    if correlated(kernel):
        return _of_correlated(kernel, X, None, J, full_cov=False)
    marginal = variance(kernel, X)  # [N, J] or [N, 1]
    return tf.linalg.diag(tf.broadcast_to(marginal, [tf.shape(marginal)[0], J]))


def joint_covariance(kernel: Kernel, X: TensorType, X2: TensorType | None, J: int) -> tf.Tensor:
    """Return the covariance between all outputs at all inputs: [N, J, N2, J]."""
    if correlated(kernel):
        return _of_correlated(kernel, X, X2, J, full_cov=True)
    return spread(covariance(kernel, X, X2), J)


def _of_correlated(
    kernel: Any, X: TensorType, X2: TensorType | None, J: int, *, full_cov: bool
) -> tf.Tensor:
    """Return one of the two for a kernel whose outputs are correlated."""
    if not isinstance(kernel, Sum | Product):
        return kernel(X, X2, full_cov=full_cov, full_output_cov=True)

    def evaluate(part: Kernel) -> tf.Tensor:
        # A shared kernel is a factor of every block of a product. In a sum it is another one for
        # each output: it adds an independent function.
        if isinstance(kernel, Product) and num_outputs(part) == 1:
            if full_cov:
                return covariance(part, X, X2)[0, :, None, :, None]  # [N, 1, N2, 1]
            return variance(part, X)[..., None]  # [N, 1, 1]
        return joint_covariance(part, X, X2, J) if full_cov else joint_variance(part, X, J)

    return _combine(kernel, evaluate)


def spread(blocks: tf.Tensor, J: int) -> tf.Tensor:
    """Return [J, N, N2] covariances of independent outputs as one of [N, J, N2, J]."""
    blocks = tf.broadcast_to(blocks, tf.concat([[J], tf.shape(blocks)[1:]], 0))
    values = tf.linalg.diag(tf.transpose(blocks, [1, 2, 0]))  # [N, N2, J, J]
    return tf.transpose(values, [0, 2, 1, 3])


def squares(factor: tf.Tensor) -> tf.Tensor:
    """Return Σ_m F_m(x)²: from [J, M, N] to [N, J]."""
    return tf.linalg.matrix_transpose(tf.reduce_sum(tf.square(factor), axis=-2))


def _combine(kernel: Sum | Product, evaluate: Callable[[Kernel], Any]) -> tf.Tensor:
    reduction = operator.add if isinstance(kernel, Sum) else operator.mul
    return functools.reduce(reduction, map(evaluate, kernel.kernels))
