"""What the hyper-parameters of the regulariser are judged by, and the posterior that goes with it.

Type-II maximum likelihood maximises the log density of observations under the prior, noise
included. `InducingEvidence` takes the observations at the inducing points alone, at a cost that
does not grow with the data; `DataEvidence` takes a lower bound of the density of all of them.
"""

from __future__ import annotations

import abc
import math

import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_jitter

from .._core import linalg, outputs
from ..gaussian_process import GaussianProcess
from .conditioning import conditioned


class Evidence(abc.ABC):
    """The log density of observations, as a function of hyper-parameters."""

    needs_inducing_outputs: bool = False
    """Whether the inducing points must be rows of the data."""

    @abc.abstractmethod
    def log_density(
        self,
        prior: GaussianProcess,
        noise_variance: TensorType,
        inducing_data: RegressionData,
        data: RegressionData,
    ) -> tf.Tensor:
        """Return the log evidence, or a bound of it: [].

        :param prior: P before it is conditioned.
        :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
        :param inducing_data: (Z, U), inducing points and the observations there.
        :param data: (X, Y).
        """

    def posterior(
        self,
        prior: GaussianProcess,
        noise_variance: TensorType,
        inducing_data: RegressionData,
        data: RegressionData,
    ) -> GaussianProcess:
        """Return the prior conditioned on the observations that the evidence is of."""
        return prior.condition(*inducing_data, noise_variance)


class InducingEvidence(Evidence):
    """log N(U; m(Z), K_ZZ + σ²I), the evidence of the observations at the inducing points."""

    needs_inducing_outputs = True

    def log_density(
        self,
        prior: GaussianProcess,
        noise_variance: TensorType,
        inducing_data: RegressionData,
        data: RegressionData,
    ) -> tf.Tensor:
        """Return Σ_j log N(U_j; m_j(Z), K_j + σ_j² I). Rasmussen and Williams (2006), eq. 2.30."""
        Z, U = inducing_data
        residual = tf.linalg.matrix_transpose(U - prior.mean_function(Z))[..., None]  # [J, M, 1]
        noise = outputs.noise_of_rows(noise_variance)  # [J, M]
        K = outputs.covariance(prior.kernel, Z)  # [J, M, M]
        K += tf.linalg.diag(noise + tf.zeros_like(tf.linalg.diag_part(K)))
        L = linalg.cholesky(K, name="K_ZZ + σ² I")
        whitened = tf.linalg.triangular_solve(L, residual)[..., 0]  # [J, M]
        logs = tf.math.log(tf.linalg.diag_part(L)) + tf.zeros_like(whitened)
        constant = 0.5 * math.log(2.0 * math.pi)
        return -tf.reduce_sum(0.5 * tf.square(whitened) + logs + constant)


class DataEvidence(Evidence):
    """The collapsed lower bound of the evidence of all data, and the sparse posterior given them.

    Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes",
    eq. 9. It costs O(N M²), so it is there where the exact evidence, of O(N³), is not.
    """

    def log_density(
        self,
        prior: GaussianProcess,
        noise_variance: TensorType,
        inducing_data: RegressionData,
        data: RegressionData,
    ) -> tf.Tensor:
        """Return Σ_j log N(Y_j; m_j(X), Q_j + σ_j² I) - tr(K_j - Q_j) / 2σ_j².

        With A = L⁻¹K_ZX/σ and B = I + AAᵀ = CCᵀ the first term costs no more than A Aᵀ.
        """
        (Z, _), (X, Y) = inducing_data, data
        N = tf.cast(tf.shape(X)[0], Y.dtype)
        noise = outputs.noise_of_rows(noise_variance)  # [J, N]
        sigma = tf.sqrt(noise)
        residual = tf.linalg.matrix_transpose(Y - prior.mean_function(X)) / sigma  # [J, N]
        K = outputs.covariance(prior.kernel, Z)  # [J, M, M]
        L = linalg.cholesky(K, jitter=default_jitter(), name="K_ZZ")
        A = tf.linalg.triangular_solve(L, outputs.covariance(prior.kernel, Z, X)) / sigma[:, None]
        gram = tf.matmul(A, A, transpose_b=True)  # [J, M, M]
        C = linalg.cholesky(linalg.add_to_diagonal(gram, tf.ones([], dtype=gram.dtype)))
        c = tf.linalg.triangular_solve(C, tf.matmul(A, residual[..., None]))[..., 0]  # [J, M]
        variance = tf.transpose(outputs.variance(prior.kernel, X)) / noise  # [J, N]
        missing = tf.nn.relu(tf.reduce_sum(variance, -1) - tf.linalg.trace(gram))  # tr (K - Q)/σ²
        log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(C)), -1)  # [J]
        constant = N * (tf.reduce_mean(tf.math.log(noise), -1) + math.log(2.0 * math.pi))
        fit = tf.reduce_sum(tf.square(residual), -1) - tf.reduce_sum(tf.square(c), -1)
        return -0.5 * tf.reduce_sum(fit + missing + log_determinant + constant)

    def posterior(
        self,
        prior: GaussianProcess,
        noise_variance: TensorType,
        inducing_data: RegressionData,
        data: RegressionData,
    ) -> GaussianProcess:
        """Return the process of the optimal inducing distribution (Titsias 2009, eq. 10)."""
        return conditioned(prior, inducing_data[0], [(*data, noise_variance)])
