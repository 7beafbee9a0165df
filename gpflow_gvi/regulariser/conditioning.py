"""P conditioned on rows that come in blocks, through inducing points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from .._core import checks, images, linalg, outputs
from ..covariances import CholeskySVGP, gram
from ..gaussian_process import GaussianProcess
from ..mean_functions import Inducing


def conditioned(
    prior: GaussianProcess, inducing_points: Any, blocks: Iterable[tuple[TensorType, ...]]
) -> GaussianProcess:
    """Return the process of the optimal inducing distribution. Titsias (2009), eq. 10.

    With A = L⁻¹K_ZX and K_ZZ = L Lᵀ the distribution of L⁻¹(u - m_P(Z)) is

        N(B⁻¹ b, B⁻¹),    B = I + Σ A Aᵀ / σ²,    b = Σ A (Y - m_P(X)) / σ²,

    with sums over blocks of rows: O(N M²) time, and memory for one block.

    :param prior: P before it is conditioned.
    :param inducing_points: Z, [M, D], or an inducing variable.
    :param blocks: (X, Y, σ²), with one noise variance for all outputs, [J], or one for each row,
        [N, J].
    """
    kernel, Z = prior.kernel, gram.as_inducing_variable(inducing_points)
    precision: Any = 0.0
    projection: Any = 0.0
    for X, Y, noise_variance in blocks:
        checks.positive("noise_variance", noise_variance)
        X = images.as_rows(tf.convert_to_tensor(X), kernel, Z)
        noise = outputs.noise_of_rows(noise_variance)  # [J, N]
        residual = tf.linalg.matrix_transpose(Y - prior.mean_function(X)) / noise  # [J, N]
        A = gram.features(kernel, Z, X)  # [J, M, N]
        precision += gram.information(A, noise)  # [J, M, M]
        projection += tf.matmul(A, residual[..., None])  # [J, M, 1]
    B = linalg.add_to_diagonal(precision, tf.ones([], precision.dtype))
    q_mu = tf.linalg.cholesky_solve(linalg.cholesky(B), projection)[..., 0]
    q_sqrt = linalg.cholesky_of_inverse(B)
    mean = Inducing(
        kernel, Z, mean_function=prior.mean_function, q_mu=tf.linalg.matrix_transpose(q_mu)
    )
    J = max(gram.num_outputs(kernel, Z, mean.num_outputs), q_sqrt.shape[0])
    q_sqrt = tf.broadcast_to(q_sqrt, [J, *q_sqrt.shape[1:]])
    return GaussianProcess(mean, CholeskySVGP(kernel, Z, q_sqrt=q_sqrt))
