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

from .._core import checks, row_blocks
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from .conditioning import Posterior
from .exact_evidence import exact_evidence


def leave_one_out_of_all(
    prior: GaussianProcess,
    noise_variance: TensorType,
    data: RegressionData,
    groups: AnyNDArray | None = None,
) -> MeanAndVariance | None:
    """Return `leave_one_out` without inducing points; None where NumPy does not know the kernel.

    With S = K + diag σ² and α = S⁻¹(y - m) the posterior of f at a row has the mean y - σ²α and the
    variance v = σ² - σ⁴ [S⁻¹]_nn (Rasmussen and Williams 2006, eq. 5.12), which the evidence has as
    derivatives.
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
    precision = np.square(alpha) - 2.0 * found.by_noise  # [S⁻¹]_nn
    f, variance = residual - noise * alpha, noise * (1.0 - noise * precision)
    f, variance = _without_group(f, variance, noise, residual, groups)
    return Y - residual + f, variance + noise


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
    :param groups: the group of each row, which rows of equal inputs share, [N]; by default each row
        is one.
    """
    checks.positive("noise_variance", noise_variance)
    X, Y = (tf.convert_to_tensor(part) for part in data)
    kernel = prior.kernel
    inducing_variable = gram.as_inducing_variable(Z, gram.DistinctPoints)
    residual = np.asarray(Y - prior.mean_function(X))
    noise = np.broadcast_to(np.asarray(noise_variance), residual.shape)
    blocks = list(row_blocks.slices(len(X)))
    features = [gram.features(kernel, inducing_variable, X[rows]) for rows in blocks]
    posterior = Posterior.given(
        (A, noise[rows].T, residual[rows].T) for rows, A in zip(blocks, features, strict=True)
    )
    f, variance = (
        np.concatenate(parts, axis=-1).T  # [N, J]
        for parts in zip(*map(posterior.linear_part, features), strict=True)
    )
    beyond = np.concatenate(
        [gram.rest(kernel, X[rows], A) for rows, A in zip(blocks, features, strict=True)]
    )
    f, variance = _without_group(f, variance, noise, residual, groups)
    return Y - residual + f, variance + beyond + noise


def _without_group(
    f: AnyNDArray,
    variance: AnyNDArray,
    noise: AnyNDArray,
    residual: AnyNDArray,
    groups: AnyNDArray | None,
) -> MeanAndVariance:
    """Return μ₋ and v₋ of f - m at each row, [N, J] each, from μ, v, σ² and y - m."""
    precision, information = 1.0 / noise, residual / noise
    if groups is not None:
        sums: AnyNDArray = np.zeros((int(np.max(groups)) + 1, 2, noise.shape[1]))
        np.add.at(sums, groups, np.stack([precision, information], axis=1))
        precision, information = np.moveaxis(sums[groups], 1, 0)
    # The share of a group in its own prediction is below one, but for rounding.
    others = np.maximum(1.0 - variance * precision, 1e3 * np.finfo(f.dtype).eps)
    return (f - variance * information) / others, variance / others
