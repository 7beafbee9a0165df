"""The kernel of a Gaussian process after exact observations, and what it shares with the mean.

There are two ways to write the same thing: by systems as large as the number of observations, or,
for a kernel of fewer features than that, by systems of the features. `observe` chooses.

For outputs that are independent this is J systems of size M; for outputs that are correlated (a
`LinearCoregionalization`, say) it is one system of size M·J. Both are written as a batch of systems
`[b, m, m]` with one right-hand side: b = J, m = M or b = 1, m = M·J.
"""

from __future__ import annotations

import warnings

import numpy as np
import tensorflow as tf
from gpflow.base import Module, TensorType
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel

from .._core import linalg, outputs
from .._core.memo import once
from .._core.state import constant
from ..errors import NumericsWarning
from ..kernels.finite_features import features
from .covariance import Covariance, LowRankUpdate, one_set

MIN_PIVOT = 25.0
"""A pivot that is smaller than this number of roundings gives a warning."""


def observe(
    mean_function: MeanFunction,
    kernel: Kernel,
    Z: tf.Tensor,
    U: tf.Tensor,
    noise_variance: tf.Tensor,
) -> Observations:
    """Return the observations f(Z) + ε = U, ε ~ N(0, σ²), with the smaller of two systems.

    That of the weights divides by σ², which has to be known to be positive.
    """
    phi, noise = features(kernel), tf.get_static_value(noise_variance)
    system: type[Observations] = Observations
    if phi is not None and noise is not None and np.all(noise > 0.0):
        num_features, M = phi(Z).shape[-1], Z.shape[0]
        if num_features is not None and M is not None and num_features < M:
            system = WeightObservations
    observations = system(mean_function, kernel, Z, U, noise_variance)
    if tf.executing_eagerly():
        _warn_of_rounding(observations)
    return observations


def _warn_of_rounding(observations: Observations) -> None:
    """Warn where the smallest pivot of the system is of the size of what rounding makes of it.

    Rounding changes the eigenvalues of an m × m matrix with entries of size s by about ε √m s.
    """
    squares = tf.square(observations.cholesky())
    pivot = tf.reduce_min(tf.linalg.diag_part(squares), axis=-1)
    size = tf.reduce_mean(tf.reduce_sum(squares, axis=-1), axis=-1)  # the mean diagonal
    m = float(squares.shape[-1])
    if np.any(pivot <= MIN_PIVOT * linalg.epsilon(squares.dtype) * m**0.5 * size):
        warnings.warn(
            f"noise_variance is {np.asarray(observations.noise_variance)}, but what the points Z "
            f"tell beyond one another is lost in the rounding of {squares.dtype.name} (the "
            f"smallest pivot is {np.min(pivot):.2g}, the entries are {np.max(size):.2g}): "
            "posterior means and variances can be wrong by more than their size. Use float64, a "
            "larger noise variance, or fewer points.",
            NumericsWarning,
            stacklevel=5,  # the caller of condition, which AutoGraph's wrapper calls
        )


