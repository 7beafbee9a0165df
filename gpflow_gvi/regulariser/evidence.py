"""What the hyper-parameters of the regulariser are judged by, and the posterior that goes with it.

Type-II maximum likelihood maximises the log density of observations under the prior, noise
included. `InducingEvidence` takes the observations at the inducing points alone, at a cost that
does not grow with the data; `DataEvidence` takes a lower bound of the density of all of them.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable

import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.kernels import Kernel

from .._core import linalg, outputs
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from .conditioning import conditioned


class Evidence(abc.ABC):
    """The log density of observations, as a function of hyper-parameters."""

    needs_inducing_outputs: bool = False
    """Whether it is of the observations at the inducing points alone, rows of the data then."""

    @abc.abstractmethod
    def log_density(
        self, prior: GaussianProcess, noise: TensorType, at: RegressionData, data: RegressionData
    ) -> tf.Tensor:
        """Return the log evidence, or a bound of it: [].

        :param prior: P before it is conditioned.
        :param noise: σ², one for all outputs, [J], or one for each row, [N, J].
        :param at: (Z, U), inducing points, and the observations there if these are what it is of.
        :param data: (X, Y), what it is of.
        """

    def posterior(
        self, prior: GaussianProcess, noise: TensorType, at: RegressionData, data: RegressionData
    ) -> GaussianProcess:
        """Return the prior conditioned on the observations that the evidence is of."""
        return prior.condition(*at, noise)


class InducingEvidence(Evidence):
    """log N(U; m(Z), K_ZZ + σ²I), the evidence of the observations at the inducing points."""

    needs_inducing_outputs = True

    def log_density(
        self, prior: GaussianProcess, noise: TensorType, at: RegressionData, data: RegressionData
    ) -> tf.Tensor:
        """Return Σ_j log N(U_j; m_j(Z), K_j + σ_j² I). Rasmussen and Williams (2006), eq. 2.30."""
        Z, U = at
        residual = tf.linalg.matrix_transpose(U - prior.mean_function(Z))  # [J, M]
        J, M = tf.unstack(tf.shape(residual))
        K = outputs.covariance(prior.kernel, Z)  # [J, M, M]
        noise = tf.broadcast_to(outputs.noise_of_rows(noise), [J, M])
        return _log_normal(tf.broadcast_to(K, [J, M, M]), noise, residual)


@tf.custom_gradient
def _log_normal(
    K: tf.Tensor, noise: tf.Tensor, residual: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    """Return Σ log N(r; 0, S), S = K + diag σ², the sum over outputs, with its gradient.

    With α = S⁻¹r it is ½(ααᵀ - S⁻¹) in K, the diagonal of this in σ², and -α in r (Rasmussen and
    Williams 2006, eq. 5.9). The gradient of a Cholesky factor takes twice as many products.
    """
    L = linalg.cholesky(K + tf.linalg.diag(noise), name="K_ZZ + σ² I")
    alpha = tf.linalg.cholesky_solve(L, residual[..., None])[..., 0]
    logs = tf.math.log(tf.linalg.diag_part(L)) + 0.5 * math.log(2.0 * math.pi)
    value = -tf.reduce_sum(0.5 * residual * alpha + logs)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        identity = tf.eye(tf.shape(L)[-1], batch_shape=tf.shape(L)[:-2], dtype=L.dtype)
        inverse = tf.linalg.cholesky_solve(L, identity)
        by_K = 0.5 * upstream * (alpha[..., :, None] * alpha[..., None, :] - inverse)
        return by_K, tf.linalg.diag_part(by_K), -upstream * alpha

    return value, gradient


class DataEvidence(Evidence):
    """The collapsed lower bound of the evidence of all data, and the sparse posterior given them.

    Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes",
    eq. 9. It costs O(N M²), so it is there where the exact evidence, of O(N³), is not.

    With d_n = (K - Q)_nn/σ_n² it takes ½ Σ d_n from the density of sparse observations. Relaxed, it
    takes ½ Σ log(1 + d_n), as the variance of f(x_n) given u is scaled to fit (Titsias 2025, "New
    bounds for sparse variational Gaussian processes"): closer to the evidence where points are few.
    Predictions are by these points in either case, which the looser bound fits the kernel to.

    :param relaxed: whether the bound is the closer one.
    """

    def __init__(self, *, relaxed: bool = False) -> None:
        self.relaxed = relaxed

    def log_density(
        self, prior: GaussianProcess, noise: TensorType, at: RegressionData, data: RegressionData
    ) -> tf.Tensor:
        """Return Σ_j log N(Y_j; m_j(X), Q_j + σ_j² I) - ½ Σ_jn d_jn, or with log(1 + d_jn)."""
        (Z, _), (X, Y) = at, data
        residual = tf.linalg.matrix_transpose(Y - prior.mean_function(X))  # [J, N]
        (J, N), M = tf.unstack(tf.shape(residual)), tf.shape(Z)[0]
        Kzz = tf.broadcast_to(outputs.covariance(prior.kernel, Z), [J, M, M])
        Kzx = tf.broadcast_to(outputs.covariance(prior.kernel, Z, X), [J, M, N])
        k = tf.broadcast_to(tf.transpose(outputs.variance(prior.kernel, X)), [J, N])
        noise = tf.broadcast_to(outputs.noise_of_rows(noise), [J, N])
        bound = _collapsed_bound(Kzz, Kzx, k, noise, residual)
        return bound + _gain(Kzz, Kzx, k, noise) if self.relaxed else bound

    def posterior(
        self, prior: GaussianProcess, noise: TensorType, at: RegressionData, data: RegressionData
    ) -> GaussianProcess:
        """Return the process of the optimal inducing distribution (Titsias 2009, eq. 10)."""
        return conditioned(prior, at[0], [(*data, noise)])


@tf.custom_gradient
def _collapsed_bound(
    Kzz: tf.Tensor, Kzx: tf.Tensor, k: tf.Tensor, noise: tf.Tensor, residual: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    """Return the bound, the sum over outputs, with its gradient in closed form.

    With L Lᵀ = K_ZZ, A = L⁻¹K_ZX/σ, r the residual over σ and B = I + AAᵀ, it is

        -½ ( rᵀr - rᵀAᵀB⁻¹Ar + Σ k/σ² - tr AAᵀ + log|B| + Σ log 2πσ² )

    and with γ = B⁻¹Ar, e = r - Aᵀγ, V = A - B⁻¹A its gradient is

        L⁻ᵀ(γeᵀ + V)/σ in K_ZX,    -½ L⁻ᵀ(γγᵀ + B⁻¹ + AAᵀ - I)L⁻¹ in K_ZZ,    -½/σ² in k,
        -e/σ in the residual,      ½ (e² - 1 - diag AᵀV + k/σ²)/σ² in σ².

    Automatic differentiation takes twice as many products of M × M and M × N matrices. Rounding can
    leave tr(K - Q) negative; it is taken as zero then, and so are its derivatives. k is the
    diagonal of K_XX, [J, N], as are σ² and the residual Y - m(X).
    """
    M, sigma = tf.shape(Kzz)[-1], tf.sqrt(noise)
    identity = tf.eye(M, dtype=Kzz.dtype)
    L = linalg.cholesky_of_points(Kzz)
    A = tf.linalg.triangular_solve(L, Kzx) / sigma[:, None]  # [J, M, N]
    r = residual / sigma  # [J, N]
    AA = tf.matmul(A, A, transpose_b=True)  # [J, M, M]
    C = linalg.cholesky(AA + identity)
    c = tf.linalg.triangular_solve(C, tf.linalg.matvec(A, r)[..., None])  # [J, M, 1]
    missing = tf.reduce_sum(k / noise, -1) - tf.linalg.trace(AA)  # tr (K - Q)/σ², [J]
    log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(C)), -1)  # [J]
    constants = tf.reduce_sum(tf.math.log(2.0 * math.pi * noise), -1)
    fit = tf.reduce_sum(tf.square(r), -1) - tf.reduce_sum(tf.square(c), (-2, -1))
    bound = -0.5 * tf.reduce_sum(fit + tf.nn.relu(missing) + log_determinant + constants)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        some = tf.cast(missing > 0.0, A.dtype)[:, None]  # [J, 1]
        inverse = tf.linalg.cholesky_solve(C, tf.broadcast_to(identity, tf.shape(C)))
        gamma = tf.linalg.triangular_solve(C, c, adjoint=True)  # [J, M, 1]
        e = r - tf.matmul(A, gamma, transpose_a=True)[..., 0]  # [J, N]
        V = tf.matmul(some[..., None] * identity - inverse, A)  # [J, M, N]
        of_projection = (gamma * e[:, None] + V) / sigma[:, None]
        inner = tf.matmul(gamma, gamma, transpose_b=True) + inverse - identity
        inner += some[..., None] * AA
        half = tf.linalg.triangular_solve(L, inner, adjoint=True)  # L⁻ᵀ(...)
        own = tf.reduce_sum(A * V, axis=-2)  # diag AᵀV
        gradients = (
            -0.5 * tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True),
            tf.linalg.triangular_solve(L, of_projection, adjoint=True),
            -0.5 * some / noise,
            0.5 * (tf.square(e) - 1.0 - own + some * k / noise) / noise,
            -e / sigma,
        )
        return tuple(upstream * part for part in gradients)

    return bound, gradient


def _gain(Kzz: tf.Tensor, Kzx: tf.Tensor, k: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Return ½ Σ (d - log(1 + d)), d = (k - diag K_XZ K_ZZ⁻¹ K_ZX)/σ²."""
    L = linalg.cholesky_of_points(Kzz)
    q = tf.reduce_sum(tf.square(tf.linalg.triangular_solve(L, Kzx)), axis=-2)
    d = tf.nn.relu(k - q) / noise
    return 0.5 * tf.reduce_sum(d - tf.math.log1p(d))


def titsias_gap(kernel: Kernel, noise_variance: TensorType, Z: TensorType, X: TensorType) -> float:
    """Return tr (K - Q) / 2Nσ², Q = K_XZ K_ZZ⁻¹ K_ZX: what the bound lacks of each row's evidence.

    It is the term of the bound that is zero where no variance is beyond the inducing points, and it
    bounds the divergence of the sparse posterior from that without inducing points (Burt, Rasmussen
    and van der Wilk 2020, "Convergence of sparse variational inference in Gaussian processes
    regression").

    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    """
    A = gram.features(kernel, gram.as_inducing_variable(Z, gram.DistinctPoints), X)  # [J, M, N]
    left = outputs.variance(kernel, X) - outputs.squares(A)
    return 0.5 * float(tf.reduce_mean(left / noise_variance))
