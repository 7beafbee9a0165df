"""Predictions of each observation by all others, in closed form.

With hyper-parameters and inducing points fixed, the sparse posterior is that of a Bayesian linear
regression on the features A = L⁻¹ K_ZX. Observations are taken out of the posterior N(μ, v) of the
linear part of f by division with their Gaussians (Rasmussen and Williams 2006, sections 3.6.1 and
5.4.2). Those of a group g of rows with equal inputs, which have f in common, are taken out at once:

    v₋ = v / (1 - v Σ_g 1/σ²),    μ₋ = (μ - v Σ_g y/σ²) / (1 - v Σ_g 1/σ²)

What P's kernel has beyond the features, k - AᵀA, learns nothing from observations and is added.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, RegressionData, TensorType

from .._core import checks, linalg, outputs, row_blocks
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from .conditioning import precision_and_projection
from .exact_evidence import exact_evidence


def leave_one_out_of_all(
    prior: GaussianProcess,
    noise_variance: TensorType,
    data: RegressionData,
    groups: AnyNDArray | None = None,
) -> MeanAndVariance | None:
    """Return the same without inducing points; None where NumPy does not know the kernel.

    With S = K + diag σ² and α = S⁻¹(y - m) the posterior of f at a row has the mean y - σ²α and the
    variance v = σ² - σ⁴ [S⁻¹]_nn (Rasmussen and Williams 2006, eq. 5.12), which the evidence has as
    derivatives.

    :param prior: P before it is conditioned.
    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    :param data: (X, Y).
    :param groups: the group of each row, which rows of equal inputs share, [N]; by default each row
        is one.
    """
    X, Y = (np.asarray(part) for part in data)
    noise = np.broadcast_to(np.asarray(noise_variance), Y.shape)
    if X.dtype != np.float64 or not has_numpy_kernel(prior.kernel, X.shape[1:]):
        return None
    residual = Y - np.asarray(prior.mean_function(X))
    try:
        found = exact_evidence(numpy_kernel(prior.kernel, X), noise, residual)
    except np.linalg.LinAlgError:  # with inducing points there is more jitter
        return None
    alpha = -found.by_residual
    precision = np.square(alpha) - 2.0 * found.by_noise
    if groups is None or len(np.unique(groups)) == len(groups):
        return Y - alpha / precision, 1.0 / precision
    share = noise * (1.0 / noise - precision)  # v/σ²
    f = residual - noise * alpha
    others = 1.0 - noise * share * _sums(1.0 / noise, groups)
    mean = (f - noise * share * _sums(residual / noise, groups)) / others
    return Y - residual + mean, noise * share / others + noise


def leave_one_out(
    prior: GaussianProcess,
    noise_variance: TensorType,
    Z: TensorType,
    data: RegressionData,
    groups: AnyNDArray | None = None,
) -> MeanAndVariance:
    """Return mean and variance of each y given those of all other groups: [N, J] each.

    :param prior: P before it is conditioned.
    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    :param Z: the inducing points, [M, D].
    :param data: (X, Y).
    :param groups: the group of each row, which rows of equal inputs share, [N]; by default each row
        is one.
    """
    checks.positive("noise_variance", noise_variance)
    X, Y = (tf.convert_to_tensor(part) for part in data)
    kernel, inducing_variable = prior.kernel, gram.as_inducing_variable(Z)
    m = prior.mean_function(X)  # [N, J]
    residual = tf.linalg.matrix_transpose(Y - m)  # [J, N]
    noise = outputs.noise_of_rows(noise_variance) + tf.zeros_like(residual[:1])  # [J, N]
    blocks = list(row_blocks.slices(len(X)))
    features = [gram.features(kernel, inducing_variable, X[rows]) for rows in blocks]
    B, b = precision_and_projection(
        (A, noise[:, rows], residual[:, rows]) for rows, A in zip(blocks, features, strict=True)
    )
    L = linalg.cholesky(B)
    weights = tf.linalg.triangular_solve(L, b)  # [J, M, 1]
    found = []
    for rows, A in zip(blocks, features, strict=True):
        S = tf.linalg.triangular_solve(L, A)  # [J, M, N]
        beyond = tf.linalg.matrix_transpose(outputs.variance(kernel, X[rows]))
        beyond = tf.nn.relu(beyond - tf.reduce_sum(tf.square(A), axis=-2))  # [J, N]
        mean = tf.linalg.matmul(S, weights, transpose_a=True)[..., 0]  # [J, N]
        found.append((mean, tf.reduce_sum(tf.square(S), axis=-2), beyond))
    parts = zip(*found, strict=True)
    mean, variance, beyond = (tf.concat(each, axis=-1) for each in parts)  # [J, N]
    mean, variance = _without_group(mean, variance, noise, residual, groups)
    variance += beyond + noise
    return m + tf.linalg.matrix_transpose(mean), tf.linalg.matrix_transpose(variance)


def _without_group(
    mean: tf.Tensor,
    variance: tf.Tensor,
    noise: tf.Tensor,
    residual: tf.Tensor,
    groups: AnyNDArray | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return μ₋ and v₋ of the linear part of f at each row: [J, N] each.

    :param mean: μ, [J, N].
    :param variance: v, [J, N].
    :param noise: σ², [J, N].
    :param residual: y - m, [J, N].
    """
    precision, information = 1.0 / noise, residual / noise
    if groups is not None:
        count = int(np.max(groups)) + 1

        def of_group(values: tf.Tensor) -> tf.Tensor:
            columns = tf.linalg.matrix_transpose(values)
            sums = tf.math.unsorted_segment_sum(columns, groups, count)
            return tf.linalg.matrix_transpose(tf.gather(sums, groups))

        precision, information = of_group(precision), of_group(information)
    # The share of a group in its own prediction is below one, but for rounding.
    largest = 1.0 - 1e3 * np.finfo(mean.dtype.as_numpy_dtype).eps
    share = tf.minimum(variance * precision, tf.constant(largest, mean.dtype))
    mean = (mean - variance * information) / (1.0 - share)
    return mean, variance / (1.0 - share) + tf.zeros_like(mean)


def _sums(values: AnyNDArray, groups: AnyNDArray) -> AnyNDArray:
    """Return the sum over the group of each row: [N, J]."""
    sums = np.zeros((int(np.max(groups)) + 1, values.shape[1]))
    np.add.at(sums, groups, values)
    return sums[groups]
