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

from .._core import linalg, outputs
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.plain import has_gradient
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
    X, Y = (tf.convert_to_tensor(part) for part in data)
    inducing_variable = gram.as_inducing_variable(Z)
    noise = outputs.noise_of_rows(noise_variance)  # [J, N]
    A = gram.features(prior.kernel, inducing_variable, X)  # [J, M, N]
    inner = gram.optimal_precision(A, noise_variance)
    S = tf.linalg.triangular_solve(linalg.cholesky(inner), A)  # [J, M, N]
    m = prior.mean_function(X)  # [N, J]
    residual = tf.linalg.matrix_transpose(Y - m)  # [J, N]
    weights = tf.linalg.matvec(S, residual / noise)  # [J, M]
    mean = tf.linalg.matvec(S, weights, transpose_a=True)  # [J, N]
    variance = tf.reduce_sum(tf.square(S), axis=-2)  # [J, N]
    # The share of an observation in its own prediction is below one, but for rounding.
    largest = 1.0 - 1e3 * np.finfo(A.dtype.as_numpy_dtype).eps
    share = tf.minimum(variance / noise, tf.constant(largest, A.dtype))
    mean = (mean - share * residual) / (1.0 - share)
    prior_variance = tf.linalg.matrix_transpose(outputs.variance(prior.kernel, X))  # [J, N]
    beyond = tf.nn.relu(prior_variance - tf.reduce_sum(tf.square(A), axis=-2))
    variance = variance / (1.0 - share) + beyond + noise + tf.zeros_like(mean)  # [J, N]
    return m + tf.linalg.matrix_transpose(mean), tf.linalg.matrix_transpose(variance)