class Observations(Module):
    """Values U of a Gaussian process at Z, observed with noise; what mean and kernel share.

    :param mean_function: the mean m_P before the observations.
    :param kernel: the kernel k before the observations.
    :param Z: where it was observed, [M, D].
    :param U: what was observed, [M, J].
    :param noise_variance: σ², one for all outputs or [J]; zero for exact values.
    """

    def __init__(
        self,
        mean_function: MeanFunction,
        kernel: Kernel,
        Z: tf.Tensor,
        U: tf.Tensor,
        noise_variance: tf.Tensor,
    ) -> None:
        super().__init__()
        self.mean_function = mean_function
        self.kernel = kernel
        self.Z = constant(Z)
        self.U = constant(U)
        self.noise_variance = constant(noise_variance)
        self.num_outputs = int(U.shape[-1])

    def posterior_kernel(self) -> Kernel:
        """Return the kernel of the process given the observations."""
        if outputs.correlated(self.kernel):
            return CorrelatedConditionalCovariance(self)
        return ConditionalCovariance(self)

    @once
    def cholesky(self) -> tf.Tensor:
        """Return the lower factor of K_ZZ + σ² I: [b, m, m]."""
        gram = self.gram(self.Z, None)
        noise = tf.reshape(self.noise_variance, [-1, 1])  # [1, 1] or [J, 1]
        if outputs.correlated(self.kernel):
            noise = tf.broadcast_to(noise, [self.num_outputs, 1])
            noise = tf.tile(noise, [tf.shape(self.Z)[0], 1])[None, :, 0]  # [1, M·J]
        noise = noise + tf.zeros_like(tf.linalg.diag_part(gram))
        return linalg.cholesky(gram + tf.linalg.diag(noise), name="K_ZZ + σ² I")

    @once
    def whitened(self, X: TensorType) -> tf.Tensor:
        """Return A = L⁻¹ K_ZX: [b, m, n], with n = N or N·J."""
        return tf.linalg.triangular_solve(self.cholesky(), self.gram(self.Z, X))

    @once
    def whitened_residual(self) -> tf.Tensor:
        """Return L⁻¹ (U - m_P(Z)): [b, m, 1]."""
        residual = self.U - self.mean_function(self.Z)  # [M, J]
        if outputs.correlated(self.kernel):
            residual = tf.reshape(residual, [1, -1, 1])
        else:
            residual = tf.linalg.matrix_transpose(residual)[..., None]
        return tf.linalg.triangular_solve(self.cholesky(), residual)

    def gram(self, X: TensorType, X2: TensorType | None) -> tf.Tensor:
        """Return the kernel matrix as a batch of systems: [b, n, n2]."""
        if not outputs.correlated(self.kernel):
            return outputs.covariance(self.kernel, X, X2)
        J = self.num_outputs
        joint = outputs.joint_covariance(self.kernel, X, X2, J)  # [N, J, N2, J]
        shape = tf.shape(joint)
        return tf.reshape(joint, [1, shape[0] * J, shape[2] * J])


class WeightObservations(Observations):
    """The same for a kernel φ(x)ᵀ φ(x'), as what was learned about its weights w ~ N(0, I).

    With the observed features Φ = φ(Z), the weights of output j have the posterior precision
    A = I + σ⁻² ΦᵀΦ and mean A⁻¹ σ⁻² Φᵀ (U - m_P(Z)) (Rasmussen and Williams 2006, eq. 2.8).
    Here b = J or 1, and m = F, the number of features.
    """

    def posterior_kernel(self) -> Kernel:
        """Return the kernel of the process given the observations."""
        return WeightCovariance(self)

    def phi(self, X: TensorType) -> tf.Tensor:
        """Return φ(X): [N, F]."""
        return features(self.kernel)(X)  # type: ignore[misc]  # `observe` has found them

    @once
    def cholesky(self) -> tf.Tensor:
        """Return the lower factor L of A: [b, F, F]."""
        Phi = self.phi(self.Z) / tf.sqrt(self._noise)  # [b, M, F]
        inner = tf.matmul(Phi, Phi, transpose_a=True)
        A = linalg.add_to_diagonal(inner, tf.ones([], dtype=inner.dtype))
        return linalg.cholesky(A, name="I + σ⁻² ΦᵀΦ")

    @once
    def whitened(self, X: TensorType) -> tf.Tensor:
        """Return L⁻¹ φ(X)ᵀ: [b, F, N]."""
        L = self.cholesky()
        Phi = tf.linalg.matrix_transpose(self.phi(X))  # [F, N]
        Phi = tf.broadcast_to(Phi, [tf.shape(L)[0], *tf.unstack(tf.shape(Phi))])
        return tf.linalg.triangular_solve(L, Phi)

    @once
    def whitened_residual(self) -> tf.Tensor:
        """Return L⁻¹ σ⁻² Φᵀ (U - m_P(Z)): [J, F, 1]."""
        residual = tf.linalg.matrix_transpose(self.U - self.mean_function(self.Z))[..., None]
        return tf.matmul(self.whitened(self.Z), residual / self._noise)

    @property
    def _noise(self) -> tf.Tensor:
        """σ²: [b, 1, 1]."""
        return tf.reshape(self.noise_variance, [-1, 1, 1])


