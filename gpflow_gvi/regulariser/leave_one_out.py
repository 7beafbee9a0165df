"""Predictions of each observation by all the others, in closed form.

With hyper-parameters and inducing points fixed, the sparse posterior is that of a Bayesian linear
regression on the features A = L⁻¹ K_ZX. An observation is taken out of its posterior N(μ, v) of the
linear part of f by division with the Gaussian of the observation (Rasmussen and Williams 2006,
sections 3.6.1 and 5.4.2):

    v₋ = v / (1 - v/σ²),    μ₋ = (μ - y v/σ²) / (1 - v/σ²)

What P's kernel has beyond the features, k - AᵀA, learns nothing from observations and is added.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType

from .._core import checks, linalg, outputs, row_blocks
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.plain import has_gradient
from .conditioning import precision_and_projection
from .plain_evidence import exact_evidence


def leave_one_out_of_all(
    prior: GaussianProcess, noise_variance: TensorType, data: RegressionData
) -> MeanAndVariance | None:
    """Return the same without inducing points; None where NumPy does not know the kernel.

    With S = K + diag σ² and α = S⁻¹(y - m) they are y_n - α_n / [S⁻¹]_nn and 1 / [S⁻¹]_nn
    (Rasmussen and Williams 2006, eq. 5.12), which the evidence has as derivatives.

    :param prior: P before it is conditioned.
    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    :param data: (X, Y).
    """
    X, Y = (np.asarray(part) for part in data)
    noise = np.broadcast_to(np.asarray(noise_variance), Y.shape)
    if X.dtype != np.float64 or not has_gradient(prior.kernel, X.shape[1]):
        return None
    residual = Y - np.asarray(prior.mean_function(X))
    try:
        found = exact_evidence(prior.kernel, X, noise, residual)
    except np.linalg.LinAlgError:  # with inducing points there is more jitter
        return None
    alpha = -found.by_residual
    precision = np.square(alpha) - 2.0 * found.by_noise
    return Y - alpha / precision, 1.0 / precision


def leave_one_out(
    prior: GaussianProcess, noise_variance: TensorType, Z: TensorType, data: RegressionData
) -> MeanAndVariance:
    """Return mean and variance of each y given all the others: [N, J] each.

    :param prior: P before it is conditioned.
    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    :param Z: the inducing points, [M, D].
    :param data: (X, Y).
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
        found.append(_without_own(S, weights, beyond, noise[:, rows], residual[:, rows]))
    parts = zip(*found, strict=True)
    mean, variance = (tf.linalg.matrix_transpose(tf.concat(each, axis=-1)) for each in parts)
    return m + mean, variance


def _without_own(
    S: tf.Tensor, weights: tf.Tensor, beyond: tf.Tensor, noise: tf.Tensor, residual: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance of each residual given all the others: [J, N] each.

    :param S: L_B⁻¹A, with the posterior's precision B = L_B L_Bᵀ: [J, M, N].
    :param weights: L_B⁻¹ Σ A (y - m)/σ²: [J, M, 1].
    """
    mean = tf.linalg.matmul(S, weights, transpose_a=True)[..., 0]  # [J, N]
    variance = tf.reduce_sum(tf.square(S), axis=-2)  # [J, N]
    # The share of an observation in its own prediction is below one, but for rounding.
    largest = 1.0 - 1e3 * np.finfo(S.dtype.as_numpy_dtype).eps
    share = tf.minimum(variance / noise, tf.constant(largest, S.dtype))
    mean = (mean - share * residual) / (1.0 - share)
    return mean, variance / (1.0 - share) + beyond + noise + tf.zeros_like(mean)
