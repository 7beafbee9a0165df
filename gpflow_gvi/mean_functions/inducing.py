"""The mean of a Gaussian process given values at inducing variables, or exact observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_float
from gpflow.functions import MeanFunction, Zero
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from .._core import images, linalg, outputs
from .._core.data import Data
from .._core.memo import is_given, once, prepare
from ..covariances import gram
from ..covariances.conditional import Observations


class Inducing(MeanFunction):
    """The mean of a sparse variational GP: m_Q(x) = m_P(x) + K_xZ K_ZZ⁻¹ (μ - m_P(Z)).

    As in GPflow's SVGP, what is learned is `q_mu`: μ - m_P(Z) (`whiten=False`) or L⁻¹(μ - m_P(Z))
    (`whiten=True`), with K_ZZ = L Lᵀ. Titsias (2009); m_P(Z) is subtracted, so that
    m_Q is m_P where q_mu is zero. k and m_P belong to the regulariser P and are not trained here.

    :param kernel: the regulariser's kernel k.
    :param inducing_variable: any of GPflow's, the same object as the covariance's; an array is
        taken as fixed inducing points.
    :param mean_function: the regulariser's mean m_P; zero if not given.
    :param q_mu: its start, [M, J]; zero if not given.
    :param whiten: whether q_mu belongs to L⁻¹u or to u.
    :param num_latent_gps: the number J of outputs, where kernel and q_mu leave it open.
    """

    # P's parts are used here and trained nowhere.
    _TF_MODULE_IGNORED_PROPERTIES = MeanFunction._TF_MODULE_IGNORED_PROPERTIES | {
        "kernel",
        "mean_function",
    }

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        *,
        mean_function: MeanFunction | None = None,
        q_mu: Any = None,
        whiten: bool = True,
        num_latent_gps: int | None = None,
    ) -> None:
        super().__init__()
        gram.require_independent_outputs(kernel)
        self.kernel = kernel
        self.inducing_variable = gram.as_inducing_variable(inducing_variable)
        self.mean_function = Zero() if mean_function is None else mean_function
        self.whiten = whiten
        q_mu = gram.as_start("q_mu", q_mu, "[M, J]")
        if q_mu is not None and num_latent_gps is None:
            num_latent_gps = int(q_mu.shape[-1])
        self.num_outputs = gram.num_outputs(kernel, self.inducing_variable, num_latent_gps)
        shape = (int(self.inducing_variable.num_inducing), self.num_outputs)
        if q_mu is None:
            q_mu = np.zeros(shape, dtype=default_float())
        if tuple(q_mu.shape) != shape:
            raise ValueError(f"q_mu has shape {tuple(q_mu.shape)}; it must be {shape}.")
        self.q_mu = q_mu if isinstance(q_mu, Parameter) else Parameter(q_mu)

    @classmethod
    def from_data(
        cls,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        data: RegressionData,
        noise_variance: TensorType,
        *,
        mean_function: MeanFunction | None = None,
        whiten: bool = True,
    ) -> Inducing:
        """Start at the optimum for Gaussian noise, μ - m_P(Z) = σ⁻² K_ZZ Ψ⁻¹ K_ZX (Y - m_P(X)).

        Here Ψ = K_ZZ + σ⁻² K_ZX K_XZ (Titsias 2009). `CholeskySVGP.from_data` is its covariance.
        """
        X, Y = Data.of(data)
        inducing_variable = gram.as_inducing_variable(inducing_variable)
        X = images.process_rows(X, kernel, inducing_variable)
        if mean_function is not None:
            outputs.require_columns("Y of data", Y, mean_function, X)
        J = max(Y.shape[1], outputs.num_outputs(kernel))
        gram.require_noise(noise_variance, X.shape[0], J)
        residual = Y if mean_function is None else Y - mean_function(X)  # [N, J]
        A = gram.features(kernel, inducing_variable, X)  # [J, M, N]
        inner = gram.optimal_precision(A, noise_variance)  # [J, M, M]
        residual = tf.linalg.matrix_transpose(residual) / outputs.noise_of_rows(noise_variance)
        q_mu = tf.linalg.cholesky_solve(linalg.cholesky(inner), tf.matmul(A, residual[..., None]))
        if not whiten:
            q_mu = tf.matmul(gram.cholesky(kernel, inducing_variable), q_mu)
        return cls(
            kernel,
            inducing_variable,
            mean_function=mean_function,
            q_mu=tf.linalg.matrix_transpose(q_mu[..., 0]),
            whiten=whiten,
        )

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return m_P(x) + (L⁻¹ K_Zx)ᵀ L⁻¹(μ - m_P(Z)): [N, J]."""
        X = images.as_rows(X, self)
        by_weights = is_given(Inducing.weights, self) or gram.by_products(
            self.kernel, self.inducing_variable, X
        )
        rows = gram.cross_covariance if by_weights else gram.whitened
        A = rows(self.kernel, self.inducing_variable, X)  # [J, M, N]
        of_rows = self.weights() if by_weights else self.whitened_mu()
        shift = tf.matmul(A, of_rows, transpose_a=True)[..., 0]  # [J, N]
        return outputs.mean(self.mean_function, X) + tf.linalg.matrix_transpose(shift)

    @once
    def whitened_mu(self) -> tf.Tensor:
        """Return L⁻¹(μ - m_P(Z)): [J, M, 1]."""
        q_mu = tf.linalg.matrix_transpose(self.q_mu)[..., None]
        if self.whiten:
            return q_mu
        return tf.linalg.triangular_solve(gram.cholesky(self.kernel, self.inducing_variable), q_mu)

    @once
    def weights(self) -> tf.Tensor:
        """Return K_ZZ⁻¹(μ - m_P(Z)), which K_xZ is multiplied by: [J, M, 1]."""
        L = gram.cholesky(self.kernel, self.inducing_variable)
        return tf.linalg.triangular_solve(L, self.whitened_mu(), adjoint=True)

    def prepare(self) -> None:
        """Factorise K_ZZ and compute the weights, for a posterior to keep."""
        prepare(self.mean_function)
        self.whitened_mu()
        gram.cholesky(self.kernel, self.inducing_variable)
        if gram.has_digits_for_inverse(self.q_mu.dtype):
            self.weights()


class ConditionalMean(MeanFunction):
    """m_P(x) + K_xZ (K_ZZ + σ² I)⁻¹ (U - m_P(Z)). Rasmussen and Williams (2006), eq. 2.38."""

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations
        self.num_outputs = observations.num_outputs

    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the posterior mean: [N, J]."""
        seen = self.observations
        shift = tf.matmul(seen.whitened(X), seen.whitened_residual(), transpose_a=True)[..., 0]
        if outputs.correlated(seen.kernel):
            shift = tf.reshape(shift, [-1, seen.num_outputs])
        else:
            shift = tf.linalg.matrix_transpose(shift)
        return outputs.mean(seen.mean_function, X) + shift

    def prepare(self) -> None:
        """Solve what depends on the observations alone, for a posterior to keep."""
        self.observations.cholesky()
        self.observations.whitened_residual()