class ConditionalCovariance(LowRankUpdate):
    """k(x, x') - K_xZ (K_ZZ + σ² I)⁻¹ K_Zx', for independent outputs.

    Rasmussen and Williams (2006), eq. 2.24 and 2.26.
    """

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations
        self.num_outputs = _num_outputs(observations)

    @property
    def base_kernels(self) -> tuple[Kernel, ...]:
        """The kernel k before the observations."""
        return (self.observations.kernel,)

    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return A = L⁻¹ K_ZX, with L the factor of K_ZZ + σ² I."""
        return [self.observations.whitened(X)]

    def prepare(self) -> None:
        """Factorise K_ZZ + σ² I."""
        self.observations.cholesky()


class WeightCovariance(Covariance):
    """φ(x)ᵀ A⁻¹ φ(x') with A = I + σ⁻² ΦᵀΦ, for a kernel of finitely many features.

    Rasmussen and Williams (2006), eq. 2.9. It is a square, so nothing cancels.
    """

    def __init__(self, observations: WeightObservations) -> None:
        super().__init__()
        self.observations = observations
        self.num_outputs = _num_outputs(observations)

    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return the posterior variance of each output: [N, J]."""
        squares = tf.reduce_sum(tf.square(self.observations.whitened(X)), axis=-2)  # [b, N]
        return tf.linalg.matrix_transpose(squares)

    def output_covariance(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return the posterior covariance of each output: [J, N, N2]."""
        left = self.observations.whitened(X)
        right = left if X2 is None else self.observations.whitened(X2)
        return tf.matmul(left, right, transpose_a=True)


class CorrelatedConditionalCovariance(MultioutputKernel):
    """k(x, x') - K_xZ (K_ZZ + σ² I)⁻¹ K_Zx', for outputs that are correlated."""

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations

    @property
    def num_latent_gps(self) -> int:
        """The number J of outputs."""
        return self.observations.num_outputs

    @property
    def latent_kernels(self) -> tuple[Kernel, ...]:
        """The kernel itself: its outputs are not independent after conditioning."""
        return (self,)

    def K(
        self, X: TensorType, X2: TensorType | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        """Return the covariance, [N, J, N2, J], or that of each output, [J, N, N2]."""
        seen, J = self.observations, self.num_latent_gps
        X, X2 = one_set(X, self), None if X2 is None else one_set(X2, self)
        left = seen.whitened(X)
        right = left if X2 is None else seen.whitened(X2)
        joint = seen.gram(X, X2) - tf.matmul(left, right, transpose_a=True)  # [1, N·J, N2·J]
        joint = tf.reshape(joint, [-1, J, tf.shape(joint)[2] // J, J])
        return joint if full_output_cov else tf.einsum("njmj->jnm", joint)

    def K_diag(self, X: TensorType, full_output_cov: bool = True) -> tf.Tensor:
        """Return the covariance of the outputs at each input, [N, J, J] or its diagonal [N, J]."""
        seen, J = self.observations, self.num_latent_gps
        X = one_set(X, self)
        A = tf.reshape(seen.whitened(X)[0], [tf.shape(seen.Z)[0] * J, -1, J])  # [M·J, N, J]
        if full_output_cov:
            base = outputs.joint_variance(seen.kernel, X, J)
            return base - tf.einsum("mni,mnj->nij", A, A)
        base = outputs.variance(seen.kernel, X)
        left = base - tf.reduce_sum(tf.square(A), axis=0)
        return linalg.floor(left, base, relative=linalg.epsilon(base.dtype))


def _num_outputs(observations: Observations) -> int:
    """Return the number of outputs whose covariances differ, 1 if that of none does."""
    noises = observations.noise_variance.shape.num_elements()
    return max(outputs.num_outputs(observations.kernel), noises)
